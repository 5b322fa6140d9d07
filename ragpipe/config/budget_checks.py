"""Budgets that could not hold, found before anything is asked: an unknown price, a reply without a bound, two accounts."""

from __future__ import annotations

from typing import Any

from ragpipe.config.transport_settings import AnyTransport
from ragpipe.core.errors import Problem
from ragpipe.core.validation import ConfigOrigins
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.usage import PARTS


def budget_problems(judge: Any, embedder: Any, transport: AnyTransport, origins: ConfigOrigins) -> list[Problem]:
    """What is wrong with the budgets of a judge and an embedder.

    A budget of a judge covers its embedder too: both are what measuring costs. An embedder has one of its own only where the
    judge costs nothing. `transport` is how the judge is asked: its replies have their own prices.
    """
    judges = {"judge": judge}
    if isinstance(judge, JurySettings):
        judges = {f"jury.members.{name}": member for name, member in judge.members.items()}
    models = {**judges, "embedder": embedder}
    paid = {key: model for key, model in models.items() if isinstance(model, JudgeSettings)}
    owner = judge if isinstance(judge, JurySettings) else next(iter(paid.values()), None)
    if owner is None:
        return []
    problems, account = [], f"{owner.section}.budget"
    if "embedder" in paid and embedder is not owner and embedder.budget.is_set:
        key = next(f"embedder.budget.{part}" for part in PARTS if getattr(embedder.budget, part) is not None)
        expected = f"no budget: {account} covers the calls of both"
        problems.append(Problem(origins.location(key), key, "a second budget", expected, f"set {account} alone"))
    for section, model in paid.items() if owner.budget.usd is not None else ():
        is_embedder = section == "embedder"
        rates = rates_for(model) if is_embedder else transport.rates(model)
        if not rates.tiers:
            key = f"{(None if is_embedder else transport.prices_of) or section}.prices"
            fix = f"{key}={{input: 0.15, output: 0.60}}, in US dollars per million tokens; or limit {account}.tokens"
            expected = f"a known price, with {account}.usd"
            problems.append(Problem(origins.location(key), key, rates.reason, expected, fix))
    for section, model in paid.items() if owner.budget.usd is not None or owner.budget.tokens is not None else ():
        if section != "embedder" and model.max_tokens is None:
            key, reason = (
                f"{section}.max_tokens",
                "null: a reply may be of any length, and what it may cost cannot be held",
            )
            fix = f"{key}=2048, or {account}.calls alone"
            problems.append(Problem(origins.location(key), key, reason, f"a number, with {account}", fix))
    return problems
