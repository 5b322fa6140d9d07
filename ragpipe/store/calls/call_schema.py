"""The tables of the call store, and the creation of a new one."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, OutputError, Problem, RagpipeError
from ragpipe.core.version import __version__
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.calls.call_rows import COLUMNS, SHARED, DamagedRow, fetched
from ragpipe.store.files.atomic import sync_folder, temporary_name
from ragpipe.store.files.filesystem import is_network_folder

PAGE_BYTES = 8192  # rows have about 400 bytes: the larger the page, the less space is lost at its end
_FEW = ("served", "models")  # too few rows for an index of their own: it would take a page
_SHARED = tuple(
    f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, {', '.join(columns)}, digest BLOB NOT NULL{'' if name in _FEW else ' UNIQUE'})"
    for name, columns in SHARED.items()
)
TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    *_SHARED,
    # no type for a column: what was stored is read as it is. `failed_in` is 0 for a reply, else the number of the run
    f"CREATE TABLE calls ({', '.join(COLUMNS)}, failed_in)",
    "CREATE UNIQUE INDEX calls_by_key ON calls (key, failed_in)",
    # one row per answered attempt; `mark` is the beginning of the question's key, `sum` a checksum of the row
    "CREATE TABLE payments (mark, run, iteration, model, at, tokens_in, tokens_out, tokens_cached, tokens_reasoning, "
    "tokens_written, usd, sum)",
    "CREATE TABLE owners (id TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, mark TEXT NOT NULL, "
    "beat INTEGER NOT NULL, run_id TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE claims (key BLOB PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID",
    f"INSERT INTO meta VALUES ('format', '{FORMAT}'), ('ragpipe', '{__version__}')",
    f"PRAGMA user_version = {FORMAT}",  # in the file's header, where it is read without opening the file
)
_NAMES = frozenset({"meta", *SHARED, "calls", "payments", "owners", "claims"})


def publish_new(path: Path) -> None:
    """Create a store that is complete from its first moment.

    It is made under another name and then linked to `path`, unless another process was quicker. Where the file system has
    no links, it is made in place by whoever opens it.
    """
    temporary = temporary_name(path.parent)
    try:
        with closing(sqlite3.connect(temporary, isolation_level=None)) as db:
            create_tables(db)
            set_journal(db, path.parent)
        with suppress(OSError):
            os.link(temporary, path)
            sync_folder(path.parent)
    finally:
        for left in path.parent.glob(f"{temporary.name}*"):
            left.unlink(missing_ok=True)


def create_tables(db: sqlite3.Connection) -> None:
    """Create the tables where there are none, still without a write-ahead log: the format number has to be in the file."""
    empty = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_master)"
    if db.execute(empty).fetchone()[0]:
        db.execute(f"PRAGMA page_size={PAGE_BYTES}")
        db.execute("BEGIN IMMEDIATE")
        if db.execute(empty).fetchone()[0]:  # another process may have been quicker
            for statement in TABLES:
                db.execute(statement)
        db.execute("COMMIT")


def set_journal(db: sqlite3.Connection, folder: Path) -> str:
    """Use a write-ahead log where the file system supports one; returns the journal mode that the file has now."""
    mode = "delete" if is_network_folder(folder) else "wal"
    return str(db.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]).lower()


def check_store_tables(path: Path, db: sqlite3.Connection, *, new_is_fine: bool) -> bool:
    """Raises DataError for a file that is not a call store. With `new_is_fine`, False for an empty one."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables and new_is_fine:
        return False
    if not tables >= _NAMES:
        raise not_a_store(path, f"an SQLite file with the tables {sorted(map(str, tables))}")
    return True


class SqliteConnection(sqlite3.Connection):
    """As `StoreConnection`."""

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        yield from self.execute(statement, values)

    def scan(
        self, table: str, columns: Sequence[str], where: str = "TRUE", values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...] | None]:
        """Row by row: a text that is not UTF-8 would end a query over all of them."""
        row_of = f"SELECT {', '.join(columns)} FROM {table} WHERE rowid = ?"
        for (number,) in self.execute(f"SELECT rowid FROM {table} WHERE {where} ORDER BY rowid", values):
            try:
                yield fetched(self, row_of, (number,))
            except DamagedRow:
                yield None

    def keep_keys(self, keys: Iterable[bytes]) -> None:
        self.execute("CREATE TEMP TABLE used (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self.executemany("INSERT OR IGNORE INTO used VALUES (?)", ((key,) for key in keys))


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
