"""What `task=plan` says of batches: the rounds that a run takes, what it costs by batch and live, and which to choose."""

from __future__ import annotations

import math

from ragpipe.config.settings import RunConfig
from ragpipe.judging.batches.providers import unbatchable
from ragpipe.judging.pricing import batch_rates_for, rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.price_rates import Rates
from ragpipe.stages.plan_calls import Plan

MOST_ROUNDS = 4
"""Rounds up to which batches are recommended: each may take a day."""
LEAST_SAVED_USD = 0.005
"""The difference from which batches are recommended: a smaller one is printed as $0.00."""


def batch_lines(plan: Plan, config: RunConfig) -> list[str]:
    """The rounds of a run, its price by batch beside its live price, and a recommendation. Nothing where no provider is asked, or
    where its batches are not supported."""
    judge = config.judge
    if not isinstance(judge, JudgeSettings) or not config.transport.asks or not plan.new_calls or unbatchable(judge):
        return []
    rates = batch_rates_for(judge, config.transport.batch.prices)
    by_batch, live = _usd(plan, rates), _usd(plan, rates_for(judge))
    rounds = plan.rounds * math.ceil(plan.cases / config.transport.batch.max_requests)
    count = f"{rounds:,} round{'s' if rounds != 1 else ''}"
    line = f"by batch: up to {count}, one more for each kind of reply that must be asked for again; a round takes minutes to a day"
    return [line, f"{_prices(by_batch, live, rates)}; {advice(rounds, by_batch, live, config.transport.kind)}"]


def _usd(plan: Plan, rates: Rates) -> float | None:
    """The price of the new calls, each of mean length."""
    new = plan.new_calls
    usd = rates.usd(plan.tokens_in / new, plan.tokens_out / new)
    return None if usd is None else usd * new


def _prices(by_batch: float | None, live: float | None, rates: Rates) -> str:
    if by_batch is None:
        return f"price by batch unknown ({rates.reason})"
    if live is None:
        return f"about ${by_batch:,.2f} by batch, the live price is unknown"
    return f"about ${by_batch:,.2f} by batch, ${live:,.2f} live: ${live - by_batch:,.2f} less by batch"


def advice(rounds: int, by_batch: float | None, live: float | None, kind: str) -> str:
    """Which transport to choose, and why."""
    if by_batch is None or live is None:
        return "no recommendation without both prices"
    if by_batch >= live:
        return "recommended: transport=live, which is not dearer and answers at once"
    if live - by_batch < LEAST_SAVED_USD:
        return "recommended: transport=live, which costs less than a cent more and answers at once"
    if rounds > MOST_ROUNDS:
        return f"recommended: transport=live, unless {rounds:,} rounds one after the other are worth it"
    return f"recommended: transport=batch, where results may wait{' (this is it)' if kind == 'batch' else ''}"
