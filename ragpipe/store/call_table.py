"""The SQLite side of the call store: its tables, and what happens to them in one transaction.

Four tables beside `meta`: `calls` holds one row per key and run for permanent failures, and exactly one row per key once
a reply is `ok`; `replaced` holds what was paid for rows that went. `claims` says which store is asking for a key now, `owners` which process that store lives in, with a
`beat` that it raises while it lives. A beat is watched, not compared with a clock: clocks of two hosts differ, and jump.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from ragpipe import __version__
from ragpipe.schema.call import Call
from ragpipe.schema.format import FORMAT
from ragpipe.store.call_errors import BUSY_S, not_a_store, transaction, translated
from ragpipe.store.files import sync_folder, temporary_name
from ragpipe.store.format import check_store
from ragpipe.store.mounts import is_network_folder
from ragpipe.store.process import Process, is_alive, this_process
from ragpipe.store.replaced import TABLE as REPLACED
from ragpipe.store.replaced import keep_payment, keep_payments

_TYPES = {"int": "INTEGER", "float": "REAL"}
_JSON = ("sent", "fields")
_NAMES = tuple(field.name for field in fields(Call))
_JSON_PLACES = tuple(_NAMES.index(name) for name in _JSON)
_RUN_PLACE = _NAMES.index("run_id")
_VALUES = attrgetter(*_NAMES)
_COLUMNS = ", ".join(_NAMES)
_DEFINED = ", ".join(
    f"{field.name} {_TYPES.get(str(field.type).split(' ')[0], 'TEXT')}" for field in fields(Call)
)  # fmt: skip
_SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"CREATE TABLE calls ({_DEFINED}, PRIMARY KEY (key, run_id))",
    "CREATE TABLE owners (id TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, mark TEXT NOT NULL, "
    "beat INTEGER NOT NULL)",
    "CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID",
    REPLACED,
    f"INSERT INTO meta VALUES ('format', '{FORMAT}'), ('ragpipe', '{__version__}')",
    f"PRAGMA user_version = {FORMAT}",  # in the file's header, where it is read without opening the file
)
_FIND = f"SELECT {_COLUMNS} FROM calls WHERE key = ? AND (status = 'ok' OR run_id = ?)"  # one row: `ok` ends the others
_STORE = f"INSERT INTO calls ({_COLUMNS}) VALUES ({', '.join('?' * len(_NAMES))})"
_CLAIM = (
    "SELECT c.owner, o.host, o.pid, o.mark, o.beat FROM claims c LEFT JOIN owners o ON o.id = c.owner WHERE c.key = ?"
)

_CLOSED: set[str] = set()
"""Stores of this process that were closed: on a full disk their claims stay in the file, and mean nothing any more."""


class CallTable:
    """One connection to the store's file, used by one thread. Every method is one transaction.

    `silent_after_s` is how long the beat of an owner may stand still before its claims are taken over; an owner on this
    host whose process is gone is dead at once. Raises OutputError when the file cannot be used, DataError when it is no
    store, OtherFormat when it is one of another format.
    """

    def __init__(self, path: Path, *, run_id: str, silent_after_s: float = 30.0):
        self.path, self.run_id, self.silent_after_s = path, run_id, silent_after_s
        self.owner = uuid.uuid4().hex
        self.notices: list[str] = []
        self._seen: dict[str, tuple[int, float]] = {}  # owner -> its beat, and when it was first seen so
        self._changed = False
        check_store(path)
        with translated(path):
            if not path.exists():
                _publish_new(path)
            self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            with translated(path):
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        check_tables(self.path, self._db, new_is_fine=True)
        _create_tables(self._db)
        if _set_journal(self._db, self.path.parent) == "wal":
            # A killed process loses nothing so; a power cut loses what came after the last `sync`.
            self._db.execute("PRAGMA synchronous=NORMAL")
        else:
            self._db.execute("PRAGMA synchronous=FULL")
            self.notices.append(
                f"{self.path}: this file system has no write-ahead log, a rollback journal is used (slower). "
                "Set `store.path` to a local disk to mend it."
            )
        self._db.execute("PRAGMA cache_size=-32768")  # KiB; keys are hashes, so look-ups jump all over the file
        me = this_process()
        with self._transaction():
            self._forget_dead_owners()
            self._db.execute(
                "INSERT INTO owners VALUES (?, ?, ?, ?, 0)", (self.owner, me.host, me.pid, me.mark)
            )  # fmt: skip
        check_tables(self.path, self._db, new_is_fine=False)

    def find(self, wanted: Sequence[tuple[str, bool]]) -> list[Call | None]:
        """The stored call of each (key, failures_too) that this run may use. One consistent read, no write."""
        with translated(self.path):
            self._db.execute("BEGIN")
            try:
                return [self._stored(key, failures) for key, failures in wanted]
            finally:
                self._db.execute("ROLLBACK")

    def find_or_claim(self, wanted: Sequence[tuple[str, bool, bool]]) -> list[Call | bool]:
        """For each (key, failures_too, replies_too): the stored call, True once claimed, False while another asks."""
        with self._transaction():
            found: list[Call | bool] = []
            for key, failures, replies in wanted:
                call = self._stored(key, failures) if replies else None
                found.append(call if call else self._claim(key))
            return found

    def write(self, puts: Sequence[tuple[Any, ...]], released: Iterable[str]) -> list[Call | None]:
        """Store rows (as `row_of` makes them) and free this store's claims on their keys and on `released`.

        One entry a row: None when it was stored, else the reply that another process stored after taking the claim over.
        """
        with self._transaction():
            stands = [self._put(row) for row in puts]
            for key in released:
                self._release(key)
        self._changed = True
        return stands

    def beat(self) -> None:
        """Tell the others that this store is alive."""
        with self._transaction():
            self._db.execute("UPDATE owners SET beat = beat + 1 WHERE id = ?", (self.owner,))

    def sync(self) -> None:
        """Bring committed replies to the disk (against a power cut), without waiting for readers."""
        if self._changed:
            with translated(self.path):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._changed = False

    def close(self) -> None:
        """Free what this store claimed and close the connection. Raises OutputError when that cannot be written."""
        try:
            with self._transaction():
                self._db.execute("DELETE FROM claims WHERE owner = ?", (self.owner,))
                self._db.execute("DELETE FROM owners WHERE id = ?", (self.owner,))
        finally:
            _CLOSED.add(self.owner)
            self._db.close()

    def _stored(self, key: str, failures: bool) -> Call | None:
        row = self._db.execute(_FIND, (key, self.run_id if failures else None)).fetchone()
        return call_of(row) if row else None

    def _put(self, row: tuple[Any, ...]) -> Call | None:
        key, ok = row[0], row[3] == "ok"
        mine = self._release(key)
        if not (mine and ok) and (stored := self._stored(key, failures=False)):
            self._keep_payment(row)
            return stored if ok else None
        gone, values = ("key = ?", (key,)) if ok else ("key = ? AND run_id = ?", (key, row[_RUN_PLACE]))
        keep_payments(self._db, gone, values)
        self._db.execute(f"DELETE FROM calls WHERE {gone}", values)
        self._db.execute(_STORE, row)
        return None

    def _keep_payment(self, row: tuple[Any, ...]) -> None:
        call = call_of(row)
        sums = (
            1, call.attempts, call.tokens_in or 0, call.tokens_out or 0, call.tokens_cached or 0, call.cost_usd or 0.0,
            call.cost_usd is None, call.tokens_in is None,
        )  # fmt: skip
        keep_payment(self._db, call.run_id, call.fields.get("iteration", ""), sums)

    def _release(self, key: str) -> bool:
        """Free a claim; False when this store did not hold it (any more)."""
        return self._db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self.owner)).rowcount == 1

    def _claim(self, key: str) -> bool:
        row = self._db.execute(_CLAIM, (key,)).fetchone()
        if row and (row[0] == self.owner or not self._is_dead(*row)):
            return False
        self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?)", (key, self.owner))
        return True

    def _is_dead(self, owner: str, host: str | None, pid: int, mark: str, beat: int) -> bool:
        if host is None or owner in _CLOSED or is_alive(Process(host, pid, mark)) is False:
            return True
        now = time.monotonic()
        seen, since = self._seen.get(owner, (None, now))
        if seen != beat:
            since = now
        self._seen[owner] = (beat, since)
        return now - since > self.silent_after_s

    def _forget_dead_owners(self) -> None:
        for owner, host, pid, mark in self._db.execute("SELECT id, host, pid, mark FROM owners").fetchall():
            if is_alive(Process(host, pid, mark)) is False:
                self._db.execute("DELETE FROM claims WHERE owner = ?", (owner,))
                self._db.execute("DELETE FROM owners WHERE id = ?", (owner,))

    def _transaction(self) -> transaction:
        return transaction(self.path, self._db)


def _publish_new(path: Path) -> None:
    """A new store, whole from its first moment: made under another name, then linked to its own unless another process was
    quicker. Where the file system has no links it is made in its place."""
    temporary = temporary_name(path.parent)
    try:
        with closing(sqlite3.connect(temporary, isolation_level=None)) as db:
            _create_tables(db)
            _set_journal(db, path.parent)
        with suppress(OSError):
            os.link(temporary, path)
            sync_folder(path.parent)
    finally:
        for left in path.parent.glob(f"{temporary.name}*"):
            left.unlink(missing_ok=True)


def _create_tables(db: sqlite3.Connection) -> None:
    """The tables, where there are none. Still without a write-ahead log: the format number stands in the file itself."""
    empty = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_master)"
    if db.execute(empty).fetchone()[0]:
        db.execute("BEGIN IMMEDIATE")
        if db.execute(empty).fetchone()[0]:  # another process may have been quicker
            for statement in _SCHEMA:
                db.execute(statement)
        db.execute("COMMIT")


def _set_journal(db: sqlite3.Connection, folder: Path) -> str:
    """A write-ahead log where the file system can have one; the journal that the file has then."""
    wanted = "delete" if is_network_folder(folder) else "wal"
    return str(db.execute(f"PRAGMA journal_mode={wanted}").fetchone()[0]).lower()


def check_tables(path: Path, db: sqlite3.Connection, *, new_is_fine: bool) -> None:
    """Refuse a file that is no call store. Raises DataError. `new_is_fine`: an empty one passes, too."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables and new_is_fine:
        return
    if not {"meta", "calls", "owners", "claims", "replaced"} <= tables:
        raise not_a_store(path, f"an SQLite file with the tables {sorted(tables)}")


