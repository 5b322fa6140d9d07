"""Prices of models: the user's own, else litellm's bundled price table, which is read without importing litellm.

Tokens are stored, and money is computed from them when it is needed. An unknown price is None with a reason, never 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragpipe.judging.settings import JudgeSettings, Price
from ragpipe.schema.price_rates import Rates, Tier

_FILE = "model_prices_and_context_window_backup.json"
_MILLION = 1e6
_COLUMNS = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
    "written_input": "cache_creation_input_token_cost",
}
_ABOVE = re.compile(rf"({'|'.join(_COLUMNS.values())})_above_(\d+)k_tokens")


def rates_for(settings: JudgeSettings) -> Rates:
    """The prices of a judge or an embedder: its own, else those of the table."""
    return priced(settings, settings.prices, settings.section)


def priced(settings: JudgeSettings, own: Price | None, section: str, *, suffix: str = "") -> Rates:
    """The prices of a judge or an embedder: the user's own, else those of the table. A private server has no public price.

    Args:
        settings: the judge or embedder.
        own: the user's prices; None where there are none.
        section: the section of the configuration that has them.
        suffix: the ending of the table's columns that hold; empty for those of replies that come at once.
    """
    if own is not None:
        return own_rates(settings.model, own, f"{section}.prices")
    if settings.api_base is not None:
        source = f"{settings.section}.api_base"
        reason = f"{source} names a server of your own, which has no public price: set {section}.prices"
        return Rates(settings.model, source, reason=reason)
    return table_rates(settings.model, section=section, suffix=suffix)


def own_rates(model: str, price: Price, source: str) -> Rates:
    """Prices that the user has set."""
    return Rates(model, source, (price.tier,))


def table_rates(model: str, *, section: str = "judge", suffix: str = "") -> Rates:
    """The prices of the bundled table for `provider/model`, of the columns with this ending."""
    source, rows = _bundled()
    row = _row(rows, model)
    if row is None:
        return Rates(model, source, reason=f"the price table does not know {model}: set {section}.prices")
    tiers = _tiers({name.removesuffix(suffix): value for name, value in row.items() if name.endswith(suffix)})
    if not tiers or not any(tier.input + tier.output for tier in tiers):
        return Rates(model, source, reason=f"the price table has no price for {model}: set {section}.prices")
    return Rates(model, source, tiers)


def _tiers(row: Mapping[str, Any]) -> tuple[Tier, ...]:
    """The row's prices, and those for long prompts. A price that a tier does not name is that of the tier below."""
    tiers = []
    known: dict[str, float] = {}
    for above, prices in sorted(_prices_by_prompt_length(row).items()):
        known |= prices
        if "input" in known and "output" in known:
            per = {name: _per_million(known.get(name, known[default])) for name, default in _DEFAULT_PRICE.items()}
            tiers.append(Tier(above, **per))
    return tuple(tiers)


_DEFAULT_PRICE = {
    "input": "input",
    "output": "output",
    "cached_input": "input",
    "reasoning": "output",
    "written_input": "input",
}
"""The price that applies where one is not named."""


def _prices_by_prompt_length(row: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """The prices per token that a row names, by the prompt tokens above which they apply."""
    prices: dict[int, dict[str, float]] = {0: _named_prices(row)}
    for match in filter(None, map(_ABOVE.fullmatch, row)):
        column = next(name for name, key in _COLUMNS.items() if key == match[1])
        if _is_price(row[match[0]]):
            prices.setdefault(int(match[2]) * 1000, {})[column] = float(row[match[0]])
    for tier in row.get("tiered_pricing") or ():
        if isinstance(tier, dict) and isinstance(tier.get("range"), list) and tier["range"]:
            prices[int(tier["range"][0])] = _named_prices(tier)
    return prices


def _named_prices(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(row[key]) for name, key in _COLUMNS.items() if _is_price(row.get(key))}


def _is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _per_million(per_token: float) -> float:
    return float(f"{per_token * _MILLION:.12g}")


def _row(rows: Mapping[str, Any], model: str) -> Mapping[str, Any] | None:
    """The row of the full name, or of the bare name where it belongs to the same provider."""
    provider, _, name = model.partition("/")
    row = rows.get(model)
    if row is None:
        bare = rows.get(name)
        if isinstance(bare, dict) and str(bare.get("litellm_provider", "")).startswith(provider):
            row = bare
    return row if isinstance(row, dict) else None


@lru_cache(maxsize=1)
def _bundled() -> tuple[str, Mapping[str, Any]]:
    """The name and the rows of the price table. It does not say from which day its prices are."""
    spec = find_spec("litellm")  # finds the package without running it
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    path = next((p / _FILE for p in folders if (p / _FILE).is_file()), None)
    if path is None:
        return "no price table (litellm is not installed)", {}
    try:
        number = version("litellm")
    except PackageNotFoundError:
        number = "of unknown version"
    return f"litellm {number}", json.loads(path.read_text(encoding="utf-8"))
