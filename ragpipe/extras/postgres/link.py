"""One connection to a store, for one thread: its transactions, and what a lost connection ends."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from ragpipe.extras.postgres.connection import (
    PostgresConnection,
    PostgresPlace,
    cause_of,
    connect,
    is_lost,
    is_passing,
    postgres_driver,
    postgres_error,
    postgres_errors,
)
from ragpipe.store.ledger import StoreLost

Result = TypeVar("Result")

_SHOWN = 200  # characters of a cause
_REPEATS = 20  # of a transaction that others were in the way of


class StoreUnreachable(StoreLost):
    """The connection to the database was lost."""


class PostgresLink:
    """One connection, for one thread, which begins with `begin`. Raises OutputError where the database cannot be used.

    A connection that is lost is not made again: the run ends, what was paid for and not stored is kept in a file, and a new start goes on.
    """

    def __init__(self, place: PostgresPlace, begin: Callable[[PostgresConnection], None] = lambda db: None):
        self.place = place
        self._lost: StoreUnreachable | None = None
        with postgres_errors(place):
            self.connection = connect(place, begin)

    def read(self, work: Callable[[PostgresConnection], Result]) -> Result:
        """What `work` reads: statements that change nothing. Raises StoreUnreachable, OutputError and DataError for what the server
        refuses."""
        if self._lost is not None:
            raise self._lost
        try:
            return work(self.connection)
        except postgres_driver().Error as error:
            raise self._error(error) from error

    def run(self, work: Callable[[PostgresConnection], Result]) -> Result:
        """What `work` does in one transaction, which is repeated where others were in its way. Raises as `read`."""

        def transaction(db: PostgresConnection) -> Result:
            for repeats in range(_REPEATS + 1):
                try:
                    with db.transaction():
                        return work(db)
                except postgres_driver().Error as error:
                    if not is_passing(error) or repeats == _REPEATS:
                        raise
                    time.sleep(random.random() * 0.05)
            raise AssertionError("unreachable")

        return self.read(transaction)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _error(self, error: Exception) -> Exception:
        """An error of the driver as ours; that of a lost connection is that of every later call too."""
        if not is_lost(error):
            return postgres_error(self.place, error)
        self._lost = StoreUnreachable(
            f"the connection to the call store {self.place} was lost: {cause_of(error)[:_SHOWN]}. Replies that were stored are kept. "
            "To fix: let the database run again, then start the same command: it asks only what was not stored."
        )
        return self._lost
