"""A hard budget: what a request may cost at most is held before it is sent, and what it did cost is booked afterwards.

A request is sent only where what is spent, what is held and its own hold fit together: no number of requests at once spends more.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from ragpipe.core.errors import Incomplete
from ragpipe.core.usage import PARTS, Amount
from ragpipe.judge.settings import BudgetSettings
from ragpipe.store.journal import HoldJournal


class BudgetUsedUp(Incomplete):
    """The next request may cost more than what is left. `raised` are the words of a command that raises the budget."""

    def __init__(self, message: str, raised: tuple[str, ...]):
        self.raised = raised
        super().__init__(message)


_NO_END = "held for requests whose answer never came"


@dataclass(slots=True, eq=False)
class Hold:
    """What a request on its way may cost at most, and its number in the journal."""

    amount: Amount
    number: int


class Budget:
    """The account of one budget, of one event loop. Several transports may share it.

    `spent` are the costs of answered requests, and the holds of those that nobody knows the end of (`assumed` is their
    part); `held` is what may still be spent by the requests under way. `spent + held` never exceeds the limits. A request of a batch
    outlives its process: its hold has a name, by which the next start takes it over. `section` is that of the limits, for messages.
    What `journal` carries over is spent already.
    """

    def __init__(self, limits: BudgetSettings, section: str, journal: HoldJournal):
        self.limits, self.section, self._journal = limits, section, journal
        self._given = {part: limit for part in PARTS if (limit := getattr(limits, part)) is not None}
        self.used_up: BudgetUsedUp | None = None
        """Why nothing more is sent; None as long as requests are admitted."""
        self.spent, self.assumed, self.held = journal.carried, journal.assumed, Amount()
        self.under_way = 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()
        self._left = dict(journal.named)  # holds of earlier starts by name; part of `spent` until they are taken over

    async def reserve(self, amount: Amount, name: str = "") -> Hold:
        """Hold what a request may cost; wait for the requests under way where it does not fit yet.

        Requests are admitted in the order in which they ask: what is cheap does not overtake, else the cases of a run that
        ends here would be those with short texts. The hold of an earlier start with the same name is taken over: it counts once.
        Raises BudgetUsedUp where it does not fit although nothing is under way, and at once from then on; OutputError where the
        hold cannot be written down.
        """
        if name in self._left and self._fits(amount, name):
            return self._take(amount, name)
        async with self._turn:
            while (hold := self._if_it_fits(amount, name)) is None:
                self._freed.clear()
                await self._freed.wait()
            return hold

    def reserve_now(self, amount: Amount, name: str) -> Hold | None:
        """As `reserve`, for a request that can come later: None where it does not fit before those under way have ended."""
        return None if self._turn.locked() else self._if_it_fits(amount, name)

    def _if_it_fits(self, amount: Amount, name: str) -> Hold | None:
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

    def _take(self, amount: Amount, name: str) -> Hold:
        """Hold an amount: it is in the journal before the hold of an earlier start is given up."""
        hold = Hold(amount, self._journal.hold(amount, name))
        self.held += amount
        self.under_way += 1
        self.drop(name)
        return hold

    def settle(self, hold: Hold, cost: Amount | None) -> None:
        """Book what a request has cost: nothing (`Amount()`) where it was refused, or never left. None where nobody knows whether it
        is billed (a timeout, a broken connection): then its whole hold counts as spent, and stays open in the journal."""
        self.under_way -= 1
        self.held = self.held - hold.amount if self.under_way else Amount()  # no rounding error is left behind
        self._freed.set()
        if cost is None:
            self.spent, self.assumed = self.spent + hold.amount, self.assumed + hold.amount
        else:
            self.spent += cost
            self._journal.settle(hold.number, cost)

    def line(self) -> str:
        """What is spent of what, in words."""
        limits, spent = self._given.items(), self.spent
        parts = [f"{in_unit(part, getattr(spent, part))} of {in_unit(part, most)}" for part, most in limits]
        held = ", ".join(in_unit(part, value) for part in self._given if (value := getattr(self.assumed, part)))
        without_answer = f" ({held} of it {_NO_END})" if held else ""
        return f"{self.section}.budget: spent {', '.join(parts)} in all starts of this run{without_answer}"

    def _error(self, amount: Amount) -> BudgetUsedUp:
        least = self.spent + amount
        names = [part for part, limit in self._given.items() if getattr(least, part) > limit]
        name, key = names[0], f"{self.section}.budget"
        assumed = getattr(self.assumed, name)
        held = f" and {in_unit(name, assumed)} {_NO_END}" if assumed else ""
        return BudgetUsedUp(
            f"{key}.{name}={self._given[name]:g} is used up: {in_unit(name, getattr(self.spent, name) - assumed)} spent in all starts of "
            f"this run{held}, and the next call may cost up to {in_unit(name, getattr(amount, name))}",
            tuple(f"{key}.{part}={_raised(part, self._given[part], getattr(least, part))}" for part in names),
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
