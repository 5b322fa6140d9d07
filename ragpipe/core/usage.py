"""Usage: calls to judges with their tokens and their price, and sums of it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ragpipe.core.call import Call, Payment

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
        return Usage(*(getattr(self, name) + getattr(other, name) for name in _FIELDS))

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
        tokens = {name: getattr(payment, name) or 0 for name in TOKENS}
        unpriced, without_usage = int(payment.usd is None), int(payment.tokens_in is None)
        return Usage(replies=1, **tokens, usd_known=payment.usd or 0.0, unpriced=unpriced, without_usage=without_usage)

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
    """Adds up many usages and payments. It keeps every price until the end (8 bytes each), so that the sum is exact, and a mark
    of the question of each payment: the different ones are `calls`."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._prices = array("d")
        self._marks = array("q")  # eight bytes for each of millions; a set of them takes ten times as many

    def add(self, usage: Usage) -> None:
        self.add_batch(usage, (usage.usd_known,))

    def pay(self, payment: Payment | None) -> None:
        """Add one row of a ledger. None is a damaged one: it is counted, and is in no other number."""
        if payment is not None:
            self._marks.append(payment.mark)
        self.add(Usage(damaged=1) if payment is None else Usage.of_payment(payment))

    def add_batch(self, counts: Usage, prices: Iterable[float]) -> None:
        """Add the counts of many replies, and their prices one by one. `usd_known` of `counts` is not looked at."""
        for name in _COUNTS:
            self._counts[name] += getattr(counts, name)
        self._prices.extend(prices)

    def total(self) -> Usage:
        total = Usage(**self._counts, usd_known=math.fsum(self._prices))
        if not self._marks:
            return total
        import numpy as np

        return replace(total, calls=total.calls + len(np.unique(np.frombuffer(self._marks, np.int64))))


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
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Amount:
        """Read what `as_json` wrote. Other keys are passed over. Raises KeyError, TypeError and ValueError."""
        return Amount(float(values["usd"]), int(values["tokens"]), int(values["calls"]))


KINDS = ("input", "output", "cached_input", "reasoning", "written_input")
NO_USAGE = "the reply names no usage that can be believed"
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Tier:
    """US dollars per million tokens of prompts with more than `above` tokens. `cached_input`, `written_input` and `reasoning`
    are what the part of the input that was found in the cache, the part that was written to it and the reasoning part of the output cost: as
    much as the rest where nothing else is said."""

    above: int
    input: float
    output: float
    cached_input: float
    reasoning: float
    written_input: float


@dataclass(frozen=True, slots=True)
class Price:
    """The prices of one model. `source` says where they come from; without `tiers` they are unknown, `reason` says why."""

    model: str
    source: str
    tiers: tuple[Tier, ...] = ()
    reason: str = ""

    def usd(
        self,
        tokens_in: float | None,
        tokens_out: float | None,
        cached: float | None = None,
        reasoning: float | None = None,
        written: float | None = None,
    ) -> float | None:
        """Dollars for one reply, None where its tokens or the price are unknown. What was cached, thought or written may be unknown.

        Args: as of `usd_of`, for one reply.
        """
        if tokens_in is None or tokens_out is None or not self.tiers:
            return None
        tier = next(t for t in reversed(self.tiers) if tokens_in > t.above or t is self.tiers[0])
        return float(dollars(tokens_in, tokens_out, cached or 0, reasoning or 0, written or 0, tier))

    def most_usd(self, tokens_in: int, tokens_out: int) -> float | None:
        """Dollars that a reply with at most so many tokens can cost: at the dearest price of any kind of token and any length of
        prompt up to there. None where the price is unknown."""
        reached = [tier for tier in self.tiers if tier is self.tiers[0] or tokens_in > tier.above]
        prices_in = [max(tier.input, tier.cached_input, tier.written_input) for tier in reached]
        prices_out = [max(tier.output, tier.reasoning) for tier in reached]
        return (tokens_in * max(prices_in) + tokens_out * max(prices_out)) / _MILLION if reached else None

    def usd_of(self, tokens_in: Any, tokens_out: Any, cached: Any, reasoning: Any, written: Any) -> Any:
        """The same for arrays of many replies: NaN where it is unknown, also among the tokens."""
        import numpy as np

        dollars_by_reply = np.full(len(tokens_in), np.nan)
        for tier in self.tiers:
            here = tokens_in > tier.above if tier is not self.tiers[0] else np.ones(len(tokens_in), dtype=np.bool_)
            parts = (np.nan_to_num(part[here]) for part in (cached, reasoning, written))
            dollars_by_reply[here] = dollars(tokens_in[here], tokens_out[here], *parts, tier)  # type: ignore[call-arg]
        return dollars_by_reply

    def document(self) -> dict[str, Any]:
        """As it is written to `cost.json`."""
        head = {"model": self.model, "source": self.source}
        if not self.tiers:
            return {**head, "unknown": self.reason}
        names = ("above", *KINDS)
        return {**head, "usd_per_million": [{name: getattr(tier, name) for name in names} for tier in self.tiers]}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Price:
        tiers = tuple(Tier(**tier) for tier in document.get("usd_per_million", ()))
        return cls(document["model"], document["source"], tiers, document.get("unknown", ""))


def dollars(tokens_in: Any, tokens_out: Any, cached: Any, reasoning: Any, written: Any, tier: Tier) -> Any:
    """US dollars by the prices of one tier, for numbers or arrays. Of `tokens_in` so many were `cached` by the provider or
    `written` to its cache, of `tokens_out` so many spent on `reasoning`."""
    into = (tokens_in - cached - written) * tier.input + cached * tier.cached_input + written * tier.written_input
    return (into + (tokens_out - reasoning) * tier.output + reasoning * tier.reasoning) / _MILLION
