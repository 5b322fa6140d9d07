"""A call store in PostgreSQL: its address checked, its tables made, and opened to be used, to be read, and to be changed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from ragpipe.core.call import Call
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.version import FORMAT, __version__, format_mismatch
from ragpipe.extras.postgres.connection import (
    SCHEMA,
    PostgresConnection,
    PostgresLink,
    PostgresPlace,
    not_a_call_store,
    postgres_errors,
)
from ragpipe.extras.postgres.table import FIND, PostgresTable, living_owners
from ragpipe.store.call_rows import SHARED, DamagedRow, SharedValues, call_of, digest_of, key_bytes
from ragpipe.store.ledger import SILENT_AFTER_S
from ragpipe.store.owners import owner_state, refuse_if_in_use

_EXAMPLE = "postgresql://user@host:5432/database"
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_SECRET = re.compile(r"(?i)password|secret|token")
_SIZE = "SELECT COALESCE(SUM(pg_total_relation_size(format('%%I.%%I', schemaname, tablename)::regclass)), 0)::bigint FROM pg_tables WHERE schemaname = ?"
_AT_ONCE = 2000  # keys of one statement
_MAKING = 0x7261677069706500  # the lock under which tables are made
_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    *(
        f"CREATE TABLE {name} (id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        f"{', '.join(f'{column} TEXT' for column in columns)}, digest BYTEA NOT NULL UNIQUE)"
        for name, columns in SHARED.items()
    ),
    # the wide columns first: no room is lost between them. `failed_in` is 0 for a reply, else the number of the run
    """CREATE TABLE calls (
        created_at BIGINT, tokens_in BIGINT, tokens_out BIGINT, tokens_cached BIGINT, tokens_reasoning BIGINT,
        tokens_written BIGINT, paid_usd DOUBLE PRECISION, latency_ms DOUBLE PRECISION,
        run INTEGER NOT NULL, judge INTEGER NOT NULL, served INTEGER NOT NULL, failed_in INTEGER NOT NULL,
        iteration INTEGER NOT NULL, attempts INTEGER NOT NULL, answers INTEGER NOT NULL,
        key BYTEA NOT NULL, digest BYTEA NOT NULL, wire_hash BYTEA, messages BYTEA,
        status TEXT NOT NULL, finish_reason TEXT, message TEXT, text BYTEA
    )""",
    "CREATE UNIQUE INDEX calls_by_key ON calls (key, failed_in)",
    """CREATE TABLE payments (
        mark BIGINT NOT NULL, at BIGINT, tokens_in BIGINT, tokens_out BIGINT, tokens_cached BIGINT,
        tokens_reasoning BIGINT, tokens_written BIGINT, usd DOUBLE PRECISION,
        run INTEGER NOT NULL, model INTEGER NOT NULL, iteration INTEGER NOT NULL, sum INTEGER NOT NULL
    )""",
    # few distinct values: entries of equal runs share their room in the index
    "CREATE INDEX payments_by_run ON payments (run)",
    # changed several times a second: without an index on the time, and with room beside it, no index has to follow
    """CREATE TABLE owners (
        id TEXT PRIMARY KEY, host TEXT NOT NULL, pid BIGINT NOT NULL, mark TEXT NOT NULL, run_id TEXT NOT NULL,
        beat_at TIMESTAMPTZ NOT NULL
    ) WITH (fillfactor = 50)""",
    "CREATE TABLE claims (key BYTEA PRIMARY KEY, owner TEXT NOT NULL)",
)


def postgres_database(url: str) -> PostgresDatabase:
    """The database of an address, which may name a schema with `?schema=NAME`. Nothing is opened yet.

    The address is written into run folders and messages, so it can hold no password. Raises ValueError, with what was expected; no part
    of the address is in it.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(f"an address such as {_EXAMPLE}") from None
    named = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(named)
    if parts.password is not None or any(_SECRET.search(name) for name in options):
        source = "the password comes from PGPASSWORD, from ~/.pgpass or from a service of PGSERVICE"
        raise ValueError(f"an address without a password, {_EXAMPLE}: {source}")
    if not unquote(parts.path).strip("/") and "dbname" not in options and "service" not in options:
        raise ValueError(f"an address that names a database, {_EXAMPLE}")
    if sum(name == "schema" for name, _ in named) > 1:
        raise ValueError("one schema=NAME")
    if "schema" not in options and difflib.get_close_matches("schema", options, cutoff=0.75):
        raise ValueError("schema=NAME, in exactly these letters: an option of this URL is nearly spelt so")
    schema = options.get("schema", SCHEMA)
    if not _IDENTIFIER.match(schema):
        raise ValueError("schema=NAME of lower-case letters, digits and '_', at most 63")
    address = url.partition("?")[0]
    rest = urlencode([option for option in named if option[0] != "schema"], quote_via=quote)
    return PostgresDatabase(f"{address}?{rest}" if rest else address, schema)


