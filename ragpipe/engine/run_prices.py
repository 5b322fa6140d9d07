"""The prices of a run: those of the configuration, those that its costs were computed with, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import DataError
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.price_rates import KINDS, Rates, Tier
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json


def configured_rates(config: RunConfig) -> dict[str, Rates]:
    """The prices of the judge and of the embedder by their printable names; nothing where neither is paid."""
    judges = config.judge.members.values() if isinstance(config.judge, JurySettings) else (config.judge,)
    models = (*judges, config.embedder)
    return {model.label: rates_for(model) for model in models if isinstance(model, JudgeSettings)}


def applied_rates(folder: RunFolder, iteration: int) -> dict[str, Rates] | None:
    """The prices that an iteration's `cost.json` was computed with; None where it has none that can be read."""
    path = folder.iteration(iteration).cost
    try:
        return _parsed(read_json(path)["prices"]) if path.is_file() else None
    except (KeyError, TypeError, ValueError, AttributeError, DataError):
        return None


def sealed_rates(folder: RunFolder, seal: Mapping[str, Any]) -> dict[int, dict[str, Rates]]:
    """The prices of each iteration as the seal says; where a start was killed before it sealed them, as `cost.json` says."""
    rates = {number: applied_rates(folder, number) or {} for number in folder.iterations()}
    return {**rates, **{int(number): _parsed(prices) for number, prices in seal.get("prices", {}).items()}}


def config_rate_changes(config: RunConfig, seal: Mapping[str, Any]) -> list[str]:
    """How the prices of a run's configuration differ from those of its last sealed iteration, as `rate_changes`."""
    sealed = seal.get("prices", {})
    last = max(sealed, key=int, default=None)
    return [] if last is None else rate_changes(_parsed(sealed[last]), configured_rates(config))


def rate_changes(old: Mapping[str, Rates], new: Mapping[str, Rates]) -> list[str]:
    """`openai/gpt-4o: input 2.5 -> 2 per million`, one line per model whose price differs. Where a price comes from is no
    difference."""
    lines = []
    for name in dict.fromkeys((*old, *new)):
        before, after = _by_kind(old.get(name)), _by_kind(new.get(name))
        kinds = [kind for kind in dict.fromkeys((*before, *after)) if before.get(kind) != after.get(kind)]
        changes = [f"{kind} {_price_text(before.get(kind))} -> {_price_text(after.get(kind))}" for kind in kinds]
        if changes:
            lines.append(f"{name}: {', '.join(changes)}")
    return lines


def _parsed(prices: Mapping[str, Any]) -> dict[str, Rates]:
    return {name: Rates.of_document(document) for name, document in prices.items()}


def _by_kind(rates: Rates | None) -> dict[str, float | None]:
    """The prices of all tiers by kind of token, such as `input above 200,000 tokens`; kinds without a price of their own are
    left out."""
    prices: dict[str, float | None] = {}
    for tier in rates.tiers if rates else ():
        suffix = f" above {tier.above:,} tokens" if tier.above else ""
        prices |= {f"{kind}{suffix}": price for kind, price in _tier_prices(tier).items()}
    return prices


def _tier_prices(tier: Tier) -> dict[str, float | None]:
    prices = {kind: getattr(tier, kind) for kind in KINDS}
    for kind, base in (("cached_input", "input"), ("written_input", "input"), ("reasoning", "output")):
        if prices[kind] == prices[base]:
            del prices[kind]
    return prices


def _price_text(price: float | None) -> str:
    return "unknown" if price is None else f"{price:g}"
