"""SQLite's errors as ours: the file's path, the cause in words, what to do."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, OutputError, Problem, RagpipeError

_ROOM = 32 << 10  # bytes by which the index of the write-ahead log grows
BUSY_S = 20.0  # under the 30 s after which a silent owner counts as dead
_BROKEN = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_FORMAT,
        # our statements and rows fit our tables: where they do not, the tables were changed
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_RANGE,
        sqlite3.SQLITE_INTERNAL,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_EMPTY,
        sqlite3.SQLITE_NOTFOUND,
    }
)
_CAUSES = {
    sqlite3.SQLITE_FULL: ("the disk is full", "make room and start again: stored replies are kept"),
    sqlite3.SQLITE_IOERR: (
        "the disk could not be read or written (it is full, it fails, or files may not grow further)",
        "check its room, its health and `ulimit -f`, then start again: stored replies are kept",
    ),
    sqlite3.SQLITE_READONLY: ("it is read-only", "give this user write permission, or set `store.path`"),
    sqlite3.SQLITE_PERM: ("permission denied", "give this user write permission, or set `store.path`"),
    sqlite3.SQLITE_AUTH: ("permission denied", "give this user write permission, or set `store.path`"),
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened (no permission, not a folder, or too many open files)",
        "check the folder and `ulimit -n`, or set `store.path`",
    ),
    sqlite3.SQLITE_BUSY: (f"another process held it for {BUSY_S:.0f} s", "end that process, then start again"),
    sqlite3.SQLITE_LOCKED: (f"another process held it for {BUSY_S:.0f} s", "end that process, then start again"),
    sqlite3.SQLITE_PROTOCOL: ("its locks do not work on this file system", "set `store.path` to a local disk"),
    sqlite3.SQLITE_NOMEM: ("no memory is left", "free memory, then start again"),
}


class sqlite_errors:
    """Turns sqlite3's errors into ours: the file's path, the cause in words, what to do."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # SQLite's message quotes what it read: of a damaged schema it may not be UTF-8, which sqlite3 does not wrap
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            raise store_error(self.path, error) from error


class transaction(sqlite_errors):
    """A write transaction: the lock is taken at its start, so that a look-up in it stays true until its end."""

    def __init__(self, path: Path, db: sqlite3.Connection):
        super().__init__(path)
        self._db = db

    def __enter__(self) -> None:
        with sqlite_errors(self.path):
            self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            try:
                self._db.execute("COMMIT")
                return
            except sqlite3.Error as failed:
                error = failed
        with suppress(sqlite3.Error):  # on a full disk SQLite has rolled back by itself
            self._db.execute("ROLLBACK")
        super().__exit__(type(error), error, trace)


def store_error(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> RagpipeError:
    """The error of ragpipe for one of sqlite3's. Raise it `from` that one."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # without one: text that is not UTF-8
    if code in _BROKEN:
        return not_a_store(path, f"a damaged file ({error})")
    if code == sqlite3.SQLITE_IOERR and _is_full(path.parent):
        code = sqlite3.SQLITE_FULL  # SQLite itself says so for its tables only, not for the index of its log
    cause, fix = _CAUSES.get(code, (str(error), "see the message of SQLite"))
    return OutputError(f"cannot use the call store {path}: {cause}. To fix: {fix}.")


def _is_full(folder: Path) -> bool:
    """Whether the disk has less room than SQLite takes at a time. False where the system does not say."""
    try:
        return shutil.disk_usage(folder).free < _ROOM
    except OSError:
        return False


def not_a_store(path: Path, content: str) -> DataError:
    """The error for a file that is no call store, or a damaged one."""
    fix = (
        f"copy {path.name} with its -wal file away (replies in it are paid for; `sqlite3 {path.name} .recover` may save "
        "them), then start again, or set `store.path`. The file is never replaced automatically"
    )
    return DataError("the call store cannot be read", [Problem(str(path), "file", content, "a call store", fix)])