class PostgresDatabase(PostgresPlace):
    """As `CallDatabase`."""

    def exists(self) -> bool:
        with closing(PostgresLink(self)) as link:
            return link.read(partial(has_tables, self))

    def check(self) -> None:
        self.exists()

    def make(self) -> str:
        with closing(PostgresLink(self)) as link:
            return "its tables were made" if make_tables(link) else "it has the tables of this format"

    def open_table(self, run_id: str, silent_after_s: float = SILENT_AFTER_S) -> PostgresTable:
        with closing(PostgresLink(self)) as link:
            if not link.read(partial(has_tables, self)):
                make_tables(link)
        return PostgresTable(self, run_id, silent_after_s)

    def reader(self) -> PostgresReader:
        return PostgresReader(self)

    @contextmanager
    def reading(self) -> Iterator[PostgresConnection]:
        with self._connected() as db, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield db

    @contextmanager
    def changing(self, *, silent_after_s: float = SILENT_AFTER_S) -> Iterator[PostgresConnection]:
        if not self.exists():
            self.make()
        with self._connected() as db:
            self._refuse_if_in_use(db, silent_after_s)
            yield db

    def transaction(self, db: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = db.transaction()
        return context

    def delete_calls(self, db: Any, where: str, values: list[Any], *, silent_after_s: float) -> None:
        with db.transaction():
            self._refuse_if_in_use(db, 0.0)
            db.execute(f"DELETE FROM calls WHERE {where}", values)
        db.execute("VACUUM calls")

    def claims(self, db: Any) -> dict[str, int]:
        counts = {"alive": 0, "dead": 0, "unknown": 0}
        states = {owner.id: "dead" if owner_state(owner) == "dead" else "alive" for owner in living_owners(db, SILENT_AFTER_S)}
        for owner, count in db.execute("SELECT owner, COUNT(*) FROM claims GROUP BY owner").fetchall():
            counts[states.get(owner, "dead")] += count
        return counts

    def size(self, db: Any) -> int:
        return int(db.execute(_SIZE, (self.schema,)).fetchone()[0])

    @contextmanager
    def _connected(self) -> Iterator[PostgresConnection]:
        with closing(PostgresLink(self)) as link:
            if not link.read(partial(has_tables, self)):
                fix = "set store.url=... to the store of some run, or `task=store action=migrate` to make an empty one"
                problem = Problem(str(self), f"schema {self.schema}", "no tables", "the call store of some run", fix)
                raise DataError("there is no call store", [problem])
            with postgres_errors(self):
                yield link.connection

    def _refuse_if_in_use(self, db: Any, silent_after_s: float) -> None:
        within = silent_after_s or SILENT_AFTER_S
        refuse_if_in_use(str(self), lambda: living_owners(db, within), silent_after_s=silent_after_s)


class PostgresReader:
    """As `StoredReader`. A schema without tables holds nothing."""

    def __init__(self, place: PostgresPlace):
        self.damaged: set[str] = set()
        self._link = PostgresLink(place, self._begin)
        self._is_made = self._link.read(partial(has_tables, place))

    def call(self, key: str, run_id: str | None) -> Call | None:
        return self.calls([key], run_id).get(key)

    def calls(self, keys: list[str], run_id: str | None) -> dict[str, Call]:
        calls: dict[str, Call] = {}
        for start in range(0, len(keys) if self._is_made else 0, _AT_ONCE):
            some = [key_bytes(key) for key in keys[start : start + _AT_ONCE]]
            calls |= self._link.read(partial(self._calls, keys=some, run_id=run_id))
        return calls

    def close(self) -> None:
        self._link.close()

    def _begin(self, db: PostgresConnection) -> None:
        self._shared = SharedValues(db)

    def _calls(self, db: PostgresConnection, keys: list[bytes], run_id: str | None) -> dict[str, Call]:
        calls = dict[str, Call]()
        for row in db.execute(FIND, (keys, None if run_id is None else digest_of((run_id,)))).fetchall():
            try:
                calls[row[0].hex()] = call_of(row[:-1], self._shared)
            except DamagedRow:
                self.damaged.add(row[0].hex())
        return calls


def has_tables(place: PostgresPlace, db: PostgresConnection) -> bool:
    """Whether the schema has the tables of this format; False where it has none. Other schemas, of other programs, are not looked at.

    Raises FormatMismatch for those of another format, DataError for another program's.
    """
    statement = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename IN ('calls', 'meta')"
    names = {row[0] for row in db.execute(statement)}
    if not names:
        return False
    if "meta" not in names:
        raise not_a_call_store(place, "a table `calls` of another program")
    row = db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
    if row is None or row[0] != str(FORMAT):
        fix = "use the ragpipe that made them, or another schema: store.url=postgresql://...?schema=NAME"
        title = "a call store of another format is not read, continued or changed"
        raise format_mismatch(title, str(place), row and row[0], None, fix)
    return True


def make_tables(link: PostgresLink) -> bool:
    """Make the tables; whether there were none. Several processes may do so at once: each waits for the one before it.

    Raises OutputError where the user may not make tables, DataError for another program's tables.
    """

    def work(db: PostgresConnection) -> bool:
        db.execute("SELECT pg_advisory_xact_lock(?)", (_MAKING,))
        if has_tables(link.place, db):
            return False
        schema = link.place.quoted_schema
        if db.execute("SELECT to_regnamespace(?) IS NULL", (schema,)).fetchone() == (True,):
            db.execute(f"CREATE SCHEMA {schema}")
        for statement in _TABLES:
            db.execute(statement)
        db.executemany("INSERT INTO meta VALUES (?, ?)", [("format", str(FORMAT)), ("ragpipe", __version__)])
        return True

    return link.run(work)
