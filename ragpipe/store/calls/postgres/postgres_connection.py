"""A connection to a store in PostgreSQL: `?` for values, and texts that PostgreSQL cannot hold.

PostgreSQL has no text with the character NUL. Such a text is stored with `\\x01` before `0`, and `\\x01` itself twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ragpipe.store.calls.postgres.postgres_errors import postgres_driver
from ragpipe.store.calls.store_place import PostgresPlace

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

_AT_ONCE = 2000  # rows that a query over a whole table brings at a time
_ORDER = {"calls": "created_at, key, failed_in", "payments": "at, mark, run, iteration, sum"}
_ESCAPED = re.compile("\x01(.)")
_SETTINGS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",  # ms: a network that swallows packets is noticed before this process counts as dead
    "application_name": "ragpipe",
}


class FetchedRows:
    """The rows of one statement."""

    def __init__(self, cursor: Cursor[Any]):
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        row = self._cursor.fetchone()
        return None if row is None else _row(row)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [_row(row) for row in self._cursor.fetchall()]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(_row, self._cursor)


class PostgresConnection:
    """As `StoreConnection`. `raw` is psycopg's own; each statement outside of `transaction` is one by itself."""

    def __init__(self, raw: Connection[Any]):
        self.raw = raw

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> FetchedRows:
        return FetchedRows(self.raw.execute(_statement(statement), _values(values), binary=True))

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        with self.raw.cursor() as cursor:
            cursor.executemany(_statement(statement), [_values(row) for row in rows])

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """In the transaction that is open, else in one of its own."""
        is_idle = self.raw.info.transaction_status == postgres_driver().pq.TransactionStatus.IDLE
        with (
            self.raw.transaction() if is_idle else nullcontext(),
            self.raw.cursor(name="ragpipe", binary=True) as cursor,
        ):
            cursor.itersize = _AT_ONCE
            cursor.execute(_statement(statement), _values(values))
            for row in cursor:
                yield _row(row)

    def scan(
        self, table: str, columns: Sequence[str], where: str = "TRUE", values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...] | None]:
        return self.stream(f"SELECT {', '.join(columns)} FROM {table} WHERE {where} ORDER BY {_ORDER[table]}", values)

    def keep_keys(self, keys: Iterable[bytes]) -> None:
        self.execute("CREATE TEMP TABLE used (key BYTEA PRIMARY KEY)")
        self.execute("INSERT INTO used SELECT DISTINCT unnest(?::bytea[])", (list(keys),))

    def transaction(self) -> AbstractContextManager[Any]:
        return self.raw.transaction()

    def close(self) -> None:
        self.raw.close()


def set_timeouts(db: PostgresConnection, frozen_s: float) -> None:
    """Let statements wait for locks as long as these are held: a timeout of the role or the database would end the wait for another
    process, which is no failure. A process that is frozen in a transaction would let all others wait for its locks: the server ends
    its session after so many seconds."""
    db.execute("SET statement_timeout = 0")
    db.execute("SET lock_timeout = 0")
    db.execute(f"SET idle_in_transaction_session_timeout = '{frozen_s:g}s'")


def connect(
    place: PostgresPlace, *, opened: Callable[[PostgresConnection], None] = lambda db: None
) -> PostgresConnection:
    """A new connection that works in the schema of the place; `opened` does what belongs to its start.

    Raises psycopg's errors where there is none.
    """
    psycopg = postgres_driver()
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    named = conninfo_to_dict(place.url)
    settings = {name: value for name, value in _SETTINGS.items() if name not in named}
    raw = psycopg.connect(make_conninfo(place.url, **settings), autocommit=True)
    db = PostgresConnection(raw)
    try:
        db.execute(f"SET search_path TO {place.quoted_schema}")
        opened(db)
    except BaseException:
        db.close()
        raise
    return db


@lru_cache(maxsize=512)
def _statement(statement: str) -> str:
    return statement.replace("?", "%s")


def _values(values: Sequence[Any]) -> list[Any]:
    return [_escaped(value) if type(value) is str else value for value in values]


def _row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    if any(type(cell) is str and "\x01" in cell for cell in row):
        return tuple(_unescaped(cell) if type(cell) is str else cell for cell in row)
    return row


def _escaped(text: str) -> str:
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x01\x01").replace("\x00", "\x010")
    return text


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\x00" if match[1] == "0" else match[1], text)