def select_calls(db: sqlite3.Connection, keys: Iterable[str], run_id: str | None) -> Iterator[tuple[Any, ...]]:
    """The rows that `run_id` may use, at most one a key; a file without tables has none."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone():
        return
    for key in keys:
        if row := db.execute(_FIND, (key, run_id)).fetchone():
            yield row


def row_of(call: Call, run_id: str) -> tuple[Any, ...]:
    """A call as a row, `run_id` filled in where the call names none.

    Raises ValueError for NaN in `sent` and for numbers that SQLite cannot hold.
    """
    values = [_cell(value) for value in _VALUES(call)]
    for place in _JSON_PLACES:
        values[place] = json.dumps(values[place], separators=(",", ":"), allow_nan=False)
    values[_RUN_PLACE] = call.run_id or run_id
    return tuple(values)


def _cell(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        # lone surrogates are no UTF-8
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if kind is int and not -(2**63) <= value < 2**63:
        raise ValueError(f"a call cannot hold {value}: more than 64 bits")
    return value


def as_stored(call: Call, row: tuple[Any, ...]) -> Call:
    """The call as reading its row gives it: the same object when nothing was replaced or filled in."""
    pairs = enumerate(zip(_VALUES(call), row, strict=True))
    return call if all(a == b for place, (a, b) in pairs if place not in _JSON_PLACES) else call_of(row)


def call_of(row: tuple[Any, ...]) -> Call:
    """A row of the table as a call."""
    values = list(row)
    for place in _JSON_PLACES:
        values[place] = json.loads(values[place])
    return Call(*values)
