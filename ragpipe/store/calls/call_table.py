"""The SQLite side of the call store: each method is one transaction.

`calls` holds one row per key and run for permanent failures, and exactly one row per key once a reply is `ok`; `payments`
is the ledger. `claims` says which open store has claimed a key, `owners` which process has opened that store, with a `beat`
that it increments while it is open. A beat is watched, not compared with a clock: clocks of two hosts differ, and jump.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from ragpipe.schema.call import Call
from ragpipe.store.calls.call_rows import (
    COLUMNS,
    DamagedRow,
    PackedCall,
    SharedValues,
    call_of,
    digest_of,
    every_call,
    fetched,
    key_bytes,
    store,
    stored_keys,
)
from ragpipe.store.calls.call_schema import (
    BUSY_S,
    SqliteConnection,
    check_store_tables,
    create_tables,
    publish_new,
    set_journal,
    sqlite_errors,
    transaction,
)
from ragpipe.store.calls.ledger_rows import PaymentEntry, add_payments, payment_entries
from ragpipe.store.calls.open_table import StoreLost
from ragpipe.store.calls.owners import Owners
from ragpipe.store.calls.store_connection import StoreConnection
from ragpipe.store.calls.store_requests import FIRST_POLL_S, ClaimResult, Freshness, Lookup
from ragpipe.store.run.run_folder import check_store

_NAMES = ", ".join(COLUMNS)
_FIND = f"SELECT {_NAMES} FROM calls WHERE key = ? AND failed_in IN (0, ?)"  # one row: `ok` ends the others
_FIND_OF_RUN = f"SELECT {_NAMES} FROM calls WHERE key = ? AND failed_in IN (0, (SELECT id FROM runs WHERE digest = ?))"


class StoreFileGone(StoreLost):
    """The file at the store's path is no longer the one that was opened."""


