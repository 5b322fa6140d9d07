"""The call store opened for reading: nothing in it is changed, no file is left beside it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ragpipe.store.calls.call_schema import check_store_tables
from ragpipe.store.calls.sqlite_connection import SqliteConnection
from ragpipe.store.calls.sqlite_errors import sqlite_errors
from ragpipe.store.run.format_check import check_store


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
