"""The call store's file under maintenance: open it to read or to change, and find out who else uses it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ragpipe.core.errors import DataError, FolderLocked, Problem
from ragpipe.store.calls.call_table import CallTable
from ragpipe.store.calls.owners import Owner, every_owner
from ragpipe.store.calls.read_only import open_to_read
from ragpipe.store.calls.sqlite_errors import sqlite_errors
from ragpipe.store.files.processes import is_alive

SILENT_AFTER_S = 30.0  # as in the call table: an owner whose beat stays the same for so long is dead


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """One consistent view of a store. Raises DataError where there is none, OutputError when it cannot be used."""
    path = Path(path).absolute()
    if not path.is_file():
        fix = "set output_dir=... or store.path=..."
        problem = Problem(str(path), "file", "no such file", "the call store of some run", fix)
        raise DataError("there is no call store", [problem])
    with closing(open_to_read(path)) as db, sqlite_errors(path):
        db.execute("BEGIN")
        yield db


@contextmanager
def changing(path: Path, *, silent_after_s: float = SILENT_AFTER_S) -> Iterator[sqlite3.Connection]:
    """A store open to be changed. Raises FolderLocked while another process uses it."""
    path = Path(path).absolute()
    with sqlite_errors(path):
        CallTable(path, run_id="").close()
        with closing(sqlite3.connect(path, timeout=20.0, isolation_level=None)) as db:
            refuse_if_in_use(path, db, silent_after_s=silent_after_s)
            yield db


def claims(db: sqlite3.Connection) -> dict[str, int]:
    """The number of claimed keys by the state of their owners: `alive`, `dead`, or `unknown` (on another host)."""
    counts = {"alive": 0, "dead": 0, "unknown": 0}
    states = {owner.id: _state(owner) for owner in every_owner(db)}
    for owner, count in db.execute("SELECT owner, COUNT(*) FROM claims GROUP BY owner").fetchall():
        counts[states.get(owner, "dead")] += count
    return counts


def refuse_if_in_use(path: Path, db: sqlite3.Connection, *, silent_after_s: float = SILENT_AFTER_S) -> None:
    """Raises FolderLocked when a live process has this store open, even one that asks nothing at the moment.

    A process on another host is watched for `silent_after_s`: it is alive when its beat changes.
    """
    owners = every_owner(db)
    living = [str(owner) for owner in owners if _state(owner) == "alive"]
    unknown = {owner.id: owner.beat for owner in owners if _state(owner) == "unknown"}
    end = time.monotonic() + silent_after_s
    while unknown and not living and time.monotonic() < end:
        time.sleep(min(1.0, silent_after_s))
        living += [str(owner) for owner in every_owner(db) if unknown.get(owner.id, owner.beat) != owner.beat]
    if living:
        raise FolderLocked(f"the call store {path} is in use by {living[0]}: wait for its end")


def _state(owner: Owner) -> str:
    return "dead" if owner.closed else {True: "alive", False: "dead", None: "unknown"}[is_alive(owner.process)]
