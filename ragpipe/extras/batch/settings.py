"""The settings of `transport=batch`: which judges it can ask, what its replies cost, and what a plan says of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ragpipe.core.errors import Problem
from ragpipe.core.registry import imported
from ragpipe.core.usage import Price
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.pricing import priced, rates_for
from ragpipe.judge.question import AnyJudge
from ragpipe.judge.settings import JudgeSettings, PriceSettings
from ragpipe.runs.settings import AnyTransport

if TYPE_CHECKING:
    from ragpipe.judge.question import Transport
    from ragpipe.runs.plan import Plan

MAX_REQUESTS = 10_000
"""Questions in one batch, and cases that are open at once. OpenAI takes 50,000, Anthropic 100,000."""
MOST_ROUNDS = 4
"""Rounds up to which batches are recommended: each may take a day."""
LEAST_SAVED_USD = 0.01
"""The difference from which batches are recommended: a smaller one is printed as $0.00."""
_PUBLIC = ("openai", "anthropic")
_WITH_ADDRESS = ("litellm_proxy", "hosted_vllm", "openai_like", "custom_openai")


class BatchSettings(AnyTransport):
    """How questions become batches. Nothing of it changes a reply, so it is in no key and no identity."""

    prices_of: ClassVar[str] = "transport"
    kind: Literal["batch"] = Field(default="batch", description="Questions go to the provider's Batch API together, in rounds.")
    prices: PriceSettings | None = Field(
        default=None,
        description=(
            "Prices of replies that come by batch. null: the batch prices of litellm's table; without one they stay unknown."
        ),
    )

    def open(self, judge: JudgeSettings, store: Path, **start: Any) -> Transport:
        """As of every transport; its batches are kept beside the call store, where every run over it finds them."""
        made: Transport = imported("ragpipe.extras.batch.transport:BatchTransport")(judge, self, store / "batches", **start)
        return made

    def refusal(self, judge: AnyJudge) -> Problem | None:
        if isinstance(judge, JurySettings):
            fix = (
                "run each member alone with transport=batch; then the jury, with transport=live, finds all replies in the store"
            )
            return Problem("", "transport", "batch, with a jury", "live or stored", fix)
        if not isinstance(judge, JudgeSettings) or judge.provider in _PUBLIC:
            return None
        if judge.provider not in _WITH_ADDRESS:
            found = f"{judge.model}, and transport=batch"
            expected = f"a provider whose batches are supported: {', '.join((*_PUBLIC, *_WITH_ADDRESS))}"
            return Problem("", "judge.model", found, expected, f"transport=live asks {judge.provider} question by question")
        if judge.api_base is None:
            return Problem("", "judge.api_base", f"null, for {judge.provider}", "the address of its Batch API", "set it")
        return None

    def key_variable(self, judge: JudgeSettings) -> str | None:
        if judge.provider == "anthropic" and judge.api_key_env is None and judge.api_base is None:
            return "ANTHROPIC_API_KEY"
        return judge.key_variable

    def rates(self, judge: JudgeSettings) -> Price:
        """The user's own prices, else the table's by batch. They are never derived from the prices of live replies."""
        return priced(judge, self.prices, "transport", suffix="_batches")

    def open_cases(self, judge: JudgeSettings) -> int:
        """As many as one batch has questions: open cases are what a round is made of."""
        return MAX_REQUESTS

    def plan_lines(self, judge: AnyJudge, plan: Plan) -> list[str]:
        """The rounds of a run, its price by batch beside its live price, and a recommendation; nothing where it saves less than a cent."""
        if not isinstance(judge, JudgeSettings) or not plan.new_calls or self.refusal(judge):
            return []
        rates = self.rates(judge)
        by_batch, live = plan.usd(rates), plan.usd(rates_for(judge))
        rounds = plan.rounds * math.ceil(plan.cases / MAX_REQUESTS)
        count = f"{rounds:,} round{'s' if rounds != 1 else ''}"
        if by_batch is None:
            prices = f"price unknown ({rates.reason})"
        elif live is None:
            prices = f"about ${by_batch:,.2f}, the live price is unknown"
        elif live - by_batch < LEAST_SAVED_USD:
            return []
        else:
            prices = f"about ${by_batch:,.2f} in place of ${live:,.2f}"
        return [f"by batch: {prices}, up to {count} of minutes to a day each; {advice(rounds, by_batch, live)}"]


def advice(rounds: int, by_batch: float | None, live: float | None) -> str:
    """Which transport to choose, and why."""
    if by_batch is None or live is None:
        return "no recommendation without both prices"
    if rounds > MOST_ROUNDS:
        return f"recommended: transport=live, unless {rounds:,} rounds one after the other are worth it"
    return "recommended: transport=batch, where results may wait"
