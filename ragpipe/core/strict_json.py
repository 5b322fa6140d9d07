"""JSON as the standard defines it: what `json.loads` accepts beyond that is refused here.

Refused: NaN, Infinity, numbers that overflow to infinity, duplicate keys, lone surrogates, and nesting deeper than
100 levels. A lone surrogate would fail only when the text is hashed, sent or written, hours later.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite, isinf
from typing import Any, NoReturn

from pydantic_core import from_json

MAX_DEPTH = 100


class InvalidJson(ValueError):
    """A text that is not strict JSON.

    `column` counts characters from 1 within the decoded text; None where the parser does not say.
    """

    def __init__(self, message: str, column: int | None = None):
        self.column = column
        super().__init__(message.removesuffix(" at").removesuffix(" starting"))  # `json` leaves room for a place


def strict_loads(text: str, *, nan_is_null: bool = False) -> Any:
    """Parse one JSON value; with `nan_is_null` a bare NaN in it is None. Raises InvalidJson."""
    try:
        value = from_json(text, allow_inf_nan=False)  # faster, and does not say what is wrong
    except (ValueError, TypeError):  # half a character in the text itself
        return _loads(text, nan_is_null=nan_is_null)
    if not _is_plain(value, text):
        return _loads(text, nan_is_null=nan_is_null)
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    return value


def _is_plain(value: Any, text: str) -> bool:
    """Whether no name of an object stands twice in the text, and no number of the value is infinite.

    Behind each name stands a colon, and all other colons stand within texts. The value has one of two equal names alone: the colon of
    the other would be left over.
    """
    names, texts, inner = 0, list[str](), list[Any]([[value]])
    for item in inner:  # which grows
        if type(item) is dict:
            names += len(item)
        for part in item.values() if type(item) is dict else item:
            kind = type(part)
            if kind is str:
                texts.append(part)
            elif kind is dict or kind is list:
                inner.append(part)
            elif kind is float and isinf(part):
                return False
    more = text.count(":") - names
    return not more or (more == "".join(texts).count(":") and "\\u003" not in text)  # \u003a is a colon


def _loads(text: str, *, nan_is_null: bool) -> Any:
    try:
        value, end = _DECODERS[nan_is_null].raw_decode(text, _skip_space(text, 0))
    except json.JSONDecodeError as error:
        raise InvalidJson(error.msg, error.pos + 1) from None
    except (RecursionError, ValueError) as error:
        raise InvalidJson(_reason(error)) from None
    if (end := _skip_space(text, end)) != len(text):
        raise InvalidJson("text follows the JSON value", end + 1)
    check_json(value, text)
    return value


def raw_decode(text: str, start: int, *, nan_is_null: bool = False) -> tuple[Any, int]:
    """Parse the value that begins at `start`: the value and its end. `nan_is_null` as in `strict_loads`.

    Raises json.JSONDecodeError for an incomplete or malformed value, InvalidJson for what strict JSON refuses.
    """
    try:
        value, end = _DECODERS[nan_is_null].raw_decode(text, start)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        raise InvalidJson(_reason(error)) from None
    check_json(value, text[start:end])
    return value, end


def check_json(value: Any, text: str) -> None:
    """Raises InvalidJson for nesting and surrogates, which only the parsed value shows.

    `text` is the source of `value`: where it has no suspicious character, the value is not walked.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    if "\\ud" in text or "\\uD" in text:
        _check_surrogates(value)


def _check_surrogates(value: Any) -> None:
    """Raises InvalidJson when a text anywhere in `value` holds half of a surrogate pair."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, str) and any("\ud800" <= c <= "\udfff" for c in item):
            raise InvalidJson(f"a lone surrogate (half a character) in {item[:40]!a}")


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidJson(f"nested deeper than {MAX_DEPTH} levels")
        inner = [item for item in level if isinstance(item, dict | list)]
        level = [child for item in inner for child in (item.values() if isinstance(item, dict) else item)]


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"nested deeper than {MAX_DEPTH} levels"
    if "integer string conversion" in str(error):
        return "a number of more than 4300 digits"
    return str(error)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InvalidJson(f"the key {ascii(duplicate)[:60]} appears twice in one object")
    return mapping


def finite_float(text: str) -> float:
    """The number of a text. Raises InvalidJson for one beyond all floats: the `parse_float` of a decoder."""
    value = float(text)
    if not isfinite(value):
        raise InvalidJson(f"the number {text[:40]} is too large")
    return value


def refuse_constant(name: str) -> NoReturn:
    """Raises InvalidJson for NaN and infinities: the `parse_constant` of a decoder."""
    raise InvalidJson(f"{name} is not JSON")


def _null_for_nan(name: str) -> None:
    if name != "NaN":
        refuse_constant(name)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def decoder(
    *, strict: bool = True, parse_int: Callable[[str], int] | None = None, nan_is_null: bool = False
) -> json.JSONDecoder:
    """A decoder that refuses NaN, infinities and duplicate keys (InvalidJson).

    Without `strict`, raw line breaks in strings are accepted. With `nan_is_null` a NaN is None; infinities are refused.
    """
    return json.JSONDecoder(
        object_pairs_hook=_pairs,
        parse_float=finite_float,
        parse_constant=_null_for_nan if nan_is_null else refuse_constant,
        parse_int=parse_int,
        strict=strict,
    )


_DECODERS = {False: decoder(), True: decoder(nan_is_null=True)}
