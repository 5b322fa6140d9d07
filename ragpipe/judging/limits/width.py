"""How many requests may be in flight: slots for questions, and a width that a server's limit of concurrency narrows."""

from __future__ import annotations

import asyncio

_CUT_TO = 0.8  # of the requests that were in flight
_ROUNDS = 3.0  # of answers, each as many as the width, after which it grows by one


class LearnedWidth:
    """How many requests a server takes at once, by its refusals: 0.8 of those in flight after one, then more with every answer
    (additive increase, multiplicative decrease). It belongs to no event loop."""

    def __init__(self) -> None:
        self.limit: float | None = None
        """Requests in flight; None where nothing was learned."""
        self._last_cut = float("-inf")

    def record_refusal(self, started: float, in_flight: int, now: float) -> None:
        """An attempt that began at `started` was refused while so many were in flight, because they were too many."""
        if started <= self._last_cut:
            return  # it was in flight when the width was cut
        self._last_cut = now
        self.limit = max(1.0, _CUT_TO * min(in_flight, int(self.limit or in_flight)))

    def record_answer(self) -> None:
        """An attempt was not refused although the width held others back."""
        if self.limit is not None:
            self.limit += 1 / (_ROUNDS * self.limit)


class Slots:
    """Slots for questions or requests in flight: at most `most`, and no more than the server was learned to take (`width`). `async
    with` takes one, in order of arrival. Of one event loop."""

    def __init__(self, most: int, width: LearnedWidth | None = None):
        self.most, self.width = most, width or LearnedWidth()
        self.taken = 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    @property
    def limit(self) -> int:
        """How many may be taken now."""
        return self.most if self.width.limit is None else min(self.most, int(self.width.limit))

    @property
    def is_narrowed(self) -> bool:
        """Whether somebody waits because the server takes no more at once."""
        return self._turn.locked() and self.limit < self.most

    async def acquire(self) -> None:
        """Take a slot, as soon as one is free."""
        async with self._turn:
            while self.taken >= self.limit:
                self._freed.clear()
                await self._freed.wait()
            self.taken += 1

    def release(self) -> None:
        """Give a slot back."""
        self.taken -= 1
        self.admit()

    def admit(self) -> None:
        """Let those go that wait, where there is room: a slot was given back, or there are more of them."""
        self._freed.set()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()
