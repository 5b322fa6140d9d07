"""The content of a call store: numbers of replies and failures by judge and run, their tokens, and what was paid."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.usage import Usage
from ragpipe.store.calls.call_database import StorePlace, call_database
from ragpipe.store.calls.call_rows import SharedValues
from ragpipe.store.calls.ledger_rows import payment_entries
from ragpipe.store.calls.spend import SpendSum
from ragpipe.store.calls.store_connection import StoreConnection
from ragpipe.store.calls.stored_calls import every_call


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
