"""Path expressions: JMESPath, compiled once, checked when the configuration is read.

Two functions are added to the standard ones: `parse_json(text)`, for a CSV cell that holds JSON, and `split(text, separator)`,
the list of the pieces between the separators (as in JMESPath Community).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import jmespath
from jmespath import exceptions, functions

from ragpipe.core import strict_json

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_FIRST_CHILD = {
    "subexpression",
    "index_expression",
    "pipe",
    "projection",
    "value_projection",
    "filter_projection",
    "flatten",
}
_NO_NAMES = {"literal", "current", "identity", "index", "slice", "expref"}


class BadExpression(ValueError):
    """The expression cannot be compiled, or not applied to a record."""


class _Functions(functions.Functions):  # type: ignore[misc]
    @functions.signature({"types": ["string"]})  # type: ignore[untyped-decorator]
    def _func_parse_json(self, text: str) -> Any:
        try:
            return strict_json.strict_loads(text)
        except strict_json.InvalidJson as error:
            raise BadExpression(f"parse_json: {error}") from None

    @functions.signature({"types": ["string"]}, {"types": ["string"]})  # type: ignore[untyped-decorator]
    def _func_split(self, text: str, separator: str) -> list[str]:
        return text.split(separator) if separator else list(text)


_OPTIONS = jmespath.Options(custom_functions=_Functions())


class Expression:
    """A compiled path expression: call it with a record to get the value, None where the path leads nowhere.

    `roots` are the names it looks up at the top of the record.
    Raises BadExpression when compiled (with the position) and when a function gets a value of a wrong type.
    """

    def __init__(self, text: str):
        self.text = text
        try:
            self._parsed = jmespath.compile(text)
        except exceptions.JMESPathError as error:
            raise BadExpression(_syntax(text, error)) from None
        _check_functions(text, self._parsed.parsed)
        self.roots = frozenset(_roots(self._parsed.parsed))
        self._find: Callable[[Any], Any] = _plain_path(text) if _PLAIN.fullmatch(text) else self._search

    def __call__(self, record: Any) -> Any:
        return self._find(record)

    def _search(self, record: Any) -> Any:
        try:
            return self._parsed.search(record, options=_OPTIONS)
        except exceptions.JMESPathError as error:
            raise BadExpression(" ".join(str(error).split())) from None
        except BadExpression:
            raise
        except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError) as error:
            # jmespath compares and slices without a check: `id > `3`` of a text, `x[0:5:0]`
            raise BadExpression(f"it cannot be applied here: {error}") from None


def _plain_path(text: str) -> Callable[[Any], Any]:
    """`a.b.c` without the interpreter: six times as fast, and most expressions are of this kind."""
    names = text.split(".")
    if len(names) == 1:
        return lambda record: record.get(text) if isinstance(record, dict) else None
    return lambda record: reduce(
        lambda value, name: value.get(name) if isinstance(value, dict) else None, names, record
    )


def _syntax(text: str, error: exceptions.JMESPathError) -> str:
    position = getattr(error, "lex_position", None)
    if isinstance(error, exceptions.EmptyExpressionError):
        return "the path expression is empty"
    if isinstance(error, exceptions.IncompleteExpressionError) or position is None or position >= len(text):
        return f"path expression {text!r}: it ends too early"
    return f"path expression {text!r}: {text[position]!r} does not fit at position {position + 1}"


def _check_functions(text: str, node: dict[str, Any]) -> None:
    known = _Functions.FUNCTION_TABLE
    if node["type"] == "function_expression" and node["value"] not in known:
        raise BadExpression(
            f"path expression {text!r}: no function {node['value']!r}; there are {', '.join(sorted(known))}"
        )
    for child in node["children"]:
        if isinstance(child, dict):
            _check_functions(text, child)


def _roots(node: dict[str, Any]) -> set[str]:
    kind = node["type"]
    if kind == "field":
        return {str(node["value"])}
    if kind in _NO_NAMES:
        return set()
    children = [child for child in node["children"] if isinstance(child, dict)]
    return set().union(*(_roots(child) for child in (children[:1] if kind in _FIRST_CHILD else children)))
