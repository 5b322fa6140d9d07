"""JSON as the standard means it: what `json.loads` lets through in silence is refused here.

Refused: NaN, Infinity, numbers that overflow to infinity, duplicate keys, lone surrogates, and nesting deeper than
100 levels. A lone surrogate would pass until the text is hashed, sent or written, hours later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

MAX_DEPTH = 100


class BadJson(ValueError):
    """`column` counts characters from 1 within the decoded text; None where the parser does not tell."""

    def __init__(self, message: str, column: int | None = None):
        self.column = column
        super().__init__(message)


def strict_loads(text: str) -> Any:
    """Parse one JSON value. Raises BadJson."""
    try:
        value, end = _DECODER.raw_decode(text, _skip_space(text, 0))
    except json.JSONDecodeError as error:
        raise BadJson(error.msg, error.pos + 1) from None
    except (RecursionError, ValueError) as error:
        raise BadJson(_reason(error)) from None
    if (end := _skip_space(text, end)) != len(text):
        raise BadJson("something follows the JSON value", end + 1)
    check_json(value, text)
    return value


def raw_decode(text: str, start: int) -> tuple[Any, int]:
    """Parse the value that begins at `start`; gives it and its end. Raises json.JSONDecodeError (cut or wrong) or BadJson."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        raise BadJson(_reason(error)) from None
    check_json(value, text[start:end])
    return value, end


def check_json(value: Any, text: str) -> None:
    """Refuse what only the parsed value shows. `text` is its source: without a suspect in it nothing is walked."""
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    if "\\ud" in text or "\\uD" in text:
        _check_surrogates(value)


def _check_surrogates(value: Any) -> None:
    """Raises BadJson when a text anywhere in `value` holds half of a surrogate pair."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, str) and any("\ud800" <= c <= "\udfff" for c in item):
            raise BadJson(f"a lone surrogate (half a character) in {item[:40]!a}")


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise BadJson(f"nested deeper than {MAX_DEPTH} levels")
        inner = [item for item in level if isinstance(item, dict | list)]
        level = [child for item in inner for child in (item.values() if isinstance(item, dict) else item)]


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"nested deeper than {MAX_DEPTH} levels"
    if "integer string conversion" in str(error):
        return "a number of more than 4300 digits"
    return str(error)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadJson(f"the key {ascii(twice)[:60]} stands twice in one object")
    return found


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadJson(f"the number {text[:40]} is too large")
    return value


def _constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON")


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def decoder(*, strict: bool = True, parse_int: Callable[[str], int] | None = None) -> json.JSONDecoder:
    """A decoder that refuses NaN, infinities and duplicate keys (BadJson); not `strict`: raw line breaks in strings pass."""
    return json.JSONDecoder(
        object_pairs_hook=_pairs, parse_float=_float, parse_constant=_constant, parse_int=parse_int, strict=strict
    )


_DECODER = decoder()
