"""Path expressions: JMESPath, compiled once, checked when the configuration is read.

The functions that are added to the standard ones are those of `expression_functions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jmespath
from jmespath import exceptions

from ragpipe.datasets.expression_functions import BadExpression, ExpressionFunctions

__all__ = ["BadExpression", "Expression"]

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
_SYNTAX = re.compile(r"""["'`\[\]{}()|&=<>!@,]|^\s*$""")
"""Signs by which a text is meant as an expression, not as the name of a column."""

_OPTIONS = jmespath.Options(custom_functions=ExpressionFunctions())


class Expression:
    """A compiled path expression: call it with a record to get the value, None where the path leads nowhere.

    `roots` are the names it looks up at the top of the record. `plain` is the function of a path of names only (`a.b.c`), which fits
    every record and never raises; None for any other expression.
    Raises BadExpression when compiled (with the position) and when a function gets a value of a wrong type.
    """

    def __init__(self, text: str):
        self.text = text
        try:
            self._parsed = jmespath.compile(text)
        except exceptions.JMESPathError as error:
            raise BadExpression(_syntax(text, error), _quoted_name(text)) from None
        _check_functions(text, self._parsed.parsed)
        self.roots = frozenset(_roots(self._parsed.parsed))
        self.plain: Callable[[Any], Any] | None = _plain_path(text) if _PLAIN.fullmatch(text) else None
        self._find = self.plain or self._search

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

    def find(record: Any) -> Any:
        for name in names:
            if not isinstance(record, dict):
                return None
            record = record.get(name)
        return record

    return find


def _syntax(text: str, error: exceptions.JMESPathError) -> str:
    position = getattr(error, "lex_position", None)
    if isinstance(error, exceptions.EmptyExpressionError):
        return "the path expression is empty"
    if isinstance(error, exceptions.IncompleteExpressionError) or position is None or position >= len(text):
        return f"path expression {text!r}: it ends too early"
    return f"path expression {text!r}: {text[position]!r} does not fit at position {position + 1}"


def _quoted_name(text: str) -> str:
    """How a name with blanks or signs in it is written, where the text can be one; else empty."""
    if _SYNTAX.search(text):
        return ""
    return f"a name with blanks or signs in it stands in double quotes; in YAML with single quotes around: '\"{text}\"'"


def _check_functions(text: str, node: dict[str, Any]) -> None:
    known = ExpressionFunctions.FUNCTION_TABLE
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
