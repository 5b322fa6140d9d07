"""What a call store holds: how many replies and failures, of which judges and runs, their tokens, and what was paid."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ragpipe.schema.call import Call
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.calls import spend
from ragpipe.store.calls.call_rows import SharedValues
from ragpipe.store.calls.call_table import every_call
from ragpipe.store.calls.maintenance import claims, reading

_TOKENS = spend.TOKENS


class Count:
    """Calls that stand in the store, and the tokens of their replies."""

    def __init__(self) -> None:
        self.calls = self.without_usage = 0
        self.tokens = dict.fromkeys(_TOKENS, 0)

    def add(self, call: Call) -> None:
        self.calls += 1
        self.without_usage += call.tokens_in is None
        for name in _TOKENS:
            self.tokens[name] += getattr(call, name) or 0

    def total(self) -> dict[str, Any]:
        return {"calls": self.calls, **self.tokens, "calls_without_usage": self.without_usage}


def census(path: Path, runs: Collection[str]) -> dict[str, Any]:
    """The whole count of a store; `runs` are the ids of the runs whose folders are there. Every row is checked."""
    path = Path(path).absolute()
    replies, failures, damaged = Count(), Count(), 0
    by_status, by_judge = dict[str, Count](), dict[str, Count]()
    times: list[str] = []
    with reading(path) as db:
        for call in every_call(db):
            if call is None:
                damaged += 1
                continue
            for one in (
                replies if call.status == "ok" else failures,
                by_status.setdefault(call.status, Count()),
                by_judge.setdefault(call.judge, Count()),
            ):
                one.add(call)
            if call.created_at:
                times = [min([*times[:1], call.created_at]), max([*times[1:], call.created_at])]
        paid, by_run = spend.PaymentSums(), dict[str, spend.PaymentSums]()
        for entry in spend.payment_entries(db, SharedValues(db)):
            paid.add(entry)
            if entry is not None:
                by_run.setdefault(entry.run_id, spend.PaymentSums()).add(entry)
        held = claims(db)
    oldest, newest = times or (None, None)
    return {
        "format": FORMAT,
        "file": str(path),
        "bytes": sum(f.stat().st_size for f in (path, path.with_name(path.name + "-wal")) if f.exists()),
        "oldest": oldest,
        "newest": newest,
        "replies": replies.total(),
        "failures": failures.total(),
        "damaged": damaged,
        "by_status": _by_count(by_status),
        "by_judge": _by_count(by_judge),
        "paid": paid.total(),
        "paid_by_run": {
            run: {**found.total(), "folder": run in runs}
            for run, found in sorted(by_run.items(), key=lambda item: (-item[1].tries, item[0]))
        },
        "claims": held,
    }


def _by_count(counts: Mapping[str, Count]) -> dict[str, dict[str, Any]]:
    return {name: one.total() for name, one in sorted(counts.items(), key=lambda item: (-item[1].calls, item[0]))}
