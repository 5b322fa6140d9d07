"""What the tables of a call store are read and written through, whichever database it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol


class ResultRows(Protocol):
    """The rows that a statement gave."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class StoreConnection(Protocol):
    """A connection to a store, for one thread. Statements have `?` for each value; bytes, texts, numbers and None are values."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> ResultRows: ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object: ...

    def stream(self, statement: str, values: Sequence[Any] = ...) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, never all of them in memory."""
        ...

    def scan(
        self, table: str, columns: Sequence[str], where: str = ..., values: Sequence[Any] = ...
    ) -> Iterator[tuple[Any, ...] | None]:
        """The rows of `calls` or `payments` that match, in the order of time; None for one that cannot be read."""
        ...

    def keep_keys(self, keys: Iterable[bytes]) -> None:
        """Make the table `used` of these keys, which only this connection sees."""
        ...

    def close(self) -> None: ...
