"""The tables of the call store, and the creation of a new one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ragpipe.core.version import __version__
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.calls.call_rows import COLUMNS, SHARED, DamagedRow, fetched
from ragpipe.store.calls.sqlite_errors import not_a_store
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
