"""How fast and how wide a server may be asked.

What holds an attempt back, most trusted first: the provider asked to wait (Retry-After); a header says that a limit is used up;
a limit is known, by `rpm` and `tpm` or by a header of a provider whose headers are known; refusals have taught a pace.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ragpipe.judging.limits.limit_headers import Counted, LimitRules, Unit, read_limits
from ragpipe.judging.limits.pace import LearnedPace
from ragpipe.judging.limits.width import LearnedWidth

_BELOW_LIMIT = 1.04  # times slower than a header's limit: at the limit itself, jitter of the network causes refusals
_MINUTE = 60.0
_LONGEST_RESET = 120.0  # seconds; a header whose limit is used up for longer is left to the refusal that follows
_BYTES_PER_TOKEN = 3.5  # before the first reply: too many tokens rather than too few
_FIRST_OUTPUT = 256.0  # tokens of a reply, before the first one
_WEIGHT = 0.05  # of the newest reply in the means
_OF_MESSAGE = 8.0  # bytes that a message counts besides its text: its role and its ends


class RateLimiter:
    """The limits of one server under one key. It belongs to no event loop.

    Wait until `next_start` before each attempt, and `take` it; after it tell `pace` and `width` what became of it, `observe` the
    headers of its response, and `settle` its usage. All times are seconds of the monotonic clock.

    Args:
        rpm: requests per minute, by the user; None: no such limit.
        tpm: tokens per minute, by the user; None: no such limit.
        rules: what is known of the provider's limits.
    """

    def __init__(self, rpm: float | None = None, tpm: float | None = None, rules: LimitRules | None = None):
        self.rules, self.pace, self.width = rules or LimitRules(), LearnedPace(), LearnedWidth()
        self.paused_until = 0.0
        """Until when the provider asked to wait."""
        self._used_up_until = 0.0
        self._buckets: dict[tuple[Unit, str], Bucket] = {}  # by unit, and by whose limit it is
        self.configure(rpm, tpm)

    def configure(self, rpm: float | None, tpm: float | None) -> None:
        """Take over the limits of one more judge under the same key: the lowest hold."""
        limits: dict[tuple[Unit, str], float | None] = {("requests", "rpm"): rpm, ("tokens", "tpm"): tpm}
        for name, limit in limits.items():
            known = self._buckets.get(name)
            if limit is not None and (known is None or limit / _MINUTE < known.per_second):
                self._buckets[name] = Bucket(limit / _MINUTE)

    @property
    def counts_tokens(self) -> bool:
        """Whether attempts are held by a limit of tokens: `take` then needs their demand."""
        return any(unit != "requests" for unit, _ in self._buckets)

    def next_start(self, now: float) -> tuple[float, str]:
        """When the next attempt may start, and what holds it back (empty: nothing)."""
        holds = [(bucket.free_from, why) for (_, why), bucket in self._buckets.items()]
        holds += [(self._used_up_until, "limit used up"), (self.paused_until, "429"), (self.pace.free_from, "429")]
        return max(((start, why) for start, why in holds if start > now), default=(now, ""))

    def take(self, now: float, demand: Demand | None = None) -> None:
        """An attempt starts."""
        self.pace.record_start(now)
        for (unit, _), bucket in self._buckets.items():
            if unit == "requests":
                bucket.take(1, now)
            elif demand is not None:
                bucket.take(demand.tokens[unit], now)

    def pause(self, seconds: float) -> None:
        """Hold all attempts back: the provider asked to wait."""
        self.paused_until = max(self.paused_until, time.monotonic() + seconds)

    def settle(self, excess: Mapping[Unit, float]) -> None:
        """The server counted so many tokens more than an attempt's demand (negative: fewer)."""
        for (unit, _), bucket in self._buckets.items():
            if unit != "requests":
                bucket.settle(excess[unit])

    def observe(self, headers: Mapping[str, str]) -> None:
        """Take over what the headers of a response say of the provider's limits."""
        for limit in read_limits(headers, self.rules.style):
            wait, of_a_day = limit.reset_s, limit.unit == "requests" and self.rules.requests_per_day
            if self.rules.trusts_limits and limit.limit and not of_a_day:
                per_second = limit.limit / _MINUTE / _BELOW_LIMIT
                name = limit.unit, "request limit" if limit.unit == "requests" else "token limit"
                self._buckets.setdefault(name, Bucket(per_second)).per_second = per_second
                wait = 1 / per_second
            if limit.remaining is not None and limit.remaining < 1 and wait is not None and wait <= _LONGEST_RESET:
                self._used_up_until = max(self._used_up_until, time.monotonic() + wait)

    def per_minute(self, *units: Unit) -> float | None:
        """The lowest limit of these units per minute, by the user or by headers; None where there is none."""
        rates = (bucket.per_second * _MINUTE for (unit, _), bucket in self._buckets.items() if unit in units)
        return min(rates, default=None)


class Bucket:
    """A known limit of so many units (requests or tokens) per second, spaced evenly: what is taken delays what comes next.

    What the server counted less than was taken is credit for the next attempts, up to `CREDIT` seconds of it. Times are seconds of a clock that only grows.
    """

    CREDIT = 2.0

    def __init__(self, per_second: float):
        self.per_second = per_second
        self.free_from = self._credit = 0.0

    def take(self, amount: float, now: float) -> None:
        """An attempt of so many units starts."""
        from_credit = min(self._credit, amount)
        self._credit -= from_credit
        self.free_from = max(self.free_from, now) + (amount - from_credit) / self.per_second

    def settle(self, amount: float) -> None:
        """The server counted so many units more (negative: fewer) than were taken."""
        self._credit = min(self._credit - amount, self.CREDIT * self.per_second)


@dataclass(slots=True)
class Demand:
    """What one request was taken to need: bytes of its messages, and tokens by unit of a limit."""

    size: float
    tokens: dict[Unit, float]


class TokenDemand:
    """The demands of the requests to one server by one judge.

    Args:
        counts: what the server's limit of tokens counts: `max_tokens` when a request arrives, or what was `used`.
        max_tokens: the longest reply that is asked for; None: none is named, and what is used counts.
    """

    def __init__(self, counts: Counted, max_tokens: int | None):
        self._longest = max_tokens if counts == "max_tokens" else None
        self._per_byte: float | None = None
        self._output: float | None = None

    def of(self, messages: Iterable[Mapping[str, str]]) -> Demand:
        """The demand of a request with these messages."""
        size = sum(_OF_MESSAGE + len(message["content"].encode("utf-8", "replace")) for message in messages)
        return Demand(
            size, self._tokens(size * (self._per_byte or 1 / _BYTES_PER_TOKEN), self._output or _FIRST_OUTPUT)
        )

    def record(self, demand: Demand, tokens_in: int, tokens_out: int) -> dict[Unit, float]:
        """A request was answered with this usage. By how many tokens it took more than its demand (negative: fewer)."""
        self._per_byte = _mean(self._per_byte, tokens_in / demand.size)
        self._output = _mean(self._output, tokens_out)
        real = self._tokens(tokens_in, tokens_out)
        return {unit: real[unit] - taken for unit, taken in demand.tokens.items()}

    def _tokens(self, tokens_in: float, tokens_out: float) -> dict[Unit, float]:
        counted = tokens_out if self._longest is None else self._longest
        return {"tokens": tokens_in + counted, "input": tokens_in, "output": tokens_out}


def _mean(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _WEIGHT * (value - mean)
