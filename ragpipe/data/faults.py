"""All faults of a data set, gathered while it is read and raised as one error, equal ones as one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.text import escape_unprintable, shorten

_GIVE_UP = 1000
_WIDTH = 70
_PLACES = 3
_VALUES = 3
_VARYING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+")
_POSITION = re.compile(r"\[\d+\]")
_VALUE_TYPE = re.compile(r"^(a boolean|a number|a text|a list|an object): ")


class Faults:
    """Collects problems; `raise_all` raises one DataError with every one of them, equal ones of several records as one.

    `problems` has every single fault, in the order in which they were found. After 1,000 it raises at once: such a file is of
    another kind, and its problems must not fill the memory. `remark` is asked once, when the error is raised: what it returns
    ends the title.
    """

    def __init__(self, title: str, remark: Callable[[], str] = lambda: ""):
        self.title = title
        self.problems: list[Problem] = []
        self._remark = remark

    def __bool__(self) -> bool:
        return bool(self.problems)

    def add(self, where: str, key: str, actual: str, expected: str, fix: str = "") -> None:
        """Add a fault: file and line, the field, what was found there and what was expected, how to fix it. Raises DataError with all
        of them where there are enough."""
        where, key, actual, expected, fix = (escape_unprintable(text) for text in (where, key, actual, expected, fix))
        self.problems.append(Problem(where, key, actual, expected, fix))
        if len(self.problems) >= _GIVE_UP:
            self.raise_all()

    def raise_all(self) -> None:
        """Raises DataError when there are problems."""
        stopped = f"; reading stopped at fault {_GIVE_UP:,}" if len(self.problems) >= _GIVE_UP else ""
        if self.problems:
            raise DataError(self.title + stopped + self._remark(), grouped(self.problems))


def grouped(problems: Sequence[Problem]) -> list[Problem]:
    """The problems with each kind once, in the order of the first places.

    Of one kind are faults of the same field (whatever the position in a list) that found the same type of value, or the same
    sentence but for quoted parts and numbers, and that expect and advise the same. Faults of a single record stay apart. Up to
    three different values stand in `found`.
    """
    kinds: dict[tuple[str, ...], list[int]] = {}
    for position, problem in enumerate(problems):
        kinds.setdefault(_kind(problem), []).append(position)
    placed: dict[int, Problem] = {}
    for positions in kinds.values():
        places = list(dict.fromkeys(problems[position].where for position in positions))
        if len(places) == 1:
            placed |= {position: problems[position] for position in positions}
        else:
            placed[positions[0]] = _merged([problems[position] for position in positions], places)
    return [placed[position] for position in sorted(placed)]


def _kind(problem: Problem) -> tuple[str, ...]:
    value_type = _VALUE_TYPE.match(problem.found)
    found = value_type[1] if value_type else problem.found
    return _POSITION.sub("[]", problem.key), *(_VARYING.sub("#", text) for text in (found, problem.expected, problem.fix))


def _merged(members: Sequence[Problem], places: Sequence[str]) -> Problem:
    values = list(dict.fromkeys(problem.found for problem in members))
    kept = [values[0], *(_VALUE_TYPE.sub("", value) for value in values[1:_VALUES])]
    left = f" ... ({len(values):,} different)" if len(values) > _VALUES else ""
    key = members[0].key if len({problem.key for problem in members}) == 1 else _POSITION.sub("[]", members[0].key)
    also = tuple(places[1:_PLACES])
    return replace(members[0], key=key, found="; ".join(kept) + left, records=len(places), also=also)


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
