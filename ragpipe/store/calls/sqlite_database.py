"""A call store in a SQLite file: opened to be used, to be read, and to be changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.call import Call
from ragpipe.store.calls.call_schema import SqliteConnection, check_store_tables, sqlite_errors, transaction
from ragpipe.store.calls.call_table import CallReader, CallTable
from ragpipe.store.calls.open_table import SILENT_AFTER_S, OpenedFor
from ragpipe.store.calls.owners import every_owner, owner_state, refuse_if_in_use
from ragpipe.store.files.atomic import make_folders
from ragpipe.store.run.run_folder import check_store

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
        self.open_table(OpenedFor("")).close()
        return "it has the tables of this format"

    def open_table(self, opened: OpenedFor) -> CallTable:
        make_folders(self.path.parent)
        return CallTable(self.path, run_id=opened.run_id, silent_after_s=opened.silent_after_s)

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
        self.open_table(OpenedFor("")).close()
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
    """As `StoredReader`. A missing file holds nothing."""

    def __init__(self, path: Path):
        self._path = path
        self._db = open_to_read(path) if path.exists() else None
        self._reader = CallReader(self._db) if self._db else None
        self.damaged: set[str] = self._reader.damaged if self._reader else set()

    def call(self, key: str, run_id: str | None) -> Call | None:
        if self._reader is None:
            return None
        with sqlite_errors(self._path):
            return self._reader.call(key, run_id)

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
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
    except BaseException:
        db.close()
        raise
    # A read-only folder has no room for SQLite's shared memory; without a log beside it, the file is complete.
    return sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True, factory=SqliteConnection)
