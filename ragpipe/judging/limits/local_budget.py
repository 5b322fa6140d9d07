"""A budget whose account belongs to one event loop of one process, with its holds in a journal."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ragpipe.judging.budget_settings import BudgetSettings
from ragpipe.judging.limits.budget import Budget, Reservation
from ragpipe.schema.amount import Amount


class HoldRecord(Protocol):
    """Where holds are written down (`ragpipe.store.run.hold_journal`)."""

    carried: Amount
    assumed: Amount
    named: Mapping[str, tuple[int, Amount]]

    def hold(self, amount: Amount, name: str = "") -> int: ...
    def settle(self, number: int, cost: Amount) -> None: ...


@dataclass(slots=True, eq=False)
class JournaledReservation(Reservation):
    """What is held for one request, and its number in the journal."""

    number: int


class LocalBudget(Budget):
    """As Budget, of one process.

    Args:
        limits: the limits.
        section: the section of the configuration that has them, for messages.
        journal: where holds are written down; what it carries over is spent already.
    """

    def __init__(self, limits: BudgetSettings, section: str, journal: HoldRecord):
        super().__init__(limits, section)
        self._journal = journal
        self.spent, self.assumed = journal.carried, journal.assumed
        self.held = Amount()
        self.under_way = 0
        self._waiting: deque[tuple[asyncio.Future[None], Amount, str]] = deque()
        self._left = dict(journal.named)  # holds of earlier starts by name; part of `spent` until they are taken over

    async def reserve(self, amount: Amount, name: str = "") -> Reservation:
        """As of Budget."""
        if self.used_up is not None and name not in self._left:
            raise self.used_up
        if self._fits_now(amount, name):
            self._take(amount)
        else:
            await self._admission(amount, name)
        return self._written_down(amount, name)

    def reserve_now(self, amount: Amount, name: str) -> Reservation | None:
        """As of Budget."""
        if self.used_up is not None and name not in self._left:
            raise self.used_up
        if not self._fits_now(amount, name):
            if self.under_way:
                return None
            self._close(amount)
            assert self.used_up is not None
            raise self.used_up
        self._take(amount)
        return self._written_down(amount, name)

    def drop(self, name: str) -> None:
        """As of Budget."""
        if (left := self._left.pop(name, None)) is not None:
            number, amount = left
            self.spent, self.assumed = self.spent - amount, self.assumed - amount
            self._journal.settle(number, Amount())

    def _fits_now(self, amount: Amount, name: str) -> bool:
        """Whether the amount fits, where nobody waits for room. What an earlier start held for the same request makes room."""
        return (name in self._left or not self._waiting) and self._fits(amount, name)

    def _written_down(self, amount: Amount, name: str) -> Reservation:
        """The hold of an amount that was taken, once it is in the journal: before that of an earlier start is given up."""
        try:
            hold = JournaledReservation(amount, self._journal.hold(amount, name))
            self.drop(name)
            return hold
        except BaseException:
            self._give_back(amount)
            raise

    def settle(self, hold: Reservation, cost: Amount | None) -> None:
        """As of Budget."""
        cost = hold.amount if cost is None else cost
        self.spent += cost
        self._journal.settle(self._end(hold), cost)

    def release(self, hold: Reservation) -> None:
        """As of Budget."""
        self._journal.settle(self._end(hold), Amount())

    def assume(self, hold: Reservation) -> None:
        """As of Budget."""
        self.spent += hold.amount
        self.assumed += hold.amount
        self._end(hold)

    def _fits(self, amount: Amount, name: str) -> bool:
        if name in self._left:
            amount = (amount - self._left[name][1]).at_least(Amount())
        limits, total = self.limits, self.spent + self.held + amount
        return (
            (limits.usd is None or total.usd <= limits.usd)
            and (limits.tokens is None or total.tokens <= limits.tokens)
            and (limits.calls is None or total.calls <= limits.calls)
        )

    async def _admission(self, amount: Amount, name: str) -> None:
        """Wait until the amount was taken for this request."""
        waiter = (asyncio.get_running_loop().create_future(), amount, name)
        self._waiting.append(waiter)
        self._admit()
        try:
            await waiter[0]
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter[0].cancelled() and waiter[0].exception() is None:  # admitted in the same moment
                self._give_back(amount)
            self._admit()
            raise

    def _admit(self) -> None:
        """Let those that fit go, in their order; where nothing is under way any more, the first that does not fit ends it."""
        while self._waiting:
            admitted, amount, name = self._waiting[0]
            if admitted.done():
                self._waiting.popleft()
            elif self._fits(amount, name):
                self._take(amount)
                self._waiting.popleft()
                admitted.set_result(None)
            elif self.under_way:
                return
            else:
                self._close(amount)

    def _close(self, amount: Amount) -> None:
        """Admit nothing more in this start."""
        self.used_up = self._error(amount)
        while self._waiting:
            refused, *_ = self._waiting.popleft()
            if not refused.done():
                refused.set_exception(self.used_up)

    def _take(self, amount: Amount) -> None:
        self.held += amount
        self.under_way += 1

    def _give_back(self, amount: Amount) -> None:
        self.under_way -= 1
        self.held = self.held - amount if self.under_way else Amount()  # no rounding error is left behind
        self._admit()

    def _end(self, hold: Reservation) -> int:
        """Hold nothing more for a request; its number in the journal."""
        assert isinstance(hold, JournaledReservation)
        self._give_back(hold.amount)
        return hold.number
