"""A connection that comes back: transactions that are repeated when the server, or the way to it, was gone."""

from __future__ import annotations

import random
import secrets
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
    is_read_only,
    postgres_driver,
    postgres_error,
)
from ragpipe.store.ledger import OpenedFor, StoreLost

Result = TypeVar("Result")

HURRIED_S = 10.0
"""For how long a database is waited for when nobody wants to wait any longer."""
_LAST_PAUSE_S = 5.0
_STEP_S = 0.1
_SHOWN = 200  # characters of a cause
_REACHED: set[PostgresPlace] = set()
"""The databases that this process has reached, or one that leads it."""
_BACK_AT: dict[PostgresPlace, float] = {}
"""When this process last reached a database again that had gone away, in monotonic seconds."""
_REPEATS = 20  # of a transaction that others were in the way of


class StoreUnreachable(StoreLost):
    """The database did not come back."""


class PostgresLink:
    """One connection, for one thread.

    A transaction that is under way holds a lock of its link: a repeated one waits until the server has committed the one before it, or
    given it up. `in_doubt` says meanwhile that an earlier try may have been committed.

    Args:
        place: the database.
        opened: who is told of an outage, and how long it is waited out; it may say that the database was reached before.
        begin: what each new connection begins with.

    Raises OutputError where the database cannot be reached, and never was; StoreUnreachable after an outage of `outage_s`.
    """

    def __init__(
        self,
        place: PostgresPlace,
        opened: OpenedFor | None = None,
        begin: Callable[[PostgresConnection], None] = lambda db: None,
    ):
        self.place, self._begin = place, begin
        self._opened = opened or OpenedFor("")
        self._lost: StoreUnreachable | None = None
        self._lock = secrets.randbits(62)
        self.in_doubt = False
        if self._opened.is_known:
            _REACHED.add(place)
        self.connection = self._first_connection()
        try:
            self.read(begin)
        except BaseException:
            self.connection.close()
            raise
        _REACHED.add(place)

    def read(self, work: Callable[[PostgresConnection], Result]) -> Result:
        """What `work` reads: statements that change nothing, asked again over a new connection where the old one was lost.

        Raises StoreUnreachable after an outage of `outage_s`, OutputError and DataError for what the server refuses.
        """
        while True:
            try:
                return work(self._usable())
            except Exception as error:
                self._recover(error)

    def run(self, work: Callable[[PostgresConnection], Result]) -> Result:
        """What `work` does in one transaction. It is repeated after a lost connection: where `in_doubt` is set, it must find what it
        has done already.

        Raises as `read`.
        """
        self.in_doubt, repeats = False, 0
        while True:
            is_complete = False
            try:
                db = self._usable()
                with db.transaction():
                    db.execute("SELECT pg_advisory_xact_lock(?)", (self._lock,))
                    result = work(db)
                    is_complete = True
                return result
            except Exception as error:
                if is_passing(error) and repeats < _REPEATS:
                    repeats += 1
                    time.sleep(random.random() * 0.05)
                    continue
                self._recover(error)
                self.in_doubt = self.in_doubt or is_complete

    def was_away(self, seconds: float) -> bool:
        """Whether this process, over whatever link, lost the database and reached it again in the last so many seconds. The network of
        others may have been cut too, and they may not be back yet."""
        back_at = _BACK_AT.get(self.place)
        return back_at is not None and time.monotonic() - back_at < seconds

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _first_connection(self) -> PostgresConnection:
        """A database that was reached before went away, and is waited for; any other one is not there."""
        try:
            connection = connect(self.place)
        except Exception as error:
            if self.place in _REACHED and is_lost(error):
                self._connect_again(error)
                return self.connection
            if isinstance(error, postgres_driver().Error):
                raise postgres_error(self.place, error) from error
            raise
        return connection

    def _usable(self) -> PostgresConnection:
        if self._lost is not None:
            raise self._lost
        return self.connection

    def _recover(self, error: Exception) -> None:
        """Connect again after an error of a lost connection; raise any other one as ours."""
        if not isinstance(error, postgres_driver().Error):
            raise error
        if not is_lost(error) or (is_read_only(error) and self.place not in _REACHED):
            raise postgres_error(self.place, error) from error
        self.connection.close()
        self._connect_again(error)

    def _connect_again(self, cause: Exception) -> None:
        began, pause, is_told = time.monotonic(), _STEP_S, False
        hurried_at: float | None = None
        while True:
            try:
                self.connection = connect(self.place, self._begin)
                if not is_read_only(cause) or _takes_writes(self.connection):
                    break
                self.connection.close()
            except Exception as error:
                if not isinstance(error, postgres_driver().Error):
                    raise
                if not is_lost(error):
                    raise postgres_error(self.place, error) from error
                cause = error
            now = time.monotonic()
            if self._opened.hurry.is_set():
                hurried_at = now if hurried_at is None else hurried_at
            if now - began > self.place.outage_s or (hurried_at is not None and now - hurried_at > HURRIED_S):
                self._lost = self._unreachable(now - began, cause, is_hurried=hurried_at is not None)
                raise self._lost from cause
            if not is_told and now - began > self._opened.patience_s:
                is_told = True
                self._opened.tell(
                    f"{self._name()}: {cause_of(cause)[:_SHOWN]}; waiting for it, up to {self.place.outage_s:g} s"
                )
            if hurried_at is None:
                self._opened.hurry.wait(pause)
            else:
                time.sleep(_STEP_S)
            pause = min(2 * pause, _LAST_PAUSE_S)
        _BACK_AT[self.place] = time.monotonic()
        if is_told:
            self._opened.tell(f"{self._name()} is there again after {time.monotonic() - began:,.0f} s: the run goes on")

    def _name(self) -> str:
        return f"the call store {self.place}"

    def _unreachable(self, waited_s: float, cause: Exception, *, is_hurried: bool) -> StoreUnreachable:
        limit = f"A run waits {self.place.outage_s:g} s for a database that went away"
        if is_hurried:
            limit = f"The run was ending, and then waits {HURRIED_S:g} s at most; otherwise {self.place.outage_s:g} s"
        return StoreUnreachable(
            f"the call store {self.place} could not be reached for {waited_s:,.0f} s: {cause_of(cause)[:_SHOWN]}. Replies that were stored are "
            f"kept. To fix: let the database run again, then start the same command: it asks only what was not stored. {limit}."
        )


def _takes_writes(db: PostgresConnection) -> bool:
    return db.execute("SELECT current_setting('transaction_read_only')").fetchone() == ("off",)
