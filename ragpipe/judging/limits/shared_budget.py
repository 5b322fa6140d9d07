"""A budget whose account all processes of a run share: what fits is decided in the row of the account, before a request is sent."""

from __future__ import annotations

from dataclasses import dataclass

from ragpipe.judging.budget_settings import BudgetSettings
from ragpipe.judging.limits.budget import Budget, Reservation
from ragpipe.schema.amount import PARTS, Amount
from ragpipe.store.limits.account_row import HeldAmount
from ragpipe.store.limits.run_account import RunAccount


@dataclass(slots=True, eq=False)
class SharedReservation(Reservation):
    """What is held for one request, as the account knows it."""

    hold: HeldAmount


class SharedBudget(Budget):
    """As Budget, over all processes. `spent`, `assumed` and `held` are what the account said when this process last used it.

    Args:
        limits: the limits.
        section: the section of the configuration that has them, for messages.
        account: the account of the run.
        ledger: what the ledger of payments says that it has spent.
    """

    def __init__(self, limits: BudgetSettings, section: str, account: RunAccount, ledger: Amount):
        self._account = account
        self._limits = {part: getattr(limits, part) for part in PARTS}
        account.balance(ledger)
        super().__init__(limits, section)
        self._look()

    async def reserve(self, amount: Amount, name: str = "") -> Reservation:
        """As of Budget: it waits for the requests of all processes, and none overtakes another."""
        if self.used_up is not None and not name:
            raise self.used_up
        hold = HeldAmount(amount, name)
        is_held = await self._account.hold(hold, self._limits)
        return self._admitted(hold, is_held)

    def reserve_now(self, amount: Amount, name: str) -> Reservation | None:
        """As of Budget."""
        hold = HeldAmount(amount, name)
        answer = self._account.hold_now(hold, self._limits)
        return None if answer == "wait" else self._admitted(hold, answer == "held")

    def _admitted(self, hold: HeldAmount, is_held: bool) -> Reservation:
        self._look()
        if not is_held:
            self.used_up = self.used_up or self._error(hold.amount)
            raise self.used_up
        return SharedReservation(hold.amount, hold)

    def drop(self, name: str) -> None:
        """As of Budget."""
        self._account.drop(name)
        self._look()

    def settle(self, hold: Reservation, cost: Amount | None) -> None:
        """As of Budget."""
        self._end_with(hold, hold.amount if cost is None else cost)

    def release(self, hold: Reservation) -> None:
        """As of Budget."""
        self._end_with(hold, Amount())

    def assume(self, hold: Reservation) -> None:
        """As of Budget."""
        self._end_with(hold, None)

    def line(self) -> str:
        """As of Budget."""
        self._account.refresh()
        self._look()
        return super().line()

    def _end_with(self, hold: Reservation, cost: Amount | None) -> None:
        assert isinstance(hold, SharedReservation)
        self._account.settle(hold.hold, cost)

    def _look(self) -> None:
        figures = self._account.figures
        self.spent, self.assumed, self.held = figures.spent, figures.assumed, figures.held
