"""A connection to a SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ragpipe.store.calls.call_rows import DamagedRow, fetched


class SqliteConnection(sqlite3.Connection):
    """As `StoreConnection`."""

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        yield from self.execute(statement, values)

    def scan(
        self, table: str, columns: Sequence[str], where: str = "TRUE", values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...] | None]:
        """Row by row: a text that is not UTF-8 would end a query over all of them."""
        row_of = f"SELECT {', '.join(columns)} FROM {table} WHERE rowid = ?"
        for (number,) in self.execute(f"SELECT rowid FROM {table} WHERE {where} ORDER BY rowid", values):
            try:
                yield fetched(self, row_of, (number,))
            except DamagedRow:
                yield None

    def keep_keys(self, keys: Iterable[bytes]) -> None:
        self.execute("CREATE TEMP TABLE used (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self.executemany("INSERT OR IGNORE INTO used VALUES (?)", ((key,) for key in keys))
