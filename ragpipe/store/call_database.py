"""Where a call store is, and what every database of one can do: a SQLite file, or what an extra opens by its address."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ragpipe.core import registry
from ragpipe.core.call import Call
from ragpipe.core.errors import DataError, Problem
from ragpipe.store.call_rows import DamagedRow, SharedValues, call_of, digest_of, fetched, key_bytes
from ragpipe.store.call_table import (
    FIND_OF_RUN,
    CallTable,
    SqliteConnection,
    check_store,
    check_store_tables,
    has_log,
    sqlite_errors,
    transaction,
)
from ragpipe.store.files import make_folders
from ragpipe.store.ledger import SILENT_AFTER_S
from ragpipe.store.owners import every_owner, owner_state, refuse_if_in_use

if TYPE_CHECKING:
    from ragpipe.store.call_rows import StoreConnection
    from ragpipe.store.ledger import OpenTable


class StoredReader(Protocol):
    """Reads calls without claims. `damaged` are the keys of the damaged rows that it met."""

    damaged: set[str]

    def call(self, key: str, run_id: str | None) -> Call | None:
        """The call of this key that `run_id` may use; None where there is none."""

    def calls(self, keys: list[str], run_id: str | None) -> dict[str, Call]:
        """Those of the keys that have a call."""

    def close(self) -> None: ...


class CallDatabase(Protocol):
    """The database of a call store. All raise OutputError where it cannot be used, DataError where it holds no call store, and
    FormatMismatch for one of another format."""

    @property
    def setting(self) -> str:
        """The word of the command line that names the store, empty for a file: its folder says where it is."""

    def exists(self) -> bool:
        """Whether there is something to read."""

    def check(self) -> None:
        """Raises FormatMismatch for a store of another format; nothing is changed or made."""

    def make(self) -> str:
        """Make a new store, or bring an older one to this format. Returns what was done, in words."""

    def open_table(self, run_id: str, silent_after_s: float = ...) -> OpenTable:
        """The store for a run whose failures count, made where there is none; after `silent_after_s` without a sign of life an owner is
        dead."""

    def reader(self) -> StoredReader:
        """The store to look calls up in."""

    def reading(self) -> AbstractContextManager[StoreConnection]:
        """One consistent view. Raises DataError where there is no store."""

    def changing(self, *, silent_after_s: float = ...) -> AbstractContextManager[StoreConnection]:
        """A store open to be changed, made where there is none. Raises FolderLocked while another process uses it."""

    def transaction(self, db: StoreConnection) -> AbstractContextManager[None]:
        """A transaction of a connection that `changing` gave."""

    def delete_calls(self, db: StoreConnection, where: str, values: list[Any], *, silent_after_s: float) -> None:
        """Delete the calls that match a condition in SQL, and give their room back. Raises FolderLocked."""

    def claims(self, db: StoreConnection) -> dict[str, int]:
        """The number of claimed keys by the state of their owners: `alive`, `dead`, or `unknown` (on another host)."""

    def size(self, db: StoreConnection) -> int:
        """Bytes on the disk, indexes included."""


StorePlace = Path | CallDatabase
"""A SQLite file, or a database."""


def store_place_of(url: str | None, path: str | None, output_dir: str) -> StorePlace:
    """The place of a store by its settings: what opens the address `url`, or the file `calls.sqlite` in the folder of `store_folder_of`.

    Raises ValueError for an address that nothing opens: what was expected, without a part of the address.
    """
    if url is None:
        return store_folder_of(path, output_dir) / "calls.sqlite"
    opens = registry.find("store", url.partition(":")[0])
    if opens is None:
        known = " or ".join(f"{name}://" for name in registry.names("store"))
        raise ValueError(f"an address that begins with {known}" if known else "null: no extra that opens a database is here")
    database: CallDatabase = opens(url)
    return database


def store_folder_of(path: str | None, output_dir: str) -> Path:
    """The folder of what stands beside a call store, on this machine: drift files, budgets, batches."""
    return Path(path or Path(output_dir) / ".store")


def call_database(place: StorePlace) -> CallDatabase:
    """The database of a place. Nothing is opened yet."""
    return SqliteDatabase(place) if isinstance(place, Path) else place


BATCH = 2000  # rows in one transaction: other processes wait only briefly for the lock


class SqliteDatabase:
    """As `CallDatabase`."""

    def __init__(self, path: Path):
        self.path = Path(path).absolute()

    def __str__(self) -> str:
        return str(self.path)

    @property
    def setting(self) -> str:
        return ""

    def exists(self) -> bool:
        return self.path.exists()

    def check(self) -> None:
        check_store(self.path)

    def make(self) -> str:
        self.open_table("").close()
        return "it has the tables of this format"

    def open_table(self, run_id: str, silent_after_s: float = SILENT_AFTER_S) -> CallTable:
        make_folders(self.path.parent)
        return CallTable(self.path, run_id=run_id, silent_after_s=silent_after_s)

    def reader(self) -> SqliteReader:
        return SqliteReader(self.path)

    @contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        if not self.path.is_file():
            fix = "set output_dir=... or store.path=..."
            problem = Problem(str(self.path), "file", "no such file", "the call store of some run", fix)
            raise DataError("there is no call store", [problem])
        with closing(open_to_read(self.path)) as db, sqlite_errors(self.path):
            db.execute("BEGIN")
            yield db

    @contextmanager
    def changing(self, *, silent_after_s: float = SILENT_AFTER_S) -> Iterator[SqliteConnection]:
        self.open_table("").close()
        with (
            sqlite_errors(self.path),
            closing(sqlite3.connect(self.path, timeout=20.0, isolation_level=None, factory=SqliteConnection)) as db,
        ):
            self._refuse_if_in_use(db, silent_after_s)
            yield db

    def transaction(self, db: Any) -> AbstractContextManager[None]:
        return transaction(self.path, db)

    def delete_calls(self, db: Any, where: str, values: list[Any], *, silent_after_s: float) -> None:
        while True:
            with self.transaction(db):
                self._refuse_if_in_use(db, 0.0)
                rows = [row[0] for row in db.execute(f"SELECT rowid FROM calls WHERE {where} LIMIT {BATCH}", values)]
                if rows:
                    db.execute(f"DELETE FROM calls WHERE rowid IN ({', '.join(map(str, rows))})")
            if len(rows) < BATCH:
                break
        db.execute("VACUUM")

    def claims(self, db: Any) -> dict[str, int]:
        counts = {"alive": 0, "dead": 0, "unknown": 0}
        states = {owner.id: owner_state(owner) for owner in every_owner(db)}
        for owner, count in db.execute("SELECT owner, COUNT(*) FROM claims GROUP BY owner").fetchall():
            counts[states.get(owner, "dead")] += count
        return counts

    def size(self, db: Any) -> int:
        log = self.path.with_name(self.path.name + "-wal")
        return sum(file.stat().st_size for file in (self.path, log) if file.exists())

    def _refuse_if_in_use(self, db: Any, silent_after_s: float) -> None:
        refuse_if_in_use(str(self.path), lambda: every_owner(db), silent_after_s=silent_after_s)


class SqliteReader:
    """As `StoredReader`. A missing file, and one without tables yet, holds nothing."""

    def __init__(self, path: Path):
        self._path = path
        self._db = open_to_read(path) if path.exists() else None
        self._shared = SharedValues(self._db) if self._db else None
        self._has_tables = False  # once it has them, it keeps them
        self.damaged: set[str] = set()

    def call(self, key: str, run_id: str | None) -> Call | None:
        if self._db is None or self._shared is None:
            return None
        with sqlite_errors(self._path):
            find_tables = "SELECT 1 FROM sqlite_master WHERE name = 'calls'"
            self._has_tables = self._has_tables or self._db.execute(find_tables).fetchone() is not None
            if not self._has_tables:
                return None
            run = None if run_id is None else digest_of((run_id,))
            try:
                row = fetched(self._db, FIND_OF_RUN, (key_bytes(key), run))
                return call_of(row, self._shared) if row else None
            except DamagedRow:
                self.damaged.add(key)
                return None

    def calls(self, keys: list[str], run_id: str | None) -> dict[str, Call]:
        return {key: call for key in keys if (call := self.call(key, run_id))}

    def close(self) -> None:
        if self._db is not None:
            self._db.close()


def open_to_read(path: Path) -> SqliteConnection:
    """A connection that changes nothing. Raises OutputError and DataError as `CallStore`."""
    check_store(path)
    with sqlite_errors(path):
        db = _connected(path)
        try:
            check_store_tables(path, db, new_is_fine=True)
        except BaseException:
            db.close()
            raise
        return db


def _connected(path: Path) -> SqliteConnection:
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=20, factory=SqliteConnection)
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchone()
        return db
    except sqlite3.OperationalError:
        db.close()
        if has_log(path):
            raise
    except BaseException:
        db.close()
        raise
    # A read-only folder has no room for SQLite's shared memory; without a log beside it, the file is complete.
    return sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True, factory=SqliteConnection)
