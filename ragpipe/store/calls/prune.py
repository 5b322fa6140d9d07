"""Deleting calls from a store: the count of what would be deleted, and the deletion.

The ledger of payments is not changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ragpipe.store.calls import spend
from ragpipe.store.calls.call_rows import SharedValues, key_bytes, milliseconds
from ragpipe.store.calls.maintenance import changing, reading, refuse_if_in_use
from ragpipe.store.calls.sqlite_errors import transaction

BATCH = 2000  # rows in one transaction: other processes wait only briefly for the lock


@dataclass(frozen=True)
class Choice:
    """Which calls: those that match every setting. With `used`, the keys that some run refers to are kept."""

    older_than_days: float | None = None
    judge: str | None = None
    run_id: str | None = None
    failures: bool = False
    used: Iterable[str] | None = None

    def where(self, db: sqlite3.Connection, now: datetime) -> tuple[str, list[Any]]:
        """The condition in SQL. A call without a date is never too old."""
        parts, values = ["1"], list[Any]()
        if self.older_than_days is not None:
            parts.append("created_at < ?")
            values.append(milliseconds((now - timedelta(days=self.older_than_days)).isoformat()))
        if self.judge is not None:
            parts.append("judge IN (SELECT id FROM judges WHERE label = ?)")
            values.append(self.judge)
        if self.run_id is not None:
            parts.append("run IN (SELECT id FROM runs WHERE run_id = ?)")
            values.append(self.run_id)
        if self.failures:
            parts.append("status <> 'ok'")
        if self.used is not None:
            db.execute("CREATE TEMP TABLE used (key BLOB PRIMARY KEY) WITHOUT ROWID")
            db.executemany("INSERT OR IGNORE INTO used VALUES (?)", ((key_bytes(key),) for key in self.used))
            parts.append("key NOT IN (SELECT key FROM temp.used)")
        return " AND ".join(parts), values


def prunable(path: Path, choice: Choice, *, now: datetime | None = None) -> dict[str, Any]:
    """What would be deleted: `calls`, and `paid`, their cost: about what it would cost to ask again."""
    with reading(path) as db:
        return _size(db, *choice.where(db, now or datetime.now(UTC)))


def prune(path: Path, choice: Choice, *, now: datetime | None = None, silent_after_s: float = 30.0) -> dict[str, Any]:
    """Delete the calls and shrink the file; returns what was deleted. What runs paid for them stays in the ledger.

    Raises FolderLocked while another process uses this store, also when it starts to in the middle: what was deleted by
    then stays deleted.
    """
    with changing(path, silent_after_s=silent_after_s) as db:
        where, values = choice.where(db, now or datetime.now(UTC))
        deleted = _size(db, where, values)
        while True:
            with transaction(path, db):
                refuse_if_in_use(path, db, silent_after_s=0.0)
                rows = [row[0] for row in db.execute(f"SELECT rowid FROM calls WHERE {where} LIMIT {BATCH}", values)]
                if rows:
                    db.execute(f"DELETE FROM calls WHERE rowid IN ({', '.join(map(str, rows))})")
            if len(rows) < BATCH:
                break
        db.execute("VACUUM")
        return deleted


def _size(db: sqlite3.Connection, where: str, values: list[Any]) -> dict[str, Any]:
    keys = [row[0] for row in db.execute(f"SELECT key FROM calls WHERE {where}", values)]
    marks = {spend.payment_mark(key) for key in keys if type(key) is bytes}
    return {"calls": len(keys), "paid": spend.paid_for(db, SharedValues(db), marks).as_json()}
