"""How fast the nearest stored call is found, among few and among many.

    python benchmarks/nearest_call.py

Goal: at most 100 times as long as one pass over the table, however many calls it holds. Baseline: that pass, in the same run.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ragpipe.core.call import Call
from ragpipe.core.digest import sha256
from ragpipe.runs.cache_miss import nearest_call, stored_as
from ragpipe.store.call_rows import SharedValues, packed, store, time_of
from ragpipe.store.call_store import CallStore

JUDGE = {f"judge.{number}": sha256(number) for number in range(9)}


def filled(path: Path, count: int) -> None:
    """A call store of `count` calls that differ in their messages alone."""
    CallStore(path, run_id="r").close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        shared = SharedValues(db)
        for number in range(count):
            fields = {**JUDGE, "messages": sha256(number)}
            call = Call(f"{number:064x}", "", "j", "ok", fields=fields, run_id="r", created_at=time_of(number))
            store(db, shared, packed(call, "r"))
        db.execute("COMMIT")


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def one_pass(path: Path) -> object:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT sum(length(key)) FROM calls").fetchone()


def measure(path: Path, count: int) -> None:
    asked = stored_as(path, f"{count - 1:064x}")[0]
    nearest = min(seconds(lambda: nearest_call(path, asked, resembling={f"{7:064x}"})) for _ in range(5))
    scan = min(seconds(lambda: one_pass(path)) for _ in range(5))
    print(f"nearest of {count:>7,}: {nearest * 1e3:7.2f} ms, {nearest / scan:5.2f} x one pass over the table")


def main() -> None:
    for count in (2_000, 100_000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "calls.sqlite"
            filled(path, count)
            measure(path, count)


if __name__ == "__main__":
    main()
