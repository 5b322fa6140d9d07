"""Calls in the table of a store: all of them, and the writing of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ragpipe.schema.call import Call
from ragpipe.store.calls.call_rows import COLUMNS, DamagedRow, PackedCall, SharedValues, call_of
from ragpipe.store.calls.store_connection import StoreConnection

_STORE = f"INSERT INTO calls ({', '.join(COLUMNS)}, failed_in) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"


def store(db: StoreConnection, shared: SharedValues, call: PackedCall) -> None:
    """Write the row of a call, replacing what has its key: a reply replaces the failures of all runs."""
    run, judge, served = (shared.number(t, c) for t, c in zip(("runs", "judges", "served"), call.shared, strict=True))
    if call.status == "ok":
        failed_in = 0
        db.execute("DELETE FROM calls WHERE key = ?", (call.key,))
    else:
        failed_in = run
        db.execute("DELETE FROM calls WHERE key = ? AND failed_in = ?", (call.key, run))
    db.execute(_STORE, (call.key, run, judge, served, *call.cells, call.digest, failed_in))


def every_call(db: StoreConnection, where: str = "TRUE", values: Sequence[object] = ()) -> Iterator[Call | None]:
    """All calls of a store, or those that match a condition in SQL, in the order of time; None for a damaged row."""
    shared = SharedValues(db)
    for row in db.scan("calls", COLUMNS, where, values):
        try:
            yield call_of(row, shared) if row else None
        except DamagedRow:
            yield None
