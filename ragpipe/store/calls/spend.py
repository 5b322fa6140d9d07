"""What was paid by the ledger of a call store: by one run, or for some questions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ragpipe.schema.usage import Usage, UsageSum
from ragpipe.store.calls.call_database import call_database
from ragpipe.store.calls.call_rows import SharedValues
from ragpipe.store.calls.ledger_rows import PaymentEntry, payment_entries
from ragpipe.store.calls.store_connection import StoreConnection
from ragpipe.store.calls.store_place import StorePlace


class SpendSum:
    """Adds up ledger entries. A damaged row is counted and is in no other number."""

    def __init__(self) -> None:
        self._usage = UsageSum()
        self._marks: set[int] = set()

    def add(self, entry: PaymentEntry | None) -> None:
        """Add one row of the ledger; None is a damaged one."""
        if entry is None:
            self._usage.add(Usage(damaged=1))
            return
        self._marks.add(entry.mark)
        self._usage.add(Usage.of_payment(entry.payment))

    def total(self) -> Usage:
        """The sum; its `calls` are the different questions."""
        return replace(self._usage.total(), calls=len(self._marks))


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
