"""What a call store holds: how many replies and failures, of which judges and runs, their tokens and money."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ragpipe.schema.format import FORMAT
from ragpipe.store.file import claims, reading
from ragpipe.store.replaced import NAMES, SUMS

_NAMES = ("calls", "attempts", "tokens_in", "tokens_out", "tokens_cached", "usd_known", "calls_without_price",
          "calls_without_usage")  # fmt: skip


def bill(db: sqlite3.Connection, where: str = "1", values: Sequence[Any] = ()) -> dict[str, Any]:
    """Calls, tokens and money of some rows. `usd` is null as soon as one price is unknown, `usd_known` the known part."""
    return _bill(db.execute(f"SELECT {SUMS} FROM calls WHERE {where}", values).fetchone())


def census(path: Path, runs: Collection[str]) -> dict[str, Any]:
    """The whole count of a store; `runs` are the ids of the runs whose folders are there."""
    path = Path(path).absolute()
    with reading(path) as db:
        oldest, newest = db.execute(
            "SELECT MIN(NULLIF(created_at, '')), MAX(NULLIF(created_at, '')) FROM calls"
        ).fetchone()
        return {
            "format": FORMAT,
            "file": str(path),
            "bytes": sum(f.stat().st_size for f in (path, path.with_name(path.name + "-wal")) if f.exists()),
            "oldest": oldest,
            "newest": newest,
            "replies": bill(db, "status = 'ok'"),
            "failures": bill(db, "status <> 'ok'"),
            "by_status": _by(db, "status"),
            "by_judge": _by(db, "judge"),
            "by_run": {run: {**found, "folder": run in runs} for run, found in _by(db, "run_id").items()},
            "replaced": _bill(db.execute(f"SELECT {_summed()} FROM replaced").fetchone()),
            "claims": claims(db),
        }


def _by(db: sqlite3.Connection, column: str) -> dict[str, dict[str, Any]]:
    rows = db.execute(f"SELECT {column}, {SUMS} FROM calls GROUP BY 1 ORDER BY COUNT(*) DESC, 1").fetchall()
    return {row[0]: _bill(row[1:]) for row in rows}


def _summed() -> str:
    return ", ".join(f"COALESCE(SUM({name}), 0)" for name in NAMES)


def _bill(sums: Sequence[Any]) -> dict[str, Any]:
    found = dict(zip(_NAMES, sums, strict=True))
    known = float(found.pop("usd_known"))
    return {**found, "usd": None if found["calls_without_price"] else known, "usd_known": known}
