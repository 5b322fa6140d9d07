"""What was paid by the ledger of a call store: by one run, or for some questions."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from ragpipe.schema.usage import Usage, UsageSum
from ragpipe.store.calls.call_database import StorePlace, call_database
from ragpipe.store.calls.call_rows import SharedValues
from ragpipe.store.calls.ledger_rows import PaymentEntry, payment_entries
from ragpipe.store.calls.store_connection import StoreConnection


class SpendSum:
    """Adds up ledger entries. A damaged row is counted and is in no other number."""

    def __init__(self) -> None:
        self._usage = UsageSum()
        self._marks = array("q")  # eight bytes for each of millions; a set of them takes ten times as many

    def add(self, entry: PaymentEntry | None) -> None:
        """Add one row of the ledger; None is a damaged one."""
        if entry is None:
            self._usage.add(Usage(damaged=1))
            return
        self._marks.append(entry.mark)
        self._usage.add(Usage.of_payment(entry.payment))

    def total(self) -> Usage:
        """The sum; its `calls` are the different questions."""
        calls = len(np.unique(np.frombuffer(self._marks, np.int64)))
        return replace(self._usage.total(), calls=calls)


def paid_by(place: StorePlace, run_id: str, iteration: int | None = None) -> Usage:
    """What one iteration of a run (None: all of it) has paid, over all its processes; zero where there is no store.

    Raises OutputError and DataError as `CallStore`.
    """
    spend, database = SpendSum(), call_database(place)
    if database.exists():
        with database.reading() as db:
            for entry in payment_entries(db, SharedValues(db), run_id=run_id, iteration=iteration):
                spend.add(entry)
    return spend.total()


def paid_for(db: StoreConnection, shared: SharedValues, marks: Collection[int]) -> Usage:
    """What all runs have paid for some questions."""
    spend = SpendSum()
    for entry in payment_entries(db, shared):
        if entry is not None and entry.mark in marks:
            spend.add(entry)
    return spend.total()
