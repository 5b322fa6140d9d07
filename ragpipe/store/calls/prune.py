"""Deleting calls from a store: the count of what would be deleted, and the deletion.

The ledger of payments is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ragpipe.store.calls.call_database import StorePlace, call_database
from ragpipe.store.calls.call_rows import SharedValues, key_bytes, milliseconds
from ragpipe.store.calls.ledger_rows import payment_mark
from ragpipe.store.calls.open_table import SILENT_AFTER_S
from ragpipe.store.calls.spend import paid_for
from ragpipe.store.calls.store_connection import StoreConnection


@dataclass(frozen=True)
class Choice:
    """Which calls: those that match every setting. With `used`, the keys that some run refers to are kept."""

    older_than_days: float | None = None
    judge: str | None = None
    run_id: str | None = None
    failures: bool = False
    used: Iterable[str] | None = None

    def where(self, db: StoreConnection, now: datetime) -> tuple[str, list[Any]]:
        """The condition in SQL. A call without a date is never too old."""
        parts, values = ["TRUE"], list[Any]()
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
            db.keep_keys(map(key_bytes, self.used))
            parts.append("NOT EXISTS (SELECT 1 FROM used WHERE used.key = calls.key)")
        return " AND ".join(parts), values


def prunable(place: StorePlace, choice: Choice, *, now: datetime | None = None) -> dict[str, Any]:
    """What would be deleted: `calls`, and `paid`, their cost: about what it would cost to ask again."""
    with call_database(place).reading() as db:
        return _size(db, *choice.where(db, now or datetime.now(UTC)))


def prune(
    place: StorePlace, choice: Choice, *, now: datetime | None = None, silent_after_s: float = SILENT_AFTER_S
) -> dict[str, Any]:
    """Delete the calls and shrink the store; returns what was deleted. What runs paid for them stays in the ledger.

    Raises FolderLocked while another process uses this store, also when it starts to in the middle: what was deleted by
    then stays deleted.
    """
    database = call_database(place)
    with database.changing(silent_after_s=silent_after_s) as db:
        where, values = choice.where(db, now or datetime.now(UTC))
        deleted = _size(db, where, values)
        database.delete_calls(db, where, values, silent_after_s=silent_after_s)
        return deleted


def _size(db: StoreConnection, where: str, values: list[Any]) -> dict[str, Any]:
    keys = [row[0] for row in db.stream(f"SELECT key FROM calls WHERE {where}", values)]
    marks = {payment_mark(key) for key in keys if type(key) is bytes}
    return {"calls": len(keys), "paid": paid_for(db, SharedValues(db), marks).as_json()}
