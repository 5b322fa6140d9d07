"""Budgets that could not hold, found before anything is asked: an unknown price, a reply without a bound, two accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragpipe.core.errors import Problem
from ragpipe.core.validation import ConfigOrigins
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.amount import PARTS


def budget_problems(judge: Any, embedder: Any, origins: ConfigOrigins) -> Sequence[Problem]:
    """What is wrong with the budgets of a judge and an embedder.

    A budget of a judge covers its embedder too: both are what measuring costs. An embedder has one of its own only where the
    judge costs nothing.
    """
    paid = [model for model in (judge, embedder) if isinstance(model, JudgeSettings)]
    owner = paid[0] if paid else None
    if owner is None:
        return []
    problems = [_second_account(model, owner, origins) for model in paid[1:] if model.budget.is_set]
    if owner.budget.usd is not None:
        problems += [problem for model in paid if (problem := _unknown_price(model, owner.section, origins))]
    bounded = owner.budget.usd is not None or owner.budget.tokens is not None
    if bounded and isinstance(judge, JudgeSettings) and judge.max_tokens is None:
        key = "judge.max_tokens"
        reason = "null: a reply may be of any length, and what it may cost cannot be held"
        fix = "judge.max_tokens=2048, or judge.budget.calls alone"
        problems.append(Problem(origins.location(key), key, reason, "a number, with judge.budget", fix))
    return problems


def _second_account(model: JudgeSettings, owner: JudgeSettings, origins: ConfigOrigins) -> Problem:
    part = next(part for part in PARTS if getattr(model.budget, part) is not None)
    key, other = f"{model.section}.budget.{part}", f"{owner.section}.budget"
    expected = f"no budget: {other} covers the calls of both"
    return Problem(origins.location(key), key, "a second budget", expected, f"set {other} alone")


def _unknown_price(model: JudgeSettings, owner: str, origins: ConfigOrigins) -> Problem | None:
    rates = rates_for(model)
    if rates.tiers:
        return None
    key = f"{model.section}.prices"
    fix = f"{key}={{input: 0.15, output: 0.60}}, in US dollars per million tokens; or limit {owner}.budget.tokens"
    return Problem(origins.location(key), key, rates.reason, f"a known price, with {owner}.budget.usd", fix)
