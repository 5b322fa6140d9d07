"""What a person, or a judge that is not ours, said of an output before ragpipe saw it.

A verdict is a number, true or false (1 or 0), null (none was given) or `{"unreadable": "text"}` (one was given that
means no number). A recorded value is one verdict, a list of them (by claim), or an object of them (by annotator).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeGuard

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

UNREADABLE = "unreadable"
_VERDICT = f'a number, true, false, null or {{"{UNREADABLE}": "text"}}'


def is_unreadable(value: Any) -> TypeGuard[dict[str, str]]:
    """Whether a verdict was given that means no number; its text is under `unreadable`."""
    return isinstance(value, dict) and value.keys() == {UNREADABLE} and isinstance(value[UNREADABLE], str)


def several(value: Any) -> dict[str, Any] | None:
    """The verdicts of a list (named "1", "2", ...) or of an object, in order; None for a single verdict."""
    if isinstance(value, list):
        return {str(place): verdict for place, verdict in enumerate(value, 1)}
    return value if isinstance(value, dict) and not is_unreadable(value) else None


def _checked(value: Any) -> Any:
    inside = several(value)
    for name, verdict in (inside if inside is not None else {"": value}).items():
        if not _is_verdict(verdict):
            where = f" (not so: {name[:40]!r})" if inside is not None else ""
            raise PydanticCustomError(
                "recorded",
                "{expected}",
                {
                    "expected": f"{_VERDICT}, or a list or an object of these{where}; a mapping turns labels into numbers by `map`",
                },
            )
    return value


def _is_verdict(value: Any) -> bool:
    if not isinstance(value, int | float):  # a bool is an int
        return value is None or is_unreadable(value)
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


Recorded = Annotated[Any, AfterValidator(_checked)]
