"""Who else uses a call store that is to be changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.usage import Usage
from ragpipe.store.calls.call_database import StorePlace, call_database
from ragpipe.store.calls.call_rows import SharedValues, every_call, key_bytes, milliseconds
from ragpipe.store.calls.ledger_rows import payment_entries, payment_mark
from ragpipe.store.calls.open_table import SILENT_AFTER_S
from ragpipe.store.calls.spend import SpendSum, paid_for
from ragpipe.store.calls.store_connection import StoreConnection


def census(place: StorePlace, runs: Collection[str]) -> dict[str, Any]:
    """All counts of a store; `runs` are the ids of the runs that have a folder. Every row is checked."""
    database = call_database(place)
    damaged = 0
    by_status, by_judge = dict[str, Usage](), dict[str, Usage]()
    times: list[str] = []
    with database.reading() as db:
        for call in every_call(db):
            if call is None:
                damaged += 1
                continue
            usage = Usage.of_call(call)
            by_status[call.status] = by_status.get(call.status, Usage()) + usage
            by_judge[call.judge] = by_judge.get(call.judge, Usage()) + usage
            if call.created_at:
                times = [min([*times[:1], call.created_at]), max([*times[1:], call.created_at])]
        paid, by_run = _spend(db)
        claim_counts, size = database.claims(db), database.size(db)
    oldest, newest = times or (None, None)
    failures = Usage.sum(usage for status, usage in by_status.items() if status != "ok")
    return {
        "format": FORMAT,
        "file": str(database),
        "bytes": size,
        "oldest": oldest,
        "newest": newest,
        "replies": _counts(by_status.get("ok", Usage())),
        "failures": _counts(failures),
        "damaged": damaged,
        "by_status": _by_count(by_status),
        "by_judge": _by_count(by_judge),
        "paid": paid.as_json(),
        "paid_by_run": {
            run: {**usage.as_json(), "folder": run in runs}
            for run, usage in sorted(by_run.items(), key=lambda item: (-item[1].replies, item[0]))
        },
        "claims": claim_counts,
    }


def _spend(db: StoreConnection) -> tuple[Usage, dict[str, Usage]]:
    """What was paid in all, and by each run."""
    total, by_run = SpendSum(), dict[str, SpendSum]()
    for entry in payment_entries(db, SharedValues(db)):
        total.add(entry)
        if entry is not None:
            by_run.setdefault(entry.run_id, SpendSum()).add(entry)
    return total.total(), {run: run_spend.total() for run, run_spend in by_run.items()}


def _by_count(usages: Mapping[str, Usage]) -> dict[str, dict[str, Any]]:
    return {name: _counts(usage) for name, usage in sorted(usages.items(), key=lambda item: (-item[1].calls, item[0]))}


def _counts(usage: Usage) -> dict[str, Any]:
    """Calls and tokens, without money: only the ledger knows what was paid."""
    return {"calls": usage.calls, **usage.token_counts(), "without_usage": usage.without_usage}


@dataclass(frozen=True)
class Choice:
    """Which calls: those that match every setting. With `used`, the keys that some run refers to are kept."""

    older_than_days: float | None = None
    run_id: str | None = None
    failures: bool = False
    used: Iterable[str] | None = None

    def where(self, db: StoreConnection, now: datetime) -> tuple[str, list[Any]]:
        """The condition in SQL. A call without a date is never too old."""
        parts, values = ["TRUE"], list[Any]()
        if self.older_than_days is not None:
            parts.append("created_at < ?")
            values.append(milliseconds((now - timedelta(days=self.older_than_days)).isoformat()))
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
