"""How fast a provider may be asked: one rate limiter for all workers.

What holds an attempt back, most trusted first: the provider asked to wait (Retry-After); a header says that a limit is used up;
a limit is known, by `rpm` and `tpm` or by a header of a provider whose headers are known; refusals have taught a pace.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ragpipe.judging.limits.limit_headers import Counted, LimitRules, LimitState, Unit, read_limits
from ragpipe.judging.limits.pace import LearnedPace
from ragpipe.judging.limits.retries import Sleep

_BELOW_LIMIT = 1.04  # times slower than a header's limit: at the limit itself, jitter of the network causes refusals
_MINUTE = 60.0
_LONGEST_RESET = 120.0  # seconds; a header whose limit is used up for longer is left to the refusal that follows
_BYTES_PER_TOKEN = 3.5  # before the first reply: too many tokens rather than too few
_FIRST_OUTPUT = 256.0  # tokens of a reply, before the first one
_WEIGHT = 0.05  # of the newest reply in the means
_OF_MESSAGE = 8.0  # bytes that a message counts besides its text: its role and its ends


class RateLimiter:
    """Call `acquire` before each attempt; after it `record_limit` or `record_success`, `observe` with the headers of its
    response, and `settle` with its usage.

    Attempts start in the order in which they came. All times are seconds of the monotonic clock. It belongs to no event loop.

    Args:
        rpm: requests per minute, by the user; None: no such limit.
        tpm: tokens per minute, by the user; None: no such limit.
        rules: what is known of the provider's limits.
    """

    def __init__(self, rpm: float | None = None, tpm: float | None = None, rules: LimitRules | None = None):
        self.rules = rules or LimitRules()
        self.pace = LearnedPace()
        self.held_s: defaultdict[str, float] = defaultdict(float)
        """Seconds that calls were held back, summed over calls, by reason."""
        self.paused_until = 0.0
        """Until when the provider asked to wait."""
        self._used_up_until = self._pace_free_from = 0.0
        self._own: dict[Unit, Bucket] = {}
        self._stated: dict[Unit, Bucket] = {}
        self._held_by_pace = False
        self._last_demand: Mapping[Unit, float] = {}
        self._queue: deque[asyncio.Future[None]] = deque()
        self.configure(rpm, tpm)

    def configure(self, rpm: float | None, tpm: float | None) -> None:
        """Take over the limits of one more judge under the same key: the lowest hold."""
        limits: tuple[tuple[Unit, float | None, str], ...] = (("requests", rpm, "rpm"), ("tokens", tpm, "tpm"))
        for unit, limit, why in limits:
            if limit is not None and (unit not in self._own or limit < self._own[unit].per_second * _MINUTE):
                self._own[unit] = Bucket(limit / _MINUTE, why)
        self._list_buckets()

    def _list_buckets(self) -> None:
        self._buckets = [*self._own.items(), *self._stated.items()]
        self.counts_tokens = any(unit != "requests" for unit, _ in self._buckets)
        """Whether attempts are held by a limit of tokens: `acquire` then needs their demand."""

    def next_start(self, now: float) -> tuple[float, str]:
        """When the next attempt may start, and what holds it back (empty: nothing)."""
        holds = [(bucket.next_start(now), bucket.why) for _, bucket in self._buckets]
        holds += [(self._used_up_until, "limit used up"), (self.paused_until, "429")]
        if self.pace.rate is not None:
            holds.append((self._pace_free_from, "429"))
        return max(((start, why) for start, why in holds if start > now), default=(now, ""))

    async def acquire(self, sleep: Sleep = asyncio.sleep, demand: Demand | None = None) -> float:
        """Wait until an attempt may start; returns the time of its start."""
        arrived = now = time.monotonic()
        if self._queue or self.next_start(arrived)[0] > arrived:
            await self._wait(sleep)
            now = time.monotonic()
        self._held_by_pace = self.pace.rate is not None and self._pace_free_from > arrived
        self.pace.record_start()
        if self.pace.rate is not None:
            self._pace_free_from = max(self._pace_free_from, now) + 1 / self.pace.rate
        if demand is not None:
            self._last_demand = demand.tokens
        for unit, bucket in self._buckets:
            if unit == "requests":
                bucket.take(1, now)
            elif demand is not None:
                bucket.take(demand.tokens[unit], now)
        return now

    async def _wait(self, sleep: Sleep) -> None:
        """Wait in the queue; what holds its head back holds the others as long for the same reason."""
        async with self._turn():
            while True:
                now = time.monotonic()
                start, why = self.next_start(now)
                if start <= now:
                    return
                await sleep(start - now)
                self.held_s[why] += (time.monotonic() - now) * len(self._queue)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Inside, this attempt is at the head of the queue."""
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            if self._queue[0] is not turn:
                await turn
            yield
        finally:
            was_head = self._queue[0] is turn
            self._queue.remove(turn)
            if was_head and self._queue and not self._queue[0].done():
                self._queue[0].set_result(None)

    def pause(self, seconds: float) -> None:
        """Hold all attempts back: the provider asked to wait."""
        self.paused_until = max(self.paused_until, time.monotonic() + seconds)

    def record_limit(self, started: float) -> None:
        """An attempt that began at `started` was refused by the provider's rate limit."""
        now = time.monotonic()
        self.pace.record_refusal(started, now)
        if self.pace.rate is not None:
            self._pace_free_from = max(self._pace_free_from, now + 1 / self.pace.rate)

    def record_success(self) -> None:
        """An attempt was not refused by the rate limit."""
        self.pace.record_answer(time.monotonic(), is_held=self._held_by_pace)

    def settle(self, excess: Mapping[Unit, float]) -> None:
        """The server counted so many tokens more than an attempt's demand (negative: fewer)."""
        for unit, bucket in self._buckets:
            if unit != "requests":
                bucket.settle(excess[unit])

    def observe(self, headers: Mapping[str, str]) -> None:
        """Take over what the headers of a response say of the provider's limits."""
        for limit in read_limits(headers, self.rules.style):
            per_second = self._stated_rate(limit)
            if per_second is not None:
                why = "request limit" if limit.unit == "requests" else "token limit"
                self._stated.setdefault(limit.unit, Bucket(per_second, why)).per_second = per_second
                self._list_buckets()
            if limit.remaining is not None:
                missing = (
                    1.0 if limit.unit == "requests" else self._last_demand.get(limit.unit, 1.0)
                ) - limit.remaining
                waits = [limit.reset_s, None if per_second is None else missing / per_second]
                wait = min((wait for wait in waits if wait is not None), default=None)
                if missing > 0 and wait is not None and wait <= _LONGEST_RESET:
                    self._used_up_until = max(self._used_up_until, time.monotonic() + wait)

    def _stated_rate(self, limit: LimitState) -> float | None:
        """The rate that a header's limit means, per second; None where it means none, or its meaning is not known."""
        of_a_day = limit.unit == "requests" and self.rules.requests_per_day
        if not self.rules.trusts_limits or not limit.limit or limit.window_s > _MINUTE or of_a_day:
            return None
        return limit.limit / _MINUTE / _BELOW_LIMIT

    def per_minute(self, *units: Unit) -> float | None:
        """The lowest limit of these units per minute, by the user or by headers; None where there is none."""
        return min((bucket.per_second * _MINUTE for unit, bucket in self._buckets if unit in units), default=None)


