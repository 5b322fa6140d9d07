"""Amounts that a budget counts: money, tokens and calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragpipe.schema.usage import Usage

PARTS = ("usd", "tokens", "calls")


@dataclass(frozen=True, slots=True)
class Amount:
    """US dollars, tokens (in and out together) and requests. Supports `+` and `-`."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0

    def __add__(self, amount: Amount) -> Amount:
        return Amount(self.usd + amount.usd, self.tokens + amount.tokens, self.calls + amount.calls)

    def __sub__(self, amount: Amount) -> Amount:
        return Amount(self.usd - amount.usd, self.tokens - amount.tokens, self.calls - amount.calls)

    def at_least(self, amount: Amount) -> Amount:
        """The larger of both, part by part."""
        return Amount(max(self.usd, amount.usd), max(self.tokens, amount.tokens), max(self.calls, amount.calls))

    def as_json(self) -> dict[str, Any]:
        """As it is written to files."""
        return {"usd": self.usd, "tokens": self.tokens, "calls": self.calls}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Amount:
        """Read what `as_json` wrote. Other keys are passed over. Raises KeyError, TypeError and ValueError."""
        return Amount(float(values["usd"]), int(values["tokens"]), int(values["calls"]))

    @staticmethod
    def of_usage(usage: Usage, unpriced_usd: float = 0.0) -> Amount:
        """What a ledger says; `unpriced_usd` is added for the replies whose price it does not know."""
        return Amount(usage.usd_known + unpriced_usd, usage.tokens, usage.replies)
