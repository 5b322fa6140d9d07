"""How fast a provider may be asked: one rate limiter for all workers.

What holds an attempt back, most trusted first: the provider asked to wait (Retry-After); a header says that a limit is used up;
a limit is known, by `rpm` and `tpm` or by a header of a provider whose headers are known; refusals have taught a pace.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping

from ragpipe.judging.limits.limit_headers import LimitState, Unit, read_limits
from ragpipe.judging.limits.limit_rules import LimitRules
from ragpipe.judging.limits.pace import Bucket, LearnedPace
from ragpipe.judging.limits.token_demand import Demand

_BELOW_LIMIT = 1.04  # times slower than a header's limit: at the limit itself, jitter of the network causes refusals
_MINUTE = 60.0
_LONGEST_RESET = 120.0  # seconds; a header whose limit is used up for longer is left to the refusal that follows

Sleep = Callable[[float], Awaitable[None]]
"""Waits so many seconds; it may raise instead when the run ends meanwhile."""


class RateLimiter:
    """Call `acquire` before each attempt; after it `record_limit` or `record_success`, `observe` with the headers of its
    response, and `settle` with its usage.

    Attempts start in the order in which they came. All times are seconds of the monotonic clock.

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
        self._own: dict[Unit, Bucket] = {}
        self._stated: dict[Unit, Bucket] = {}
        self._buckets: list[tuple[Unit, Bucket]] = []
        self._paused_until = self._used_up_until = self._pace_free_from = 0.0
        self._held_by_pace = False
        self._last_demand: Mapping[Unit, float] = {}
        self._queue: deque[asyncio.Future[None]] = deque()
        self.configure(rpm, tpm)

    def configure(self, rpm: float | None, tpm: float | None) -> None:
        """Take over the limits of one more judge under the same key: the lowest hold."""
        limits: tuple[tuple[Unit, float | None, str], ...] = (("requests", rpm, "rpm"), ("tokens", tpm, "tpm"))
        for unit, limit, why in limits:
            if limit is not None and (unit not in self._own or limit / _MINUTE < self._own[unit].per_second):
                self._own[unit] = Bucket(limit / _MINUTE, why)
        self._list_buckets()

    def _list_buckets(self) -> None:
        self._buckets = [*self._own.items(), *self._stated.items()]
        self.counts_tokens = any(unit != "requests" for unit, _ in self._buckets)
        """Whether attempts are held by a limit of tokens: `acquire` then needs their demand."""

    @property
    def paused_until(self) -> float:
        """Until when the provider asked to wait."""
        return self._paused_until

    def next_start(self, now: float) -> tuple[float, str]:
        """When the next attempt may start, and what holds it back (empty: nothing)."""
        start, why = now, ""
        if self.pace.rate is not None and self._pace_free_from > start:
            start, why = self._pace_free_from, "429"
        for _, bucket in self._buckets:
            free_from = bucket.next_start(now)
            if free_from > start:
                start, why = free_from, bucket.why
        if self._used_up_until > start:
            start, why = self._used_up_until, "limit used up"
        if self._paused_until > start:
            start, why = self._paused_until, "429"
        return start, why

    async def acquire(self, sleep: Sleep = asyncio.sleep, demand: Demand | None = None) -> float:
        """Wait until an attempt may start; returns the time of its start. The limiter belongs to no event loop, so `sleep`
        is the caller's."""
        arrived = time.monotonic()
        if self._queue or self.next_start(arrived)[0] > arrived:
            await self._wait(sleep)
        now = time.monotonic() if self._queue or self._buckets or self.pace.rate is not None else arrived
        self._take(arrived, now, demand)
        return now

    async def _wait(self, sleep: Sleep) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            if self._queue[0] is not turn:
                await turn
            while True:
                now = time.monotonic()
                start, why = self.next_start(now)
                if start <= now:
                    return
                await sleep(start - now)
                # one call alone stands at the head: the others wait as long for the same reason
                self.held_s[why] += (time.monotonic() - now) * len(self._queue)
        finally:
            self._leave(turn)

    def _leave(self, turn: asyncio.Future[None]) -> None:
        was_head = self._queue[0] is turn
        self._queue.remove(turn)
        if was_head and self._queue and not self._queue[0].done():
            self._queue[0].set_result(None)

    def _take(self, arrived: float, now: float, demand: Demand | None) -> None:
        if self.pace.rate is not None:
            self._held_by_pace = self._pace_free_from > arrived
            self._pace_free_from = max(self._pace_free_from, now) + 1 / self.pace.rate
        if demand is not None:
            self._last_demand = demand.tokens
        for unit, bucket in self._buckets:
            if unit == "requests":
                bucket.take(1, now)
            elif demand is not None:
                bucket.take(demand.tokens[unit], now)

    def pause(self, seconds: float) -> None:
        """Hold all attempts back: the provider asked to wait."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

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
        for state in read_limits(headers, self.rules.style):
            per_second = self._stated_rate(state)
            if per_second is not None:
                self._state(state.unit, per_second)
            if state.remaining is not None:
                self._respect_remaining(state, state.remaining, per_second)

    def _stated_rate(self, state: LimitState) -> float | None:
        """The rate that a header's limit means, per second; None where it means none, or its meaning is not known."""
        if not self.rules.trusts_limits or not state.limit or state.window_s > _MINUTE:
            return None
        if state.unit == "requests" and self.rules.requests_per_day:
            return None
        return state.limit / _MINUTE / _BELOW_LIMIT

    def _state(self, unit: Unit, per_second: float) -> None:
        known = self._stated.get(unit)
        if known is None:
            self._stated[unit] = Bucket(per_second, "request limit" if unit == "requests" else "token limit")
            self._list_buckets()
        elif known.per_second != per_second:
            known.per_second = per_second

    def _respect_remaining(self, state: LimitState, remaining: float, per_second: float | None) -> None:
        """Hold attempts back where less is left than the next one needs: until so much is back, or until the reset."""
        missing = (1.0 if state.unit == "requests" else self._last_demand.get(state.unit, 1.0)) - remaining
        if missing <= 0:
            return
        wait = state.reset_s if per_second is None else missing / per_second
        if per_second is not None and state.reset_s is not None:
            wait = min(missing / per_second, state.reset_s)
        if wait is not None and wait <= _LONGEST_RESET:
            self._used_up_until = max(self._used_up_until, time.monotonic() + wait)

    def per_minute(self, *units: Unit) -> float | None:
        """The lowest limit of these units per minute, by the user or by headers; None where there is none."""
        limits = [bucket.per_second * _MINUTE for unit, bucket in self._buckets if unit in units]
        return min(limits, default=None)


def backoff(attempt: int, *, base: float = 0.5, cap: float = 30.0) -> float:
    """A random wait in seconds, up to `base` doubled with every attempt (full jitter) and at most `cap`."""
    return random.uniform(0, min(cap, base * 2 ** (attempt - 1)))
