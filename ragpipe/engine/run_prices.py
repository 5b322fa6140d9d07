"""The prices of a run: those of now, those that its figures were made with, and what differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import DataError
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.price_rates import KINDS, Rates
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json


class Prices:
    """The prices of a run's replies by iteration: those of now, or those that were `given`."""

    def __init__(self, config: RunConfig, folder: RunFolder, given: Mapping[int, Mapping[str, Rates]] | None = None):
        self._config, self._folder, self._given = config, folder, given

    def of(self, iteration: int) -> Mapping[str, Rates]:
        return rates(self._config) if self._given is None else self._given.get(iteration, {})

    def stand(self, iteration: int) -> bool:
        """Whether the iteration's bill was made with these prices: they are in no identity, and apply when it is read."""
        before = written(self._folder, iteration)
        return before is not None and not price_changes(before, self.of(iteration))


def rates(config: RunConfig) -> dict[str, Rates]:
    """The prices of the judge and of the embedder by their printable names; nothing where none is paid."""
    asked = (config.judge, config.embedder)
    return {one.label: rates_for(one) for one in asked if isinstance(one, JudgeSettings)}


def written(folder: RunFolder, iteration: int) -> dict[str, Rates] | None:
    """The prices that an iteration's `cost.json` was made with; None where it has none that can be read."""
    path = folder.iteration(iteration).cost
    try:
        return _read(read_json(path)["prices"]) if path.is_file() else None
    except (KeyError, TypeError, ValueError, AttributeError, DataError):
        return None


def price_changes(before: Mapping[str, Rates], now: Mapping[str, Rates]) -> list[str]:
    """`openai/gpt-4o: input 2.5 -> 2 per million`, one line for each price that differs. Where it comes from is no difference."""
    found = []
    for name in dict.fromkeys((*before, *now)):
        old, new = (_figures(rates.get(name)) for rates in (before, now))
        if old != new:
            keys = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
            found.append(f"{name}: " + ", ".join(f"{k} {_shown(old.get(k))} -> {_shown(new.get(k))}" for k in keys))
    return found


def made_with(folder: RunFolder, seal: Mapping[str, Any]) -> dict[int, dict[str, Rates]]:
    """The prices that each iteration's bill was made with: as the seal says, or, where a start did not live to seal it, as
    the bill itself does."""
    found = {number: written(folder, number) or {} for number in folder.iterations()}
    return {**found, **{int(number): _read(prices) for number, prices in seal.get("prices", {}).items()}}


def _read(prices: Mapping[str, Any]) -> dict[str, Rates]:
    return {name: Rates.of_document(one) for name, one in prices.items()}


def changed_prices(config: RunConfig, seal: Mapping[str, Any]) -> list[str]:
    """What of the prices in a run's configuration is not what its figures were made with."""
    sealed = seal.get("prices", {})
    last = max(sealed, key=int, default=None)
    return [] if last is None else price_changes(_read(sealed[last]), rates(config))


def _figures(rates: Rates | None) -> dict[str, Any]:
    if rates is None or not rates.tiers:
        return {}
    found: dict[str, Any] = {}
    for tier in rates.tiers:
        above = f" above {tier.above:,} tokens" if tier.above else ""
        told = {name: getattr(tier, name) for name in KINDS}
        if told["cached_input"] == told["input"]:
            del told["cached_input"]
        if told["reasoning"] == told["output"]:
            del told["reasoning"]
        found |= {f"{name}{above}": price for name, price in told.items()}
    return found


def _shown(price: float | None) -> str:
    return "unknown" if price is None else f"{price:g}"
