"""How many requests may be in flight: slots for questions, and a width that a server's limit of concurrency narrows."""

from __future__ import annotations

import asyncio
from collections import deque

_CUT_TO = 0.8  # of the requests that were in flight
_ROUNDS = 3.0  # of answers, each as many as the width, after which it grows by one, at first
_FASTER_AFTER = 100.0  # answers without a refusal: twice as fast; after twice as many three times, and so on


class LearnedWidth:
    """How many requests a server takes at once, by its refusals: 0.8 of those in flight after one, then more with every answer
    (additive increase, multiplicative decrease). It belongs to no event loop."""

    def __init__(self) -> None:
        self.limit: float | None = None
        """Requests in flight; None where nothing was learned."""
        self._last_cut = float("-inf")
        self._answers = 0  # since the last cut, while the width held attempts back

    def record_refusal(self, started: float, in_flight: int, now: float) -> None:
        """An attempt that began at `started` was refused while so many others were in flight, because they were too many."""
        if started <= self._last_cut:
            return  # it was in flight when the width was cut
        self._last_cut, self._answers = now, 0
        others = in_flight if self.limit is None else min(in_flight, int(self.limit))
        self.limit = max(1.0, _CUT_TO * others)

    def record_answer(self, *, is_held: bool) -> None:
        """An attempt was not refused. `is_held`: the width holds attempts back."""
        if self.limit is not None and is_held:
            self._answers += 1
            self.limit += (1 + self._answers / _FASTER_AFTER) / (_ROUNDS * self.limit)


class RequestSlots:
    """Slots for questions or requests in flight: at most `most`, and no more than the server was `learned` to take. `async with`
    takes one. Of one event loop."""

    def __init__(self, most: int, learned: LearnedWidth | None = None):
        self.most, self.learned = most, learned or LearnedWidth()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    @property
    def limit(self) -> int:
        """How many requests may be in flight now."""
        learned = self.learned.limit
        return self.most if learned is None else min(self.most, int(learned))

    @property
    def is_narrowed(self) -> bool:
        """Whether requests wait because the server takes no more at once."""
        return bool(self._waiting) and self.limit < self.most

    @property
    def is_full(self) -> bool:
        """Whether all slots are in use."""
        return self.taken >= self.limit

    async def acquire(self) -> None:
        """Take a slot, as soon as one is free, in order of arrival."""
        if not self._waiting and self.taken < self.limit:
            self.taken += 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()  # the slot was given at the same moment
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give a slot back."""
        self.taken -= 1
        self.admit()

    def allow_extra(self, allowed: bool) -> None:
        """Add one slot, so that another question can be the probe of an outage; with False take it away as soon as one is free."""
        self.most += 1 if allowed else -1
        self.admit()

    def admit(self) -> None:
        """Give free slots to those that wait: one is free, or the width has grown."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
            elif self.taken < self.limit:
                self.taken += 1
                self._waiting.popleft().set_result(None)
            else:
                return