class CallTable:
    """One connection to the store's file, used by one thread. Every method is one transaction.

    `silent_after_s` is how long the beat of an owner may stay the same before its claims are taken over; an owner on this
    host whose process has ended is dead at once, a stopped one is alive. `damaged` are the keys of damaged rows, which
    count as missing. Raises OutputError when the file cannot be used, DataError when it is no store,
    FormatMismatch when it is one of another format.
    """

    def __init__(self, path: Path, *, run_id: str, silent_after_s: float = 30.0):
        self.path, self.run_id = path, run_id
        self.notices: list[str] = []
        self.first_poll_s, self.listens = FIRST_POLL_S, False
        self.damaged: set[str] = set()
        self._changed, self._stored_here = False, 0
        check_store(path)
        with sqlite_errors(path):
            if not path.exists():
                publish_new(path)
            self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, factory=SqliteConnection)
        self._shared = SharedValues(self._db)
        self.owners = Owners(self._db, run_id=run_id, silent_after_s=silent_after_s)
        try:
            with sqlite_errors(path):
                self._prepare()
            self._file = _identity(path)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        check_store_tables(self.path, self._db, new_is_fine=True)
        create_tables(self._db)
        if set_journal(self._db, self.path.parent) == "wal":
            # A killed process loses nothing; a power cut loses what came after the last `sync`.
            self._db.execute("PRAGMA synchronous=NORMAL")
        else:
            self._db.execute("PRAGMA synchronous=FULL")
            self.notices.append(
                f"{self.path}: this file system has no write-ahead log, a rollback journal is used (slower). "
                "Set `store.path` to a local disk to fix it."
            )
        self._db.execute("PRAGMA cache_size=-32768")  # KiB; keys are hashes, so look-ups jump all over the file
        check_store_tables(self.path, self._db, new_is_fine=False)
        last = "SELECT COALESCE((SELECT MAX(rowid) FROM calls), 0), COALESCE((SELECT MAX(rowid) FROM payments), 0)"
        self._first: tuple[int, int] = self._db.execute(last).fetchone()
        with self._transaction():
            self.owners.enter()

    def find(self, lookups: Sequence[Lookup]) -> list[Call | None]:
        """The stored call for each look-up, None where there is none. One consistent read, no write."""
        with sqlite_errors(self.path):
            self._db.execute("BEGIN")
            try:
                return self._look_up(lookups)
            finally:
                self._db.execute("ROLLBACK")

    def find_or_claim(self, lookups: Sequence[Lookup]) -> list[Call | ClaimResult]:
        """The stored call for each look-up, or what came of claiming its key."""
        with self._transaction():
            calls = self._look_up(lookups)
            missing = [key_bytes(lookup.key) for lookup, call in zip(lookups, calls, strict=True) if call is None]
            granted = iter(self.owners.claim(missing))
            return [call or (ClaimResult.GRANTED if next(granted) else ClaimResult.HELD) for call in calls]

    def holder(self, key: str) -> str:
        """The owner of the claim on a key, in words; empty where there is none, or it is this store."""
        with sqlite_errors(self.path):
            owner = self.owners.holder(key_bytes(key))
            return str(owner) if owner is not None and owner.id != self.owners.me and not owner.closed else ""

    def write(
        self, puts: Sequence[PackedCall], released: Iterable[str] = (), paid: Sequence[PaymentEntry] = ()
    ) -> list[Call | None]:
        """Store calls, free this store's claims on their keys and on `released`, and add `paid` to the ledger.

        One result per call: None when it was stored, else the reply that another process stored after taking the claim
        over.
        """
        with self._transaction():
            add_payments(self._db, self._shared, paid)
            results = [self._put(call) for call in puts]
            for key in released:
                self.owners.release(key_bytes(key))
        self._changed = True
        self._stored_here += len(puts)
        return results

    def freed(self) -> set[str]:
        """None: SQLite tells nobody."""
        return set()

    def beat(self) -> None:
        """Show other processes that this store is open."""
        with self._transaction():
            self.owners.beat()

    def sync(self) -> None:
        """Bring committed replies to the disk (against a power cut), without waiting for readers.

        Raises StoreFileGone when the file was deleted or replaced.
        """
        self._check_same_file()
        if self._changed:
            with sqlite_errors(self.path):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._changed = False

    def close(self) -> None:
        """Free what this store claimed and close the connection. Raises OutputError when that cannot be written."""
        try:
            with self._transaction():
                self.owners.leave()
        finally:
            self.owners.closed()
            self._db.close()

    def stored_here(self) -> tuple[list[Call], list[PaymentEntry]]:
        """The calls and payments of this run since the file was opened. They can be read even when it was deleted."""
        with sqlite_errors(self.path):
            run = self._shared.known("runs", (self.run_id,))
            calls = [*every_call(self._db, "rowid > ? AND run = ?", (self._first[0], run))]
            paid = [*payment_entries(self._db, self._shared, run_id=self.run_id, after=self._first[1])]
        return [call for call in calls if call], [entry for entry in paid if entry]

    def _check_same_file(self) -> None:
        now = _identity(self.path)
        if now == self._file and _begins_as_a_database(self.path):
            return
        what = "deleted" if now is None else "overwritten" if now == self._file else "replaced by another file"
        raise StoreFileGone(
            f"the call store {self.path} was {what} while this start used it: {self._stored_here:,} replies of this "
            "start went into a file that is no more. To fix: leave the store where it is during a run, then start the "
            "same command again: what it finds in no store is asked again."
        )

    def _look_up(self, lookups: Sequence[Lookup]) -> list[Call | None]:
        """The stored call for each look-up. Most questions of a new run have none: those cost no statement of their own."""
        keys = [key_bytes(lookup.key) for lookup in lookups]
        stored = stored_keys(self._db, "calls", keys)
        return [
            self._looked_up(lookup, key) if key in stored else None for lookup, key in zip(lookups, keys, strict=True)
        ]

    def _looked_up(self, lookup: Lookup, key: bytes) -> Call | None:
        if lookup.freshness == Freshness.NONE:
            return None
        call = self._stored(key, failures=lookup.freshness.has_failures)
        return None if call is None or call == lookup.rejected or not lookup.freshness.accepts(call) else call

    def _stored(self, key: bytes, failures: bool) -> Call | None:
        run = self._shared.known("runs", (self.run_id,)) if failures else None
        try:
            row = fetched(self._db, _FIND, (key, run))
            return call_of(row, self._shared) if row else None
        except DamagedRow:
            self.damaged.add(key.hex())
            return None

    def _put(self, call: PackedCall) -> Call | None:
        """Store a call; the reply that stands instead, where another store was quicker."""
        ok = call.status == "ok"
        mine = self.owners.release(call.key)
        if not (mine and ok) and (stored := self._stored(call.key, failures=False)):
            return stored if ok else None
        if ok and not mine:
            self.owners.end_claim(call.key)
        store(self._db, self._shared, call)
        return None

    def _transaction(self) -> _Transaction:
        return _Transaction(self)


class _Transaction(transaction):
    """A transaction that, when it fails, drops the cached numbers of shared values."""

    def __init__(self, table: CallTable):
        super().__init__(table.path, table._db)
        self._shared = table._shared

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            super().__exit__(kind, error, trace)
        except BaseException:
            self._shared.forget()
            raise
        if error is not None:
            self._shared.forget()


class CallReader:
    """Reads calls over a connection that writes nothing. `damaged` are the keys of the damaged rows that it met."""

    def __init__(self, db: StoreConnection):
        self.damaged: set[str] = set()
        self._db, self._shared = db, SharedValues(db)
        self._has_tables = False  # once it has them, it keeps them

    def call(self, key: str, run_id: str | None) -> Call | None:
        """The call of this key that `run_id` may use; None where the file has none, or no tables."""
        self._has_tables = self._has_tables or (
            self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone() is not None
        )
        if not self._has_tables:
            return None
        run = None if run_id is None else digest_of((run_id,))
        try:
            row = fetched(self._db, _FIND_OF_RUN, (key_bytes(key), run))
            return call_of(row, self._shared) if row else None
        except DamagedRow:
            self.damaged.add(key)
            return None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _begins_as_a_database(path: Path) -> bool:
    """Whether the file still begins as SQLite's do: what SQLite has read already, it does not read again."""
    with open(path, "rb") as file:
        return file.read(16) == b"SQLite format 3\0"
