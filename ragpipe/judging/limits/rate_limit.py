"""How fast a provider may be asked: one rate limiter for all workers, and a limit on concurrent questions.

All requests pause for as long as the provider asks (Retry-After). Otherwise the limiter spaces their starts, by `judge.rpm`
and by what 429s taught: a 429 cuts the rate to nine tenths of what came through lately, and the rate grows by a fifth per
second while calls succeed. So a real limit is found with few refusals.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable

_CUT_TO = 0.9  # of the measured rate, after a refusal
_GROWTH = 0.2  # of the rate, per second
_LONGEST_GAP = 30.0  # seconds between two starts
_WINDOW = 2.0  # seconds over which the rate of successes is measured

Sleep = Callable[[float], Awaitable[None]]
"""Waits so many seconds; it may raise instead when the run ends meanwhile."""


class RateLimiter:
    """Call `acquire` before each attempt, and `record_success` or `record_limit` after it.

    All times are seconds of the monotonic clock.
    """

    def __init__(self, rpm: float | None = None):
        self._fixed_gap = 60.0 / rpm if rpm else 0.0
        self._learned_gap = 0.0  # seconds between two starts; 0: none learned
        self._paused_until = 0.0
        self._next_start = 0.0
        self._last_cut = 0.0
        self._recent: deque[float] = deque(maxlen=256)

    async def acquire(self, sleep: Sleep = asyncio.sleep) -> float:
        """Wait until an attempt may start; returns the time of its start. The limiter belongs to no event loop, so `sleep`
        is the caller's."""
        while True:
            now = time.monotonic()
            if now < self._paused_until:
                await sleep(self._paused_until - now)
                continue
            gap = max(self._fixed_gap, self._learned_gap)
            if not gap:
                return now
            start = max(now, self._next_start)
            self._next_start = start + gap
            if start > now:
                await sleep(start - now)
                if time.monotonic() < self._paused_until:
                    continue
            return max(start, now)

    def pause(self, seconds: float) -> None:
        """Hold all attempts back: the provider asked to wait."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)
        self._next_start = max(self._next_start, self._paused_until)

    def record_limit(self, started: float) -> None:
        """An attempt that began at `started` was refused by the provider's rate limit."""
        if started <= self._last_cut:
            return  # it was in flight when the rate was cut
        now = time.monotonic()
        self._last_cut = now
        recent = [t for t in self._recent if t > now - _WINDOW]
        measured = len(recent) / max(0.25, now - recent[0]) if len(recent) >= 3 else None
        if self._learned_gap:
            current = 1 / self._learned_gap
            rate = 0.7 * current if measured is None else min(0.95 * current, max(0.5 * current, _CUT_TO * measured))
        elif measured is not None:
            rate = _CUT_TO * measured
        else:
            return  # the rate is unknown: the back-off of each call has to do
        self._learned_gap = min(_LONGEST_GAP, 1 / rate)
        self._next_start = max(self._next_start, now + self._learned_gap)

    def record_success(self) -> None:
        """An attempt was not refused by the rate limit."""
        if self._learned_gap:
            self._learned_gap /= 1 + _GROWTH * min(1.0, self._learned_gap)
            if self._learned_gap < 0.0005:
                self._learned_gap = 0.0
        self._recent.append(time.monotonic())


def backoff(attempt: int, *, base: float = 0.5, cap: float = 30.0) -> float:
    """A random wait in seconds, up to `base` doubled with every attempt (full jitter) and at most `cap`."""
    return random.uniform(0, min(cap, base * 2 ** (attempt - 1)))


class ConcurrencyLimit:
    """Slots for questions in flight: `async with` takes one.

    During an outage one extra slot is allowed, so that another question can be the probe.
    """

    def __init__(self, width: int):
        self._free = asyncio.Semaphore(width)
        self._excess = 0

    async def __aenter__(self) -> None:
        await self._free.acquire()

    async def __aexit__(self, *_: object) -> None:
        if self._excess:
            self._excess -= 1
        else:
            self._free.release()

    def allow_extra(self, allowed: bool) -> None:
        """Add one slot; with False remove one, as soon as one is free."""
        if not allowed:
            self._excess += 1
        elif self._excess:
            self._excess -= 1
        else:
            self._free.release()
