"""The call store's file under maintenance: opened to read or to change, and who else works with it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ragpipe.errors import DataError, Locked, Problem
from ragpipe.store.call_errors import translated
from ragpipe.store.call_table import CallTable
from ragpipe.store.calls import open_to_read
from ragpipe.store.process import Process, is_alive

SILENT_AFTER_S = 30.0  # as in the call table: an owner whose beat stands still so long is dead
_OWNERS = (
    "SELECT o.id, o.host, o.pid, o.mark, o.beat, COUNT(c.key) FROM owners o LEFT JOIN claims c ON c.owner = o.id "
    "GROUP BY o.id"
)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """One consistent view of a store. Raises DataError where there is none, OutputError when it cannot be used."""
    path = Path(path).absolute()
    if not path.is_file():
        raise DataError("there is no call store", [Problem(
            str(path), "file", "no such file", "the call store of some run", "set output_dir=... or store.path=...",
        )])  # fmt: skip
    with closing(open_to_read(path)) as db, translated(path):
        db.execute("BEGIN")
        yield db


@contextmanager
def changing(path: Path, *, silent_after_s: float = SILENT_AFTER_S) -> Iterator[sqlite3.Connection]:
    """A store that is about to be changed. Raises Locked while another process asks questions over it."""
    path = Path(path).absolute()
    with translated(path):
        CallTable(path, run_id="").close()
        with closing(sqlite3.connect(path, timeout=20.0, isolation_level=None)) as db:
            refuse_if_in_use(path, db, silent_after_s=silent_after_s)
            yield db


def claims(db: sqlite3.Connection) -> dict[str, int]:
    """Claimed keys by what is known of their owners: `alive`, `dead`, or `unknown` (on another host)."""
    found = {"alive": 0, "dead": 0, "unknown": 0}
    for _, host, pid, mark, _, count in db.execute(_OWNERS).fetchall():
        found[_state(host, pid, mark)] += count
    orphans = "SELECT COUNT(*) FROM claims WHERE owner NOT IN (SELECT id FROM owners)"
    found["dead"] += db.execute(orphans).fetchone()[0]
    return found


def refuse_if_in_use(path: Path, db: sqlite3.Connection, *, silent_after_s: float = SILENT_AFTER_S) -> None:
    """Raises Locked when a process that holds claims lives. One on another host is watched until its beat moves."""
    holders = [row for row in db.execute(_OWNERS).fetchall() if row[5]]
    unknown = {row[0]: row[4] for row in holders if _state(*row[1:4]) == "unknown"}
    living = [f"process {row[2]} on {row[1]}" for row in holders if _state(*row[1:4]) == "alive"]
    end = time.monotonic() + silent_after_s
    while unknown and not living and time.monotonic() < end:
        time.sleep(min(1.0, silent_after_s))
        now = {row[0]: row for row in db.execute(_OWNERS).fetchall()}
        living += [
            f"process {now[id][2]} on {now[id][1]}" for id, beat in unknown.items() if id in now and now[id][4] != beat
        ]
    if living:
        raise Locked(f"the call store {path} is in use by {living[0]}, which is asking questions: wait for its end")


def _state(host: str, pid: int, mark: str) -> str:
    return {True: "alive", False: "dead", None: "unknown"}[is_alive(Process(host, pid, mark))]
