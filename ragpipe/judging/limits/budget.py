"""A hard budget: what a request may cost at most is held before it is sent, and what it did cost is booked afterwards.

Looking at what is spent and then sending goes beyond the budget by whatever is under way at that moment. Here a request is sent
only where what is spent, what is held and its own hold fit together; so no number of requests at once can spend more.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ragpipe.core.errors import Incomplete
from ragpipe.judging.settings import BudgetSettings
from ragpipe.schema.usage import PARTS, Amount


class BudgetUsedUp(Incomplete):
    """The next request may cost more than what is left. `raised` are the words of a command that raises the budget."""

    def __init__(self, message: str, raised: tuple[str, ...]):
        self.raised = raised
        super().__init__(message)


@dataclass(slots=True, eq=False)
class Reservation:
    """What is held for one request, and its number in the journal."""

    amount: Amount
    number: int


class HoldRecord(Protocol):
    """Where holds are written down (`ragpipe.store.run.hold_journal`)."""

    carried: Amount
    assumed: Amount
    named: Mapping[str, tuple[int, Amount]]

    def hold(self, amount: Amount, name: str = "") -> int: ...
    def settle(self, number: int, cost: Amount) -> None: ...


class Budget:
    """The account of one budget, of one event loop. Several transports may share it.

    `spent` are the costs of answered requests, and the holds of those that nobody knows the end of (`assumed` is their
    part); `held` is what may still be spent by the requests under way. `spent + held` never exceeds the limits. A request of a batch
    outlives its process: its hold has a name, by which the next start takes it over.

    Args:
        limits: the limits.
        section: the section of the configuration that has them, for messages.
        journal: where holds are written down; what it carries over is spent already.
    """

    def __init__(self, limits: BudgetSettings, section: str, journal: HoldRecord):
        self.limits, self.section, self._journal = limits, section, journal
        self._given = {part: limit for part in PARTS if (limit := getattr(limits, part)) is not None}
        self.used_up: BudgetUsedUp | None = None
        """Why nothing more is sent; None as long as requests are admitted."""
        self.spent, self.assumed, self.held = journal.carried, journal.assumed, Amount()
        self.under_way = 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()
        self._left = dict(journal.named)  # holds of earlier starts by name; part of `spent` until they are taken over

    async def reserve(self, amount: Amount, name: str = "") -> Reservation:
        """Hold what a request may cost; wait for the requests under way where it does not fit yet.

        Requests are admitted in the order in which they ask: what is cheap does not overtake, else the cases of a run that
        ends here would be those with short texts. Raises BudgetUsedUp where it does not fit although nothing is under
        way, and at once from then on; OutputError where the hold cannot be written down. The hold of an earlier start with the
        same name, of a request that a batch has, is taken over: it is counted once.
        """
        if name in self._left and self._fits(amount, name):
            return self._take(amount, name)
        async with self._turn:
            while (hold := self._if_it_fits(amount, name)) is None:
                self._freed.clear()
                await self._freed.wait()
            return hold

    def reserve_now(self, amount: Amount, name: str) -> Reservation | None:
        """As `reserve`, for a request that can come later: None where it does not fit before those under way have ended."""
        return None if self._turn.locked() else self._if_it_fits(amount, name)

    def _if_it_fits(self, amount: Amount, name: str) -> Reservation | None:
        if self.used_up is not None and name not in self._left:
            raise self.used_up
        if self._fits(amount, name):
            return self._take(amount, name)
        if self.under_way:
            return None
        self.used_up = self._error(amount)
        raise self.used_up

    def drop(self, name: str) -> None:
        """The request of an earlier start was never sent: its hold costs nothing. Nothing where there is none of this name."""
        if (left := self._left.pop(name, None)) is not None:
            number, amount = left
            self.spent, self.assumed = self.spent - amount, self.assumed - amount
            self._journal.settle(number, Amount())

    def _fits(self, amount: Amount, name: str) -> bool:
        """Whether there is room; what an earlier start held for the same request makes some."""
        if name in self._left:
            amount = (amount - self._left[name][1]).at_least(Amount())
        total = self.spent + self.held + amount
        return all(getattr(total, part) <= limit for part, limit in self._given.items())

    def _take(self, amount: Amount, name: str) -> Reservation:
        """Hold an amount: it is in the journal before the hold of an earlier start is given up."""
        hold = Reservation(amount, self._journal.hold(amount, name))
        self.held += amount
        self.under_way += 1
        self.drop(name)
        return hold

    def settle(self, hold: Reservation, cost: Amount | None) -> None:
        """Book what an answered request has cost; None where the answer does not say: then the whole hold."""
        cost = hold.amount if cost is None else cost
        self.spent += cost
        self._journal.settle(self._end(hold), cost)

    def release(self, hold: Reservation) -> None:
        """The request was refused, or never left: it costs nothing."""
        self._journal.settle(self._end(hold), Amount())

    def assume(self, hold: Reservation) -> None:
        """Nobody knows whether the request is billed (a timeout, a broken connection): the whole hold counts as spent."""
        self.spent += hold.amount
        self.assumed += hold.amount
        self._end(hold)

    def _end(self, hold: Reservation) -> int:
        """Hold nothing more for a request; its number in the journal."""
        self.under_way -= 1
        self.held = self.held - hold.amount if self.under_way else Amount()  # no rounding error is left behind
        self._freed.set()
        return hold.number

    def line(self) -> str:
        """What is spent of what, in words."""
        parts = [
            f"{in_unit(part, getattr(self.spent, part))} of {in_unit(part, most)}" for part, most in self._given.items()
        ]
        assumed = [in_unit(part, value) for part in self._given if (value := getattr(self.assumed, part))]
        without_answer = f" ({', '.join(assumed)} of it held for requests whose answer never came)" if assumed else ""
        return f"{self.section}.budget: spent {', '.join(parts)} in all starts of this run{without_answer}"

    def _error(self, amount: Amount) -> BudgetUsedUp:
        least = self.spent + self.held + amount
        names = [part for part, limit in self._given.items() if getattr(least, part) > limit]
        name = names[0]
        limit, need = self._given[name], getattr(amount, name)
        spent, assumed = getattr(self.spent - self.assumed, name), getattr(self.assumed, name)
        held = f" and {in_unit(name, assumed)} held for requests whose answer never came" if assumed else ""
        raised = tuple(
            f"{self.section}.budget.{part}={_raised(part, self._given[part], getattr(least, part))}" for part in names
        )
        return BudgetUsedUp(
            f"{self.section}.budget.{name}={limit:g} is used up: {in_unit(name, spent)} spent in all starts of this run{held}, and "
            f"the next call may cost up to {in_unit(name, need)}",
            raised,
        )


def _raised(part: str, limit: float, least: float) -> str:
    """Twice the limit, and at least this much, as it is typed: money to the next hundredth of a cent."""
    value = max(2 * limit, least)
    return f"{math.ceil(value * 1e4) / 1e4:.10g}" if part == "usd" else str(math.ceil(value))


def in_unit(part: str, value: float) -> str:
    """`$0.0123`, `12,345 tokens` or `67 calls`."""
    if part == "usd":
        return f"${value:,.2f}" if value >= 100 or value == 0 else f"${value:.4g}"
    return f"{value:,.0f} {part if value != 1 else part.removesuffix('s')}"
