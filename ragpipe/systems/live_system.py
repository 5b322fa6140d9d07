"""Systems that are asked while the run goes on: what each of them does, and what its answers may cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.limits.budget import Budget
from ragpipe.schema.usage import Amount
from ragpipe.systems.settings import LiveSystem, System

MARGIN = 1.25
"""A request holds the largest answer so far times this."""

Answer = Mapping[str, Any]


class AnswerCosts:
    """The requests of one method within the budget of the system.

    What an answer will cost is not known before it: nothing bounds what a system does for it. So a request holds a quarter
    more than the dearest answer so far, and the first one, which is alone, nothing but itself. `calls` is exact; money and tokens
    can be exceeded by what the answers under way cost beyond that.

    Args:
        budget: the account, which all methods share.
        cost_of: what an answer costs by the usage that it names; None where it names none.
    """

    def __init__(self, budget: Budget, cost_of: Callable[[Answer], Amount | None]):
        self._budget, self._cost_of = budget, cost_of
        self._largest: Amount | None = None

    def note_usage(self, usage: Mapping[str, float]) -> None:
        """Learn from the usage of an answer that an earlier start got."""
        if (cost := self._cost_of({"usage": usage})) is not None:
            self._note(cost)

    def _note(self, cost: Amount) -> None:
        self._largest = cost if self._largest is None else self._largest.at_least(cost)

    async def send(self, answer: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Ask once it is admitted, and book it. Raises BudgetUsedUp, ConfigError for a first answer without the usage that the
        budget needs, and what `answer` raises.

        A request that was refused costs nothing; one that failed otherwise is assumed to have cost its hold.
        """
        largest = self._largest or Amount()
        reservation = await self._budget.reserve(Amount(MARGIN * largest.usd, math.ceil(MARGIN * largest.tokens), 1))
        try:
            result = await answer()
        except BaseException as error:
            if isinstance(error, AttemptError) and error.unbilled:
                self._budget.release(reservation)
            else:
                self._budget.assume(reservation)
            raise
        cost = self._cost_of(result)
        self._budget.settle(reservation, cost)
        if cost is not None:
            self._note(cost)
        elif self._largest is None and (problem := self._without_usage()):
            raise ConfigError("the first answer of the system under test does not say what it cost", [problem])
        return result

    def _without_usage(self) -> Problem | None:
        """What is wrong with an answer that names no usage; None where requests alone are limited."""
        limits = self._budget.limits
        if limits.usd is None and limits.tokens is None:
            return None
        name = "usd" if limits.usd is not None else "tokens"
        usage = "usage with input and output tokens" + (" and system.prices, or with cost_usd" if name == "usd" else "")
        return Problem(
            "the first answer",
            f"system.budget.{name}",
            "no usage that can be read",
            usage,
            "let the system name its usage (system.fields: {usage: PATH}), or limit system.budget.calls",
        )


@dataclass(frozen=True)
class LiveMethod:
    """A method that is asked: its settings, the system that answers, and what its answers may cost (None: no limit)."""

    settings: LiveSystem
    system: System
    costs: AnswerCosts | None = None


def open_methods(settings: LiveSystem, plugins: Sequence[str]) -> list[LiveMethod]:
    """Every method that the section names, ready to be asked. Raises ConfigError when one cannot be had."""
    return [LiveMethod(method, method.opened(plugins)) for method in settings.each_method()]
