"""Usage: calls to judges with their tokens and their price, and sums of it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ragpipe.schema.call import Call, Payment

TOKENS = ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "tokens_written")


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls, their replies, tokens and price. Supports `+` and `-`.

    `calls` counts different questions, `replies` the answers of a provider (one per attempt that was answered).
    `tokens_cached` and `tokens_written` are parts of `tokens_in`, `tokens_reasoning` is part of `tokens_out`. `usd_known` is the price in dollars of
    the replies whose price is known, `unpriced` the number of the others, `without_usage` the number of replies that name
    no tokens. `damaged` counts ledger rows that cannot be read: they are in no other number.
    """

    calls: int = 0
    replies: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    tokens_written: int = 0
    usd_known: float = 0.0
    unpriced: int = 0
    without_usage: int = 0
    damaged: int = 0

    @property
    def usd(self) -> float | None:
        """The price of all replies; None when the price of one is unknown."""
        return None if self.unpriced else self.usd_known

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.replies + other.replies,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.tokens_cached + other.tokens_cached,
            self.tokens_reasoning + other.tokens_reasoning,
            self.tokens_written + other.tokens_written,
            self.usd_known + other.usd_known,
            self.unpriced + other.unpriced,
            self.without_usage + other.without_usage,
            self.damaged + other.damaged,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) - getattr(other, name) for name in _FIELDS))

    def clipped(self) -> Usage:
        """The same with 0 in place of every negative number."""
        counts = {name: max(0, getattr(self, name)) for name in _COUNTS}
        return Usage(**counts, usd_known=max(0.0, self.usd_known))

    def token_counts(self) -> dict[str, int]:
        """The kinds of tokens by name."""
        return {name: getattr(self, name) for name in TOKENS}

    def as_json(self) -> dict[str, Any]:
        """As it is written to JSON files; `damaged` only when it is not 0."""
        values = {
            "calls": self.calls,
            "replies": self.replies,
            **self.token_counts(),
            "usd": self.usd,
            "usd_known": self.usd_known,
            "unpriced": self.unpriced,
            "without_usage": self.without_usage,
        }
        return {**values, "damaged": self.damaged} if self.damaged else values

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Usage:
        """Read what `as_json` wrote. Other keys are passed over; a missing one is 0."""
        return Usage(**{name: values[name] for name in _FIELDS if name in values})

    @staticmethod
    def of_call(call: Call) -> Usage:
        """A stored call with the tokens of its reply. What was paid for it is in the ledger, so no price is given."""
        tokens = {name: getattr(call, name) or 0 for name in TOKENS}
        return Usage(calls=1, **tokens, without_usage=int(call.tokens_in is None))

    @staticmethod
    def of_payment(payment: Payment) -> Usage:
        """One answered attempt. It counts as no call: several attempts may belong to one."""
        return Usage(
            replies=1,
            tokens_in=payment.tokens_in or 0,
            tokens_out=payment.tokens_out or 0,
            tokens_cached=payment.tokens_cached or 0,
            tokens_reasoning=payment.tokens_reasoning or 0,
            tokens_written=payment.tokens_written or 0,
            usd_known=payment.usd or 0.0,
            unpriced=int(payment.usd is None),
            without_usage=int(payment.tokens_in is None),
        )

    @staticmethod
    def sum(usages: Iterable[Usage]) -> Usage:
        """All of them together. Money is added exactly (math.fsum), whatever the order."""
        total = UsageSum()
        for usage in usages:
            total.add(usage)
        return total.total()


_FIELDS = tuple(field.name for field in fields(Usage))
_COUNTS = tuple(name for name in _FIELDS if name != "usd_known")


class UsageSum:
    """Adds up many usages. It keeps every price until the end (8 bytes each), so that the sum is exact."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._prices = array("d")

    def add(self, usage: Usage) -> None:
        """Add one usage."""
        self.add_batch(usage, (usage.usd_known,))

    def add_batch(self, counts: Usage, prices: Iterable[float]) -> None:
        """Add the counts of many replies, and their prices one by one. `usd_known` of `counts` is not looked at."""
        for name in _COUNTS:
            self._counts[name] += getattr(counts, name)
        self._prices.extend(prices)

    def total(self) -> Usage:
        """The sum of all that was added."""
        return Usage(**self._counts, usd_known=math.fsum(self._prices))


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
