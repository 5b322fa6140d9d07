"""What a call costs: litellm's bundled price table, read as a file without importing litellm, and the user's own prices.

An unknown price is None with a reason, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragpipe.judging.settings import Price

_FILE = "model_prices_and_context_window_backup.json"


@dataclass(frozen=True)
class PriceTable:
    """US dollars per token by model. `source` says where the prices come from, `date` the day of the table (UTC)."""

    source: str
    date: str
    _rows: Mapping[str, Any] = field(repr=False)
    _own: Mapping[str, Price] = field(repr=False)
    _section: str = "judge"

    @classmethod
    def load(cls, overrides: Mapping[str, Price] | None = None, *, section: str = "judge") -> PriceTable:
        """The bundled table, with the prices that a user set for some `provider/model` under `<section>.prices`."""
        source, date, rows = _bundled()
        own = dict(overrides or {})
        return cls(f"{section}.prices, {source}" if own else source, date, rows, own, section)

    def price(
        self, model: str, tokens_in: int | None, tokens_out: int | None, tokens_cached: int | None = None
    ) -> tuple[float | None, str | None]:
        """Dollars for one reply of `provider/model`, or None and the reason why it is not known."""
        if tokens_in is None or tokens_out is None:
            return None, "the provider named no usage"
        cached = tokens_cached or 0
        own = self._own.get(model)
        if own is not None:
            return own.usd(tokens_in, tokens_out, cached), None
        row = self._row(model)
        if row is None:
            return None, f"the price table does not know {model}: set {self._section}.prices"
        into, out = _per_token(row, "input", tokens_in), _per_token(row, "output", tokens_in)
        if into is None or out is None or into + out == 0:
            return None, f"the price table has no price for {model}: set {self._section}.prices"
        read = row.get("cache_read_input_token_cost")
        return (tokens_in - cached) * into + cached * (into if read is None else float(read)) + tokens_out * out, None

    def _row(self, model: str) -> Mapping[str, Any] | None:
        """The row of the full name, or of the bare name where it belongs to the same provider."""
        provider, _, name = model.partition("/")
        found = self._rows.get(model)
        if found is None:
            bare = self._rows.get(name)
            if isinstance(bare, dict) and str(bare.get("litellm_provider", "")).startswith(provider):
                found = bare
        return found if isinstance(found, dict) else None


def _per_token(row: Mapping[str, Any], side: str, tokens_in: int) -> float | None:
    """The price of one token; long prompts cost more where the table says so."""
    found = row.get(f"{side}_cost_per_token")
    for limit in (128_000, 200_000, 256_000, 272_000):
        above = row.get(f"{side}_cost_per_token_above_{limit // 1000}k_tokens")
        if above is not None and tokens_in > limit:
            found = above
    return float(found) if isinstance(found, int | float) else None


@lru_cache(maxsize=1)
def _bundled() -> tuple[str, str, Mapping[str, Any]]:
    spec = find_spec("litellm")  # finds the package without running it
    places = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    path = next((p / _FILE for p in places if (p / _FILE).is_file()), None)
    if path is None:
        return "no price table (litellm is not installed)", "", {}
    try:
        number = version("litellm")
    except PackageNotFoundError:
        number = "of unknown version"
    day = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    return f"litellm {number}", day, json.loads(path.read_text(encoding="utf-8"))
