"""A connection to a store in PostgreSQL: its transactions, its address, `?` for values, texts that PostgreSQL cannot hold, and its errors as ours.

PostgreSQL has no text with the character NUL. Such a text is stored with `\\x01` before `0`, and `\\x01` itself twice.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ragpipe.core.errors import ConfigError, DataError, OutputError, Problem, RagpipeError
from ragpipe.store.ledger import StoreLost

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

Result = TypeVar("Result")

INSTALL = "pip install 'psycopg[binary]>=3.2'"
SCHEMA = "ragpipe"
"""The schema of an address that names none."""
_AT_ONCE = 2000  # rows that a query over a whole table brings at a time
_ORDER = {"calls": "created_at, key, failed_in", "payments": "at, mark, run, iteration, sum"}
_SHOWN = 200  # characters of a cause
_REPEATS = 20  # of a transaction that others were in the way of
_ESCAPED = re.compile("\x01(.)")
_SETTINGS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",  # ms: a network that swallows packets is noticed before this process counts as dead
    "application_name": "ragpipe",
}
_AGAIN = frozenset({"40001", "40P01"})  # serialization failure, deadlock: the same transaction passes when repeated
_GONE = ("08", "57P")
"""Classes of SQLSTATE of a connection or a server that went away."""
_IDLE = "25P03"  # the process was stopped in a transaction for so long that the server ended its session
_READ_ONLY = "25006"
_RIGHTS = "42501"
_FULL = ("53100", "53200")
_TABLES = ("42P", "42703", "42804", "23")
"""Tables, columns or rows that are not as ragpipe makes them."""


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A schema of a PostgreSQL database.

    `url` is the address as libpq reads it, without a password and without the schema.
    """

    url: str
    schema: str = SCHEMA

    def __str__(self) -> str:
        return self.url if self.schema == SCHEMA else f"{self.url} (schema {self.schema})"

    @property
    def quoted_schema(self) -> str:
        """The schema as statements name it: it may be a word of SQL."""
        return '"' + self.schema.replace('"', '""') + '"'

    @property
    def setting(self) -> str:
        """The word of the command line that names this place."""
        separator = "&" if "?" in self.url else "?"
        return f"store.url={self.url}" + ("" if self.schema == SCHEMA else f"{separator}schema={self.schema}")


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
        with self.raw.transaction() if is_idle else nullcontext(), self.raw.cursor(name="ragpipe", binary=True) as cursor:
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


def connect(place: PostgresPlace, begin: Callable[[PostgresConnection], None] = lambda db: None) -> PostgresConnection:
    """A new connection that works in the schema of the place; `begin` does what belongs to its start.

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
        begin(db)
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
    return text.replace("\x01", "\x01\x01").replace("\x00", "\x010") if "\x00" in text or "\x01" in text else text


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\x00" if match[1] == "0" else match[1], text)


def postgres_driver() -> ModuleType:
    """psycopg. Raises ConfigError where it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        fix = f"{INSTALL}, or leave store.url out: the store is a SQLite file then"
        problem = Problem("store.url", "package", f"no psycopg ({error})", "the package of the extra `postgres`", fix)
        raise ConfigError("a call store on PostgreSQL needs an optional package", [problem]) from error
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # its warnings of a lost connection: said in our words
    return psycopg


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, or the server does not take one at the moment."""
    psycopg, state = postgres_driver(), getattr(error, "sqlstate", None)
    is_of_connection = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state == _IDLE or (is_of_connection and (state is None or state.startswith(_GONE)))


def cause_of(error: BaseException) -> str:
    """What PostgreSQL says, on one line."""
    return " ".join(str(error).split()).rstrip(".?") or type(error).__name__


@contextmanager
def postgres_errors(place: PostgresPlace) -> Iterator[None]:
    """Turns psycopg's errors into ours."""
    try:
        yield
    except postgres_driver().Error as error:
        raise postgres_error(place, error) from error


def postgres_error(place: PostgresPlace, error: BaseException) -> RagpipeError:
    """The error of ragpipe for one of psycopg's. Raise it `from` that one."""
    state = getattr(error, "sqlstate", None) or ""
    cause, fix = cause_of(error), "see the message of PostgreSQL"
    if state == _RIGHTS:
        fix = f"let this user read and write the tables of schema {place.schema} (docs/extras/postgres.md has the statements)"
    elif state == _READ_ONLY:
        fix = "name the server that takes writes (with several hosts in the address: target_session_attrs=read-write), or let this user write"
    elif state in _FULL:
        fix = "make room on the server and start again: stored replies are kept"
    elif state.startswith(_TABLES):
        return not_a_call_store(place, f"tables that are not those of a call store ({cause})")
    elif is_lost(error):
        fix = "check that the server runs and lets this user in (`psql` with the same address), then start again"
    return OutputError(f"cannot use the call store {place}: {cause}. To fix: {fix}.")


def not_a_call_store(place: PostgresPlace, content: str) -> DataError:
    """The error for a schema that has no call store in it."""
    fix = "name another schema: store.url=postgresql://...?schema=NAME. Nothing is ever replaced automatically"
    problem = Problem(str(place), f"schema {place.schema}", content, "a call store, or nothing", fix)
    return DataError("the call store cannot be read", [problem])


class StoreUnreachable(StoreLost):
    """The connection to the database was lost."""


class PostgresLink:
    """One connection, for one thread, which begins with `begin`. Raises OutputError where the database cannot be used.

    A connection that is lost is not made again: the run ends, what was paid for and not stored is kept in a file, and a new start goes on.
    """

    def __init__(self, place: PostgresPlace, begin: Callable[[PostgresConnection], None] = lambda db: None):
        self.place = place
        self._lost: StoreUnreachable | None = None
        with postgres_errors(place):
            self.connection = connect(place, begin)

    def read(self, work: Callable[[PostgresConnection], Result]) -> Result:
        """What `work` reads: statements that change nothing. Raises StoreUnreachable, OutputError and DataError for what the server
        refuses."""
        if self._lost is not None:
            raise self._lost
        try:
            return work(self.connection)
        except postgres_driver().Error as error:
            raise self._error(error) from error

    def run(self, work: Callable[[PostgresConnection], Result]) -> Result:
        """What `work` does in one transaction, which is repeated where others were in its way. Raises as `read`."""

        def transaction(db: PostgresConnection) -> Result:
            for repeats in range(_REPEATS + 1):
                try:
                    with db.transaction():
                        return work(db)
                except postgres_driver().Error as error:
                    if error.sqlstate not in _AGAIN or repeats == _REPEATS:
                        raise
                    time.sleep(random.random() * 0.05)
            raise AssertionError("unreachable")

        return self.read(transaction)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _error(self, error: Exception) -> Exception:
        """An error of the driver as ours; that of a lost connection is that of every later call too."""
        if not is_lost(error):
            return postgres_error(self.place, error)
        self._lost = StoreUnreachable(
            f"the connection to the call store {self.place} was lost: {cause_of(error)[:_SHOWN]}. Replies that were stored are kept. "
            "To fix: let the database run again, then start the same command: it asks only what was not stored."
        )
        return self._lost
