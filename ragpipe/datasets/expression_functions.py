"""The functions that path expressions have beside those of JMESPath. Each gives null for null.

| function | value |
|---|---|
| `parse_json(text)` | the JSON value in a text |
| `parse_python(text)` | the list or object in a text as Python prints it, or numpy an array |
| `parse(value)` | of a text the JSON, Python or numpy value in it, null for a blank one; any other value as it is |
| `json_or_text(value)` | of a text that is a JSON object or list that value; any other value as it is |
| `split(text, separator)` | the pieces between the separators |
| `number(value)` | a number, also of a text; a blank text and `nan` are null |
| `verdict(value)` | a recorded verdict: number, true or false, null, `{unreadable: text}`; of a list or an object each value |
| `without(object, names)` | the object without these names |
| `prefixed(object, prefix)`, `suffixed(object, suffix)` | the values whose names begin or end so, by the rest of the name |
| `collect(list, &key, &value)` | an object of the elements' values by key; a list of values where a key comes several times |
| `to_string(value)` | the text, or the JSON of any other value |
| `digest(text)` | the first 12 hex digits of the text's sha256 |
| `pairs(list, list)` | `[a, b]` for each place of two lists of the same length; `[a, null]` where the second is null |
| `entries(object)` | its `{key, value}` in a list |
| `numbered(list)` | `{index, value}` of its elements, from 1 |
| `rows(object)` | an object of lists of the same length as a list of objects |
| `minus(a, b)` | a difference of two numbers |
| `time_ms(text)` | an ISO 8601 time in milliseconds since 1970; without a zone it is UTC |
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

from jmespath import functions

from ragpipe.core import strict_json
from ragpipe.core.digest import sha256
from ragpipe.datasets.printed_values import NotPrinted, printed_value
from ragpipe.schema.sample import UNREADABLE, is_unreadable

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_ANY: dict[str, list[str]] = {"types": []}


class BadExpression(ValueError):
    """The expression cannot be compiled, or not applied to a record. `fix` is what to write instead, where that is known."""

    def __init__(self, text: str, fix: str = ""):
        super().__init__(text)
        self.fix = fix


def _nullable(*types: str) -> dict[str, list[str]]:
    return {"types": [*types, "null"]}


class ExpressionFunctions(functions.Functions):  # type: ignore[misc]
    """JMESPath's own functions and those of the table above."""

    @functions.signature(_nullable("string"))  # type: ignore[untyped-decorator]
    def _func_parse_json(self, text: str | None) -> Any:
        return None if text is None else _json(text)

    @functions.signature(_nullable("string"))  # type: ignore[untyped-decorator]
    def _func_parse_python(self, text: str | None) -> Any:
        return None if text is None else python_literal(text)

    @functions.signature(_ANY)  # type: ignore[untyped-decorator]
    def _func_to_string(self, value: Any) -> str | None:
        """JMESPath's own makes the text `null` of null: an id that is missing would be one."""
        return None if value is None else str(super()._func_to_string(value))

    @functions.signature(_ANY)  # type: ignore[untyped-decorator]
    def _func_parse(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if not value.strip():
            return None
        try:
            return strict_json.strict_loads(value)
        except strict_json.InvalidJson:
            return python_literal(value)

    @functions.signature(_ANY)  # type: ignore[untyped-decorator]
    def _func_json_or_text(self, value: Any) -> Any:
        return json_or_text(value)

    @functions.signature(_nullable("string"), {"types": ["string"]})  # type: ignore[untyped-decorator]
    def _func_split(self, text: str | None, separator: str) -> list[str] | None:
        if text is None:
            return None
        return text.split(separator) if separator else list(text)

    @functions.signature(_nullable("string", "number"))  # type: ignore[untyped-decorator]
    def _func_number(self, value: Any) -> float | int | None:
        return finite_number(value)

    @functions.signature(_ANY)  # type: ignore[untyped-decorator]
    def _func_verdict(self, value: Any) -> Any:
        return verdict(value)

    @functions.signature(_nullable("object"), {"types": ["array-string"]})  # type: ignore[untyped-decorator]
    def _func_without(self, value: dict[str, Any] | None, names: list[str]) -> dict[str, Any] | None:
        return None if value is None else {name: item for name, item in value.items() if name not in names}

    @functions.signature(_nullable("object"), {"types": ["string"]})  # type: ignore[untyped-decorator]
    def _func_prefixed(self, value: dict[str, Any] | None, prefix: str) -> dict[str, Any] | None:
        if value is None:
            return None
        return {name.removeprefix(prefix): item for name, item in value.items() if name.startswith(prefix)}

    @functions.signature(_nullable("object"), {"types": ["string"]})  # type: ignore[untyped-decorator]
    def _func_suffixed(self, value: dict[str, Any] | None, suffix: str) -> dict[str, Any] | None:
        if value is None:
            return None
        return {name.removesuffix(suffix): item for name, item in value.items() if name.endswith(suffix)}

    @functions.signature(_nullable("array"), {"types": ["expref"]}, {"types": ["expref"]})  # type: ignore[untyped-decorator]
    def _func_collect(self, items: list[Any] | None, key: Any, value: Any) -> dict[str, Any] | None:
        if items is None:
            return None
        values: dict[str, list[Any]] = {}
        for item in items:
            name = key.visit(key.expression, item)
            if not isinstance(name, str):
                raise BadExpression(f"collect: a key must be a text, found {name!r:.60}")
            values.setdefault(name, []).append(value.visit(value.expression, item))
        return {name: several[0] if len(several) == 1 else several for name, several in values.items()}

    @functions.signature(_nullable("string"))  # type: ignore[untyped-decorator]
    def _func_digest(self, text: str | None) -> str | None:
        return None if text is None else sha256(text)[:12]

    @functions.signature(_nullable("array"), _nullable("array"))  # type: ignore[untyped-decorator]
    def _func_pairs(self, left: list[Any] | None, right: list[Any] | None) -> list[list[Any]] | None:
        if left is None:
            return None
        if right is not None and len(left) != len(right):
            raise BadExpression(f"pairs: lists of {len(left)} and {len(right)} elements")
        return [list(pair) for pair in zip(left, right or [None] * len(left), strict=True)]

    @functions.signature(_nullable("object"))  # type: ignore[untyped-decorator]
    def _func_entries(self, value: dict[str, Any] | None) -> list[dict[str, Any]] | None:
        return None if value is None else [{"key": key, "value": item} for key, item in value.items()]

    @functions.signature(_nullable("array"))  # type: ignore[untyped-decorator]
    def _func_numbered(self, items: list[Any] | None) -> list[dict[str, Any]] | None:
        return None if items is None else [{"index": index, "value": item} for index, item in enumerate(items, 1)]

    @functions.signature(_nullable("object"))  # type: ignore[untyped-decorator]
    def _func_rows(self, value: dict[str, Any] | None) -> list[dict[str, Any]] | None:
        if value is None:
            return None
        lengths = {len(column) if isinstance(column, list) else -1 for column in value.values()}
        if -1 in lengths or len(lengths) > 1:
            raise BadExpression("rows: it takes an object of lists of the same length")
        return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]

    @functions.signature(_nullable("number"), _nullable("number"))  # type: ignore[untyped-decorator]
    def _func_minus(self, left: float | None, right: float | None) -> float | None:
        return None if left is None or right is None else left - right

    @functions.signature(_nullable("string"))  # type: ignore[untyped-decorator]
    def _func_time_ms(self, text: str | None) -> float | None:
        return None if text is None or not text.strip() else time_ms(text)


