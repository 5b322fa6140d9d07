"""How fast a provider may be asked: one gate and one pace for all workers.

The gate is closed for as long as the provider asked (Retry-After); nobody goes through before. The pace spaces starts: by
`judge.rpm`, and by what 429s taught (a 429 cuts the rate to nine tenths of what came through lately; it grows by a fifth
a second while calls pass), so that a real limit is met with few refusals instead of a storm.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable

_KEPT = 0.9  # of the measured rate, after a refusal
_GROWTH = 0.2  # of the rate, a second
_SLOWEST = 30.0  # seconds between two starts at worst
_WINDOW = 2.0  # seconds over which the rate of successes is measured

Sleep = Callable[[float], Awaitable[None]]
"""Waits so many seconds; one that knows of the run's end raises it instead of sitting the rest out."""


class RateLimiter:
    """`turn` before each try; `limited` and `passed` after it. All times are seconds of the monotonic clock."""

    def __init__(self, rpm: float | None = None):
        self._fixed = 60.0 / rpm if rpm else 0.0
        self._learnt = 0.0  # seconds between two starts, 0 = none learnt
        self._opens = 0.0
        self._next = 0.0
        self._cut_at = 0.0
        self._recent: deque[float] = deque(maxlen=256)

    async def turn(self, sleep: Sleep = asyncio.sleep) -> float:
        """Wait until a try may start; returns the time of its start. It belongs to no event loop: `sleep` is the caller's."""
        while True:
            now = time.monotonic()
            if now < self._opens:
                await sleep(self._opens - now)
                continue
            gap = max(self._fixed, self._learnt)
            if not gap:
                return now
            start = max(now, self._next)
            self._next = start + gap
            if start > now:
                await sleep(start - now)
                if time.monotonic() < self._opens:
                    continue
            return max(start, now)

    def wait(self, seconds: float) -> None:
        """The provider asked everybody to wait."""
        self._opens = max(self._opens, time.monotonic() + seconds)
        self._next = max(self._next, self._opens)

    def limited(self, started: float) -> None:
        """A try that began at `started` was refused by the rate limit."""
        if started <= self._cut_at:
            return  # it was on its way when the rate was cut
        now = time.monotonic()
        self._cut_at = now
        recent = [t for t in self._recent if t > now - _WINDOW]
        measured = len(recent) / max(0.25, now - recent[0]) if len(recent) >= 3 else None
        if self._learnt:
            current = 1 / self._learnt
            rate = 0.7 * current if measured is None else min(0.95 * current, max(0.5 * current, _KEPT * measured))
        elif measured is not None:
            rate = _KEPT * measured
        else:
            return  # nothing is known of its rate: the back-off of each call must do
        self._learnt = min(_SLOWEST, 1 / rate)
        self._next = max(self._next, now + self._learnt)

    def passed(self) -> None:
        """A try came through."""
        if self._learnt:
            self._learnt /= 1 + _GROWTH * min(1.0, self._learnt)
            if self._learnt < 0.0005:
                self._learnt = 0.0
        self._recent.append(time.monotonic())


def backoff(attempt: int, *, base: float = 0.5, cap: float = 30.0) -> float:
    """Full jitter: a random wait up to `base` doubled with every attempt, in seconds."""
    return random.uniform(0, min(cap, base * 2 ** (attempt - 1)))


class ConcurrencyLimit:
    """Places for questions under way: `async with` takes one. While nobody gets an answer one more may be let in, so that
    another question can be the probe."""

    def __init__(self, width: int):
        self._free = asyncio.Semaphore(width)
        self._too_many = 0

    async def __aenter__(self) -> None:
        await self._free.acquire()

    async def __aexit__(self, *_: object) -> None:
        if self._too_many:
            self._too_many -= 1
        else:
            self._free.release()

    def let_one_more_in(self, on: bool) -> None:
        """One place more; with False one less, as soon as one is free."""
        if not on:
            self._too_many += 1
        elif self._too_many:
            self._too_many -= 1
        else:
            self._free.release()
