"""The format of a run folder and of a call store, read without changing either."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from ragpipe.schema.format_version import FORMAT, format_mismatch
from ragpipe.store.run.run_tables import check_sealed_manifest, read_json

_MAGIC = b"SQLite format 3\0"
_HEADER = 100  # bytes; https://www.sqlite.org/fileformat2.html section 1.3
_USER_VERSION = slice(60, 64)


def manifest_of(path: Path) -> dict[str, Any]:
    """The content of a `manifest.json`. Raises FormatMismatch for a run of another format, DataError for a broken file."""
    manifest = read_json(path)
    if type(manifest.get("format")) is not int or manifest["format"] != FORMAT:
        made_by = " ".join(
            f"{name}{manifest[key]}" for key, name in (("ragpipe", ""), ("code", "code ")) if key in manifest
        )
        raise format_mismatch(
            "a run folder of another format is not read, continued or changed",
            path,
            manifest.get("format"),
            made_by,
            "start the run's command again (it gets a folder of its own), or use the ragpipe that made this one",
        )
    check_sealed_manifest(path, manifest)
    return manifest


def check_store(path: Path) -> None:
    """Raises FormatMismatch for a call store of another format. A file that is no database is reported when it is opened.

    The number is SQLite's `user_version`, in the first page of the file: these bytes are read, the database is not opened.
    Opening it, even for reading, would leave SQLite's log and shared memory beside it.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_HEADER)
    except OSError:
        return
    number = int.from_bytes(head[_USER_VERSION], "big")
    if not head.startswith(_MAGIC) or number == FORMAT:
        return
    tables, meta = _peek(path)
    log = path.with_name(f"{path.name}-wal")
    is_new = not tables and not (log.exists() and log.stat().st_size)
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


def _peek(path: Path) -> tuple[set[str], dict[str, str]]:
    """The tables of a database and the content of `meta`, as far as they can be read without its log."""
    tables: set[str] = set()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as db:
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return tables, dict(db.execute("SELECT name, value FROM meta").fetchall())
    except (sqlite3.Error, ValueError):
        return tables, {}
