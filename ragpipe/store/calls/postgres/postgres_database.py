"""A call store in PostgreSQL: opened to be used, to be read, and to be changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ragpipe.schema.call import Call
from ragpipe.store.calls.call_rows import DamagedRow, SharedValues, call_of, digest_of, key_bytes
from ragpipe.store.calls.open_table import SILENT_AFTER_S, OpenedFor
from ragpipe.store.calls.owners import owner_state, refuse_if_in_use
from ragpipe.store.calls.postgres.postgres_connection import PostgresConnection
from ragpipe.store.calls.postgres.postgres_errors import postgres_errors
from ragpipe.store.calls.postgres.postgres_link import PostgresLink
from ragpipe.store.calls.postgres.postgres_owners import living_owners
from ragpipe.store.calls.postgres.postgres_schema import check_tables, make_tables, no_tables
from ragpipe.store.calls.postgres.postgres_table import FIND, PostgresTable
from ragpipe.store.calls.store_place import PostgresPlace

_SIZE = "SELECT COALESCE(SUM(pg_total_relation_size(format('%%I.%%I', schemaname, tablename)::regclass)), 0)::bigint FROM pg_tables WHERE schemaname = ?"
_AT_ONCE = 2000  # keys of one statement


class PostgresDatabase:
    """As `CallDatabase`."""

    def __init__(self, place: PostgresPlace):
        self.place = place

    def __str__(self) -> str:
        return str(self.place)

    @property
    def setting(self) -> str:
        return self.place.setting

    def exists(self) -> bool:
        link = PostgresLink(self.place)
        try:
            return link.read(self._has_tables)
        finally:
            link.close()

    def check(self) -> None:
        self.exists()

    def make(self) -> str:
        link = PostgresLink(self.place)
        try:
            done = make_tables(link)
        finally:
            link.close()
        self.check()
        return "its tables were made or brought up to date" if done else "it has the tables of this format"

    def open_table(self, opened: OpenedFor) -> PostgresTable:
        link = PostgresLink(
            self.place,
            tell=opened.tell,
            patience_s=opened.patience_s,
            hurry=opened.hurry,
            is_known=opened.is_known,
        )
        try:
            if not link.read(self._has_tables):
                make_tables(link)
                link.read(self._has_tables)
        finally:
            link.close()
        return PostgresTable(self.place, opened)

    def reader(self) -> PostgresReader:
        return PostgresReader(self.place)

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

    def _has_tables(self, db: PostgresConnection) -> bool:
        return check_tables(self.place, db)

    @contextmanager
    def transaction(self, db: Any) -> Iterator[None]:
        with db.transaction():
            yield

    def delete_calls(self, db: Any, where: str, values: list[Any], *, silent_after_s: float) -> None:
        with db.transaction():
            self._refuse_if_in_use(db, 0.0)
            db.execute(f"DELETE FROM calls WHERE {where}", values)
        db.execute("VACUUM calls")

    def claims(self, db: Any) -> dict[str, int]:
        counts = {"alive": 0, "dead": 0, "unknown": 0}
        states = {
            owner.id: "dead" if owner_state(owner) == "dead" else "alive" for owner in living_owners(db, SILENT_AFTER_S)
        }
        for owner, count in db.execute("SELECT owner, COUNT(*) FROM claims GROUP BY owner").fetchall():
            counts[states.get(owner, "dead")] += count
        return counts

    def size(self, db: Any) -> int:
        return int(db.execute(_SIZE, (self.place.schema,)).fetchone()[0])

    @contextmanager
    def _connected(self) -> Iterator[PostgresConnection]:
        link = PostgresLink(self.place)
        try:
            if not link.read(self._has_tables):
                raise no_tables(self.place)
            with postgres_errors(self.place):
                yield link.connection
        finally:
            link.close()

    def _refuse_if_in_use(self, db: Any, silent_after_s: float) -> None:
        within = silent_after_s or SILENT_AFTER_S
        refuse_if_in_use(str(self.place), lambda: living_owners(db, within), silent_after_s=silent_after_s)


class PostgresReader:
    """As `StoredReader`. A schema without tables holds nothing."""

    def __init__(self, place: PostgresPlace):
        self.damaged: set[str] = set()
        self._link = PostgresLink(place, opened=self._begin)
        self._is_made = self._link.read(lambda db: check_tables(place, db))

    def call(self, key: str, run_id: str | None) -> Call | None:
        return self.calls([key], run_id).get(key)

    def calls(self, keys: list[str], run_id: str | None) -> dict[str, Call]:
        calls: dict[str, Call] = {}
        for start in range(0, len(keys) if self._is_made else 0, _AT_ONCE):
            some = [key_bytes(key) for key in keys[start : start + _AT_ONCE]]
            calls |= self._link.read(lambda db, some=some: self._calls(db, some, run_id))  # type: ignore[misc]
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
