"""The rows of limits in a SQLite file beside the call store: for all processes of one host.

A file of its own, so that no start of a request waits until a group of replies is stored. A commit reaches the operating system, not the
disk: a killed process loses nothing, a power cut what came after the last `sync`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from ragpipe.core.errors import DataError, OutputError, Problem
from ragpipe.store.calls.call_schema import set_journal
from ragpipe.store.files.processes import this_boot
from ragpipe.store.limits.limit_rows import Moment, Texts

T = TypeVar("T")

FILE_NAME = "limits.sqlite"
_BUSY_S = 5.0  # a transaction takes less than a millisecond
_TABLE = "CREATE TABLE IF NOT EXISTS limits (name TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR)


class SqliteLimits:
    """The rows in one file. Its clock is the host's monotonic one, which all processes of a boot share.

    Raises OutputError where the file cannot be used, DataError where it is damaged.
    """

    def __init__(self, path: Path):
        self.path = path
        self._clock, self._changed = this_boot(), False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise self._error(error) from error
        try:
            set_journal(self._db, path.parent)
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(_TABLE)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._db.close()
            raise self._error(error) from error

    def update(self, names: Collection[str], change: Callable[[Texts, Moment], tuple[Texts, T]]) -> T:
        """As in LimitRows. The lock is that of the file."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                texts = {name: self._text(name) for name in names}
                written, result = change(texts, Moment(time.monotonic(), self._clock))
                for name, text in written.items():
                    self._write(name, text)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._error(error) from error
        self._changed = True
        return result

    def _text(self, name: str) -> str | None:
        row = self._db.execute("SELECT state FROM limits WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _write(self, name: str, text: str | None) -> None:
        if text is None:
            self._db.execute("DELETE FROM limits WHERE name = ?", (name,))
        else:
            self._db.execute(
                "INSERT INTO limits VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state", (name, text)
            )

    def sync(self) -> None:
        """Bring what was written to the disk, without waiting for others."""
        if not self._changed:
            return
        try:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            raise self._error(error) from error
        self._changed = False

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _error(self, error: Exception) -> OutputError | DataError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT if isinstance(error, ValueError) else 0) & 0xFF
        if code in _DAMAGED:
            fix = f"end all runs over this store, remove {self.path.name} and its -wal and -shm files, then start again"
            problem = Problem(str(self.path), "file", f"a damaged file ({error})", "the limits of a call store", fix)
            return DataError("the limits of the call store cannot be read", [problem])
        return OutputError(
            f"cannot use {self.path}, where the limits of all processes stand: {error}. To fix: check its folder, the room on "
            "its disk and who may write there, or set `store.path`."
        )
