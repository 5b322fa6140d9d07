"""The SQLite side of the call store: each method is one transaction.

`calls` holds one row per key and run for permanent failures, and exactly one row per key once a reply is `ok`; `payments`
is the ledger. `claims` says which open store has claimed a key, `owners` which process has opened that store, with a `beat`
that it increments while it is open. A beat is watched, not compared with a clock: clocks of two hosts differ, and jump.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from ragpipe.core.call import Call, Payment
from ragpipe.core.errors import DataError, OutputError, Problem, RagpipeError
from ragpipe.core.version import FORMAT, __version__, format_mismatch
from ragpipe.store.call_rows import (
    COLUMNS,
    SHARED,
    DamagedRow,
    PackedCall,
    SharedValues,
    call_of,
    every_call,
    fetched,
    key_bytes,
    store,
    stored_keys,
)
from ragpipe.store.files import is_network_folder, sync_folder, temporary_name
from ragpipe.store.ledger import ClaimResult, Freshness, Lookup, StoreLost, add_payments, payments_in
from ragpipe.store.owners import Owners

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
    """Create a store that is complete from its first moment: made under another name and linked to `path`, unless another
    process was quicker, or the file system has no links."""
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


_MAGIC = b"SQLite format 3\0"


def check_store(path: Path) -> None:
    """Raises FormatMismatch for a call store of another format. A file that is no database is reported when it is opened.

    The file is read without its log, so that SQLite leaves nothing beside it: the number was written before there was a log.
    """
    number, tables, meta = None, set[str](), dict[str, str]()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            number = db.execute("PRAGMA user_version").fetchone()[0]
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            meta = dict(db.execute("SELECT name, value FROM meta").fetchall())
    except (sqlite3.Error, ValueError):
        pass
    if number in (None, FORMAT):
        return
    is_new = not tables and not has_log(path)
    is_foreign = bool(tables) and not {"meta", "calls"} <= tables
    if is_new or is_foreign:  # without a table it is about to become one; with others it is another program's
        return
    raise format_mismatch(
        "a call store of another format is not read, continued or changed",
        path,
        number or None,
        meta.get("ragpipe"),
        "set store.path=FOLDER to a new folder, or move the file away: only the ragpipe that made it reads its replies",
    )


def has_log(path: Path) -> bool:
    """Whether a write-ahead log with content stands beside a database."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


_ROOM = 32 << 10  # bytes by which the index of the write-ahead log grows
BUSY_S = 20.0  # under the 30 s after which a silent owner counts as dead
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


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turns sqlite3's errors into ours: the file's path, the cause in words, what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # SQLite's message quotes what it read: of a damaged schema it may not be UTF-8, which sqlite3 does not wrap
        raise store_error(path, error) from error


@contextmanager
def transaction(path: Path, db: sqlite3.Connection) -> Iterator[None]:
    """A write transaction: the lock is taken at its start, so that a look-up in it stays true until its end."""
    with sqlite_errors(path):
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # on a full disk SQLite has rolled back by itself
                db.execute("ROLLBACK")
            raise


def store_error(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> RagpipeError:
    """The error of ragpipe for one of sqlite3's. Raise it `from` that one."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # without one: text that is not UTF-8
    if code not in _CAUSES:  # our statements and rows fit our tables: where they do not, the file was changed
        return not_a_store(path, f"a damaged file ({error})")
    if code == sqlite3.SQLITE_IOERR and _is_full(path.parent):
        code = sqlite3.SQLITE_FULL  # SQLite itself says so for its tables only, not for the index of its log
    cause, fix = _CAUSES[code]
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


_COLUMN_NAMES = ", ".join(COLUMNS)
_FIND = f"SELECT {_COLUMN_NAMES} FROM calls WHERE key = ? AND failed_in IN (0, ?)"  # one row: `ok` ends the others
FIND_OF_RUN = f"SELECT {_COLUMN_NAMES} FROM calls WHERE key = ? AND failed_in IN (0, (SELECT id FROM runs WHERE digest = ?))"


class StoreFileGone(StoreLost):
    """The file at the store's path is no longer the one that was opened."""


class CallTable:
    """As `OpenTable`: one connection to the store's file. Every method is one transaction.

    `silent_after_s` is how long the beat of an owner may stay the same before its claims are taken over; an owner on this
    host whose process has ended is dead at once, a stopped one is alive. Raises OutputError when the file cannot be used, DataError when it is no store,
    FormatMismatch when it is one of another format.
    """

    def __init__(self, path: Path, *, run_id: str, silent_after_s: float = 30.0):
        self.path, self.run_id = path, run_id
        self.notices: list[str] = []
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
        with sqlite_errors(self.path):
            self._db.execute("BEGIN")
            try:
                return self._look_up(lookups)
            finally:
                self._db.execute("ROLLBACK")

    def find_or_claim(self, lookups: Sequence[Lookup]) -> list[Call | ClaimResult]:
        with self._transaction():
            calls = self._look_up(lookups)
            missing = [key_bytes(lookup.key) for lookup, call in zip(lookups, calls, strict=True) if call is None]
            granted = iter(self.owners.claim(missing))
            return [call or (ClaimResult.GRANTED if next(granted) else ClaimResult.HELD) for call in calls]

    def holder(self, key: str) -> str:
        with sqlite_errors(self.path):
            owner = self.owners.holder(key_bytes(key))
            return str(owner) if owner is not None and owner.id != self.owners.me and not owner.closed else ""

    def write(
        self, puts: Sequence[PackedCall], released: Iterable[str] = (), paid: Sequence[Payment] = ()
    ) -> list[Call | None]:
        with self._transaction():
            add_payments(self._db, self._shared, paid)
            results = [self._put(call) for call in puts]
            for key in released:
                self.owners.release(key_bytes(key))
        self._changed = True
        self._stored_here += len(puts)
        return results

    def beat(self) -> None:
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
        try:
            with self._transaction():
                self.owners.leave()
        finally:
            self.owners.closed()
            self._db.close()

    def stored_here(self) -> tuple[list[Call], list[Payment]]:
        """The calls and payments of this run since the file was opened. They can be read even when it was deleted."""
        with sqlite_errors(self.path):
            run = self._shared.known("runs", (self.run_id,))
            calls = [*every_call(self._db, "rowid > ? AND run = ?", (self._first[0], run))]
            paid = [*payments_in(self._db, self._shared, run_id=self.run_id, after=self._first[1])]
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
        return [self._looked_up(lookup, key) if key in stored else None for lookup, key in zip(lookups, keys, strict=True)]

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

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction that, when it fails, drops the cached numbers of shared values."""
        try:
            with transaction(self.path, self._db):
                yield
        except BaseException:
            self._shared.forget()
            raise


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _begins_as_a_database(path: Path) -> bool:
    """Whether the file still begins as SQLite's do: what SQLite has read already, it does not read again."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC
