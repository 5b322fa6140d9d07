"""Budgets that could not hold, found before anything is asked: an unknown price, a reply without a bound, two accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragpipe.config.transport_settings import AnyTransport
from ragpipe.core.errors import Problem
from ragpipe.core.validation import ConfigOrigins
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.usage import PARTS


def budget_problems(judge: Any, embedder: Any, transport: AnyTransport, origins: ConfigOrigins) -> Sequence[Problem]:
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
    others = [model for model in paid.values() if model is not owner and model.budget.is_set]
    problems = [_second_account(model, owner, origins) for model in others if model is embedder]
    if owner.budget.usd is not None:
        problems += [
            problem
            for key, model in paid.items()
            if (problem := _unknown_price(model, key, owner.section, origins, None if key == "embedder" else transport))
        ]
    if owner.budget.usd is not None or owner.budget.tokens is not None:
        for section, model in paid.items():
            if section != "embedder" and model.max_tokens is None:
                key = f"{section}.max_tokens"
                reason = "null: a reply may be of any length, and what it may cost cannot be held"
                expected, fix = (
                    f"a number, with {owner.section}.budget",
                    f"{key}=2048, or {owner.section}.budget.calls alone",
                )
                problems.append(Problem(origins.location(key), key, reason, expected, fix))
    return problems


def _second_account(model: JudgeSettings, owner: JudgeSettings | JurySettings, origins: ConfigOrigins) -> Problem:
    part = next(part for part in PARTS if getattr(model.budget, part) is not None)
    key, other = f"{model.section}.budget.{part}", f"{owner.section}.budget"
    expected = f"no budget: {other} covers the calls of both"
    return Problem(origins.location(key), key, "a second budget", expected, f"set {other} alone")


def _unknown_price(
    model: JudgeSettings, section: str, owner: str, origins: ConfigOrigins, transport: AnyTransport | None
) -> Problem | None:
    rates = rates_for(model) if transport is None else transport.rates(model)
    if rates.tiers:
        return None
    key = f"{(transport and transport.prices_of) or section}.prices"
    fix = f"{key}={{input: 0.15, output: 0.60}}, in US dollars per million tokens; or limit {owner}.budget.tokens"
    return Problem(origins.location(key), key, rates.reason, f"a known price, with {owner}.budget.usd", fix)
