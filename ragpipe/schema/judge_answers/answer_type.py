"""The base of the answers that a judge can give, and the types of their fields.

An answer is asked for either as JSON (`form = "json"`: its schema goes into the question) or as plain text (`form =
"text"`: the reply is read by `from_text`). A JSON type may define `from_text` too, as its documented second form. The
findings come before the verdict: a judge that is bound to a schema writes its fields in order, and should not decide
before it has quoted and reasoned. Reading is strict: a missing key, a wrong type, NaN or a number out of range is an
error, never a default and never clamped. There are two coercions: a plain decimal in quotes ("4") is a number (`true` is
not), and null in place of an optional quote is the empty one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_DECIMAL = re.compile(r"[+-]?[0-9]{1,9}(\.[0-9]{1,9})?\Z")  # `float` would take the digits of other scripts too


def _number(value: object) -> object:
    if isinstance(value, str) and _DECIMAL.match(value.strip()):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {value!r}")
    return value


def _integer(value: object) -> object:
    value = _number(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"expected a whole number, found {value!r}")
        value = int(value)
    return value


Number = Annotated[float, BeforeValidator(_number)]
Integer = Annotated[int, BeforeValidator(_integer)]
Quote = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A passage that may be absent. The validator leaves the schema, and so every question's key, as that of a plain text."""


def _quotes(value: object) -> object:
    if value is None or isinstance(value, str):
        return [value] if value else []
    return value


Quotes = Annotated[list[str], BeforeValidator(_quotes)]
"""Passages, each copied from a text; none, one without a list around it, and null are read as the lists they mean."""
Share = Annotated[Number, Field(ge=0, le=1)]
Percent = Annotated[Number, Field(ge=0, le=100)]
Flag = Annotated[bool, Field(strict=True)]


ItemRole = Literal["sources", "claims", "citations", "rules"]
"""The role, as templates declare it, of items that a question numbers."""


class Answer(BaseModel):
    """Base of the answer types. Extra keys are ignored (the raw reply keeps them).

    `numbered_items`: by field that holds numbers of items, the role of these items. A question whose answer has a field `index`
    that is not declared shows its items in the order of the data, whatever `judge.shuffle_seed` says.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)
    form: ClassVar[Literal["json", "text"]] = "json"
    numbered_items: ClassVar[Mapping[str, ItemRole]] = {}

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the plain-text form of the answer. Raises ValueError when the text does not hold one."""
        raise ValueError("this answer has no plain-text form")

    @classmethod
    def from_object(cls, value: Mapping[str, Any], prose: str) -> Self | None:
        """A text answer that came as a JSON object with `prose` around it; None when the object does not hold one."""
        return None
