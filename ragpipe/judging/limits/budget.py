"""A hard budget: what a request may cost at most is held before it is sent, and what it did cost is booked afterwards.

Looking at what is spent and then sending goes beyond the budget by whatever is under way at that moment. Here a request is sent
only where what is spent, what is held and its own hold fit together; so no number of requests at once can spend more.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from ragpipe.core.errors import Incomplete
from ragpipe.judging.budget_settings import BudgetSettings
from ragpipe.schema.amount import PARTS, Amount


class BudgetUsedUp(Incomplete):
    """The next request may cost more than what is left. `raised` are the words of a command that raises the budget."""

    def __init__(self, message: str, raised: tuple[str, ...]):
        self.raised = raised
        super().__init__(message)


@dataclass(slots=True, eq=False)
class Reservation:
    """What is held for one request."""

    amount: Amount


class Budget(ABC):
    """The account of one budget. Several transports may share it.

    `spent` are the costs of answered requests, and the holds of those that nobody knows the end of (`assumed` is their
    part); `held` is what may still be spent by the requests under way. `spent + held` never exceeds the limits. A request of a batch
    outlives its process: its hold has a name, by which the next start takes it over.

    Args:
        limits: the limits.
        section: the section of the configuration that has them, for messages.
    """

    spent: Amount
    assumed: Amount
    held: Amount

    def __init__(self, limits: BudgetSettings, section: str):
        self.limits, self.section = limits, section
        self.used_up: BudgetUsedUp | None = None
        """Why nothing more is sent; None as long as requests are admitted."""

    @abstractmethod
    async def reserve(self, amount: Amount, name: str = "") -> Reservation:
        """Hold what a request may cost; wait for the requests under way where it does not fit yet.

        Requests are admitted in the order in which they ask: what is cheap does not overtake, else the cases of a run that
        ends here would be those with short texts. Raises BudgetUsedUp where it does not fit although nothing is under
        way, and at once from then on; OutputError where the hold cannot be written down. The hold of an earlier start with the
        same name, of a request that a batch has, is taken over: it is counted once.
        """

    @abstractmethod
    def reserve_now(self, amount: Amount, name: str) -> Reservation | None:
        """As `reserve`, for a request that can come later: None where it does not fit before those under way have ended."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """The request of an earlier start was never sent: its hold costs nothing. Nothing where there is none of this name."""

    @abstractmethod
    def settle(self, hold: Reservation, cost: Amount | None) -> None:
        """Book what an answered request has cost; None where the answer does not say: then the whole hold."""

    @abstractmethod
    def release(self, hold: Reservation) -> None:
        """The request was refused, or never left: it costs nothing."""

    @abstractmethod
    def assume(self, hold: Reservation) -> None:
        """Nobody knows whether the request is billed (a timeout, a broken connection): the whole hold counts as spent."""

    def left(self) -> dict[str, float]:
        """By limit, what is neither spent nor held."""
        total = self.spent + self.held
        limits = {part: getattr(self.limits, part) for part in PARTS}
        return {part: max(0.0, limit - getattr(total, part)) for part, limit in limits.items() if limit is not None}

    def line(self) -> str:
        """What is spent of what, in words."""
        limits = {part: getattr(self.limits, part) for part in PARTS}
        parts = [
            f"{in_unit(part, getattr(self.spent, part))} of {in_unit(part, limit)}"
            for part, limit in limits.items()
            if limit is not None
        ]
        assumed = [in_unit(part, value) for part in PARTS if limits[part] and (value := getattr(self.assumed, part))]
        without_answer = f" ({', '.join(assumed)} of it held for requests whose answer never came)" if assumed else ""
        return f"{self.section}.budget: spent {', '.join(parts)} in all starts of this run{without_answer}"

    def _error(self, amount: Amount) -> BudgetUsedUp:
        least = self.spent + self.held + amount
        limits = {part: getattr(self.limits, part) for part in PARTS}
        names = [part for part, limit in limits.items() if limit is not None and getattr(least, part) > limit]
        name = names[0]
        limit, need = limits[name], getattr(amount, name)
        spent, assumed = getattr(self.spent - self.assumed, name), getattr(self.assumed, name)
        held = f" and {in_unit(name, assumed)} held for requests whose answer never came" if assumed else ""
        raised = tuple(
            f"{self.section}.budget.{part}={_raised(part, limits[part], getattr(least, part))}" for part in names
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
