"""The settings of `transport=batch`: which judges it can ask, what its replies cost, and what a plan says of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ragpipe.config.transport_settings import AnyTransport
from ragpipe.core.errors import Problem
from ragpipe.core.registry import imported
from ragpipe.judging.any_judge import AnyJudge
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.pricing import priced, rates_for
from ragpipe.judging.settings import JudgeSettings, Price
from ragpipe.schema.price_rates import Rates

if TYPE_CHECKING:
    from ragpipe.judging.session import Transport
    from ragpipe.stages.plan_calls import Plan

MOST_ROUNDS = 4
"""Rounds up to which batches are recommended: each may take a day."""
LEAST_SAVED_USD = 0.005
"""The difference from which batches are recommended: a smaller one is printed as $0.00."""
_PUBLIC = ("openai", "anthropic")
_WITH_ADDRESS = ("litellm_proxy", "hosted_vllm", "openai_like", "custom_openai")


class BatchSettings(AnyTransport):
    """How questions become batches. Nothing of it changes a reply, so it is in no key and no identity."""

    prices_of: ClassVar[str] = "transport"
    kind: Literal["batch"] = Field(
        default="batch", description="Questions go to the provider's Batch API together, in rounds."
    )
    max_requests: int = Field(
        default=10_000,
        ge=1,
        le=100_000,
        description=(
            "Questions in one batch, and cases that are open at once, 1 to 100,000. OpenAI takes 50,000, Anthropic 100,000."
        ),
    )
    poll_s: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        allow_inf_nan=False,
        description=(
            "Seconds before a batch is looked after for the first time, above 0 to 3,600; each later wait is half as long "
            "again, up to six times this."
        ),
    )
    prices: Price | None = Field(
        default=None,
        description=(
            "Prices of replies that come by batch. null: the batch prices of litellm's table; without one they stay unknown."
        ),
    )

    def open(self, judge: JudgeSettings, store: Path, **start: Any) -> Transport:
        """As of every transport; its batches are kept beside the call store, where every run over it finds them."""
        made: Transport = imported("ragpipe.extras.batch.transport:BatchTransport")(
            judge, self, store / "batches", **start
        )
        return made

    def refusal(self, judge: AnyJudge) -> Problem | None:
        if isinstance(judge, JurySettings):
            fix = "run each member alone with transport=batch; then the jury, with transport=live, finds all replies in the store"
            return Problem("", "transport", "batch, with a jury", "live or stored", fix)
        if not isinstance(judge, JudgeSettings) or judge.provider in _PUBLIC:
            return None
        if judge.provider not in _WITH_ADDRESS:
            found = f"{judge.model}, and transport=batch"
            expected = f"a provider whose batches are supported: {', '.join((*_PUBLIC, *_WITH_ADDRESS))}"
            fix = f"transport=live asks {judge.provider} question by question"
            return Problem("", "judge.model", found, expected, fix)
        if judge.api_base is None:
            found = f"null, for {judge.provider}"
            return Problem("", "judge.api_base", found, "the address of its Batch API", "set it")
        return None

    def key_variable(self, judge: JudgeSettings) -> str | None:
        if judge.provider == "anthropic" and judge.api_key_env is None and judge.api_base is None:
            return "ANTHROPIC_API_KEY"
        return judge.key_variable

    def rates(self, judge: JudgeSettings) -> Rates:
        """The user's own prices, else the table's by batch. They are never derived from the prices of live replies."""
        return priced(judge, self.prices, "transport", suffix="_batches")

    def open_cases(self, judge: JudgeSettings) -> int:
        """As many as one batch has questions: open cases are what a round is made of."""
        return self.max_requests

    def plan_lines(self, judge: AnyJudge, plan: Plan) -> list[str]:
        """The rounds of a run, its price by batch beside its live price, and a recommendation."""
        if not isinstance(judge, JudgeSettings) or not plan.new_calls or self.refusal(judge):
            return []
        rates = self.rates(judge)
        by_batch, live = plan.usd(rates), plan.usd(rates_for(judge))
        rounds = plan.rounds * math.ceil(plan.cases / self.max_requests)
        count = f"{rounds:,} round{'s' if rounds != 1 else ''}"
        line = f"by batch: up to {count}, one more for each kind of reply that must be asked for again; a round takes minutes to a day"
        if by_batch is None:
            prices = f"price by batch unknown ({rates.reason})"
        elif live is None:
            prices = f"about ${by_batch:,.2f} by batch, the live price is unknown"
        else:
            prices = f"about ${by_batch:,.2f} by batch, ${live:,.2f} live: ${live - by_batch:,.2f} less by batch"
        return [line, f"{prices}; {advice(rounds, by_batch, live)}"]


def advice(rounds: int, by_batch: float | None, live: float | None) -> str:
    """Which transport to choose, and why."""
    if by_batch is None or live is None:
        return "no recommendation without both prices"
    if by_batch >= live:
        return "recommended: transport=live, which is not dearer and answers at once"
    if live - by_batch < LEAST_SAVED_USD:
        return "recommended: transport=live, which costs less than a cent more and answers at once"
    if rounds > MOST_ROUNDS:
        return f"recommended: transport=live, unless {rounds:,} rounds one after the other are worth it"
    return "recommended: transport=batch, where results may wait"
