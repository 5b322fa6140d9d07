"""What the limits of several processes stand in: named rows of text, which one transaction locks, reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")

Texts = Mapping[str, str | None]
"""Rows by name: the text of each, None for a row that does not exist, or shall exist no more."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time by the clock of the rows, the same for all that have them open.

    `seconds` grows, as long as `clock` is the same; the wall clock of a database may be set back all the same, and then times that
    were written down are moved back as far. Where `clock` is another one (the host was started again), seconds that
    were written down earlier mean nothing.
    """

    seconds: float
    clock: str


class LimitRows(Protocol):
    """The rows as one process sees them. Of one thread: the one that opened them.

    `update` locks the rows of these names, calls `change` with their texts and the moment, writes the texts that it returns
    (rows that it leaves out stay as they are) and returns its result. All of it is one transaction, and may be repeated where a
    connection was lost: so `change` is called once or more, and has no effect but what it returns. Other processes see
    all of it or nothing, and wait meanwhile: `change` is quick. Whoever locks several rows does so in the order of their names.

    `sync` brings what was written to the disk, where a commit alone does not.

    Raises OutputError where rows cannot be read or written now, DataError where what stands there is no table of rows.
    """

    def update(self, names: Collection[str], change: Callable[[Texts, Moment], tuple[Texts, T]]) -> T: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...