def finite_number(value: Any) -> float | int | None:
    """A number, also of a text. Null, a blank text and `nan` are None. Raises BadExpression for anything else."""
    if not isinstance(value, str):
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise BadExpression(f"number: {value!r:.60} is no number")
    parsed = _number_of(value.strip())
    if isinstance(parsed, str):
        raise BadExpression(f"number: {value!r:.60} is no number")
    return parsed


def verdict(value: Any) -> Any:
    """A recorded verdict: a number, true or false (also of a text); None for a blank text and `nan`; any other text is
    `{"unreadable": text}`. Of a list or an object each value. An unreadable verdict stays what it is."""
    if isinstance(value, list):
        return [verdict(item) for item in value]
    if isinstance(value, dict):
        return value if is_unreadable(value) else {name: verdict(item) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    parsed = _number_of(text)
    return {UNREADABLE: parsed} if isinstance(parsed, str) else parsed


def time_ms(text: str) -> float:
    """An ISO 8601 time in milliseconds since 1970, to the microsecond; without a zone it is UTC. Raises BadExpression."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise BadExpression(f"time_ms: {' '.join(str(error).split())[:100]}") from None
    whole = time if time.tzinfo else time.replace(tzinfo=UTC)
    return round(whole.timestamp() * 1_000_000) / 1000


def python_literal(text: str) -> Any:
    """The value of a list or an object as Python prints it: `printed_value`. Raises BadExpression."""
    try:
        return printed_value(text)
    except NotPrinted as error:
        raise BadExpression(f"parse_python: {error}", error.fix) from None


def json_or_text(value: Any) -> Any:
    """Of a text that is a JSON object or list that value; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return strict_json.strict_loads(value)
        except strict_json.InvalidJson:
            return value
    return value


def _json(text: str) -> Any:
    try:
        return strict_json.strict_loads(text)
    except strict_json.InvalidJson as error:
        raise BadExpression(f"parse_json: {error}") from None


def _number_of(text: str) -> float | int | str | None:
    """None for a blank text and `nan`, the text itself where it is no finite number."""
    if not text or text.lower() == "nan":
        return None
    if not _NUMBER.fullmatch(text) or len(text) > 300:
        return text
    if text.lstrip("+-").isdigit():
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else text