class Bucket:
    """A known limit of so many units (requests or tokens) per second, spaced evenly: what is taken delays what comes next.

    What the server counted less than was taken is credit for the next attempts, up to `CREDIT` seconds of it. Times are seconds of a clock that only grows.
    """

    CREDIT = 2.0

    def __init__(self, per_second: float, why: str):
        self.per_second, self.why = per_second, why
        self._free_from = self._credit = 0.0

    def next_start(self, now: float) -> float:
        """When the next attempt may start."""
        return max(now, self._free_from)

    def take(self, amount: float, now: float) -> None:
        """An attempt of so many units starts."""
        from_credit = min(self._credit, amount)
        self._credit -= from_credit
        self._free_from = max(self._free_from, now) + (amount - from_credit) / self.per_second

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
        asked = size * (self._per_byte or 1 / _BYTES_PER_TOKEN)
        output = self._output or _FIRST_OUTPUT
        counted = output if self._longest is None else float(self._longest)
        return Demand(size, {"tokens": asked + counted, "input": asked, "output": output})

    def record(self, demand: Demand, tokens_in: int, tokens_out: int) -> dict[Unit, float]:
        """A request was answered with this usage. By how many tokens it took more than its demand (negative: fewer)."""
        self._per_byte = _mean(self._per_byte, tokens_in / demand.size)
        self._output = _mean(self._output, float(tokens_out))
        counted = float(tokens_out) if self._longest is None else float(self._longest)
        real: dict[Unit, float] = {
            "tokens": tokens_in + counted,
            "input": float(tokens_in),
            "output": float(tokens_out),
        }
        return {unit: real[unit] - taken for unit, taken in demand.tokens.items()}


def _mean(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _WEIGHT * (value - mean)
