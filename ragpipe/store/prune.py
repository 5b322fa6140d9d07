"""Taking calls out of a store: first the count of what would go, then, when it is wanted, the deletion."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ragpipe.store.call_errors import transaction
from ragpipe.store.census import bill
from ragpipe.store.file import changing, reading, refuse_if_in_use
from ragpipe.store.replaced import keep_payments

BATCH = 2000  # rows in one transaction: nobody waits long for the lock


@dataclass(frozen=True)
class Choice:
    """Which calls: those that fit everything that is set. `used` are the keys that some run rests on: others go."""

    older_than_days: float | None = None
    judge: str | None = None
    run_id: str | None = None
    failures: bool = False
    used: Iterable[str] | None = None

    def where(self, db: sqlite3.Connection, now: datetime) -> tuple[str, list[Any]]:
        """The condition in SQL. A call without a date is never too old."""
        parts, values = ["1"], list[Any]()
        if self.older_than_days is not None:
            parts.append("created_at <> '' AND created_at < ?")
            values.append((now - timedelta(days=self.older_than_days)).isoformat(timespec="milliseconds"))
        for column, value in (("judge", self.judge), ("run_id", self.run_id)):
            if value is not None:
                parts.append(f"{column} = ?")
                values.append(value)
        if self.failures:
            parts.append("status <> 'ok'")
        if self.used is not None:
            db.execute("CREATE TEMP TABLE used (key TEXT PRIMARY KEY) WITHOUT ROWID")
            db.executemany("INSERT OR IGNORE INTO used VALUES (?)", ((key,) for key in self.used))
            parts.append("key NOT IN (SELECT key FROM temp.used)")
        return " AND ".join(parts), values


def prunable(path: Path, choice: Choice, *, now: datetime | None = None) -> dict[str, Any]:
    """Calls, tokens and money of what would go: about what it would cost to ask again."""
    with reading(path) as db:
        return bill(db, *choice.where(db, now or datetime.now(UTC)))


def prune(path: Path, choice: Choice, *, now: datetime | None = None, silent_after_s: float = 30.0) -> dict[str, Any]:
    """Delete the calls and make the file smaller; gives what went. What runs have paid for them stays on their bills.

    Raises Locked while another process asks over this store, also when it begins to in the middle: what is deleted by
    then stays deleted.
    """
    with changing(path, silent_after_s=silent_after_s) as db:
        where, values = choice.where(db, now or datetime.now(UTC))
        found = bill(db, where, values)
        while True:
            with transaction(path, db):
                refuse_if_in_use(path, db, silent_after_s=0.0)
                rows = [row[0] for row in db.execute(f"SELECT rowid FROM calls WHERE {where} LIMIT {BATCH}", values)]
                if rows:
                    some = f"rowid IN ({', '.join(map(str, rows))})"
                    keep_payments(db, some, ())
                    db.execute(f"DELETE FROM calls WHERE {some}")
            if len(rows) < BATCH:
                break
        db.execute("VACUUM")
        return found
