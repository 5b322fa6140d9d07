"""All faults of a data set, gathered while it is read and raised as one error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.safe_text import escape_unprintable, shorten

_GIVE_UP = 1000
_WIDTH = 70


class Faults:
    """Collects problems; `raise_all` raises one DataError with every one of them.

    After 1,000 problems it raises at once: such a file is of another kind, and its problems must not fill the memory.
    """

    def __init__(self, title: str):
        self.title = title
        self.problems: list[Problem] = []

    def __bool__(self) -> bool:
        return bool(self.problems)

    def add(self, where: str, key: str, actual: str, expected: str, fix: str = "") -> None:
        """Add a fault. Raises DataError with all of them where there are enough.

        Args:
            where: file and line.
            key: the field.
            actual: what was found there.
            expected: what was expected.
            fix: how to fix it.
        """
        self.problems.append(Problem(*(escape_unprintable(text) for text in (where, key, actual, expected, fix))))
        if len(self.problems) >= _GIVE_UP:
            self.raise_all()

    def raise_all(self) -> None:
        """Raises DataError when there are problems."""
        if self.problems:
            raise DataError(self.title, self.problems)


def named_fields(where: str, fields: Mapping[str, Any]) -> str:
    """The place with the id of the record, where it has one."""
    name = fields.get("id")
    return f"{where} (id {str(name)[:_WIDTH]!r})" if isinstance(name, str | int) else where


def shown_value(value: Any) -> str:
    """A found value for a message: its JSON type and its beginning."""
    if value is None:
        return "null"
    kind = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    text = repr(value)
    return f"{kind.get(type(value), type(value).__name__)}: {shorten(text, _WIDTH)}"
