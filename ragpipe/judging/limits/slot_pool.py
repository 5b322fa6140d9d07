"""The slots of one model that this process has of those that all processes share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from ragpipe.judging.limits.width import RequestSlots

_BEATS = 4  # for which slots are kept that were in use


class SlotPool:
    """Slots that the row gave to this process, for its requests to one model. Event loops take them, the thread of the limits exchanges
    them.

    `slots` are there, `cap` of them may be used; both follow from the row. `wake` asks for a turn of the thread.
    """

    def __init__(self, wake: Callable[[], None]):
        self._wake = wake
        self._lock = Lock()
        self._slots = self._cap = self._used = self._most = 0
        self._is_alone = False
        self._peaks: deque[int] = deque([0], maxlen=_BEATS)
        self._waiting: dict[RequestSlots, asyncio.AbstractEventLoop] = {}

    def take(self) -> bool:
        """Take one slot. False: none is free."""
        with self._lock:
            if self._used >= min(self._slots, self._cap):
                return False
            self._used += 1
            self._peaks[-1] = max(self._peaks[-1], self._used)
            return True

    def give(self) -> None:
        """Give one slot back."""
        with self._lock:
            self._used -= 1
            others_wait = self._used >= self._cap or self._cap < self._slots
        if others_wait:
            self._wake()

    def wait(self, slots: RequestSlots) -> None:
        """Requests wait for slots here."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._waiting[slots] = loop
            self._most = max(self._most, slots.most)
            if self._is_alone:
                self._slots = self._cap = self._most
        if self._is_alone:
            loop.call_soon(slots.admit)
        else:
            self._wake()

    @property
    def is_used(self) -> bool:
        """Whether requests are in flight, or wait."""
        return self._used > 0 or any(slots.waiting for slots in tuple(self._waiting))

    @property
    def is_short(self) -> bool:
        """Whether requests wait for slots."""
        return any(slots.waiting for slots in tuple(self._waiting)) and self._used >= min(self._slots, self._cap)

    @property
    def used(self) -> int:
        """Requests in flight."""
        return self._used

    def offer(self, *, beat: bool) -> tuple[int, int, int]:
        """Slots that are kept, slots that are needed, and the most that there may be; what is not kept may not be used any more."""
        with self._lock:
            if beat:
                self._peaks.append(self._used)
            needed = self._used + sum(slots.waiting for slots in self._waiting)
            kept = self._used if self._cap < self._slots else max(self._used, min(self._slots, max(self._peaks)))
            kept = max(kept, min(self._slots, self._cap, needed))
            self._slots = kept
            return kept, max(needed, kept), self._most

    def leave(self) -> bool:
        """Give all slots back. False: some are in use, or waited for."""
        with self._lock:
            if self._used or any(slots.waiting for slots in self._waiting):
                return False
            self._slots = self._cap = 0
            return True

    def receive(self, slots: int, cap: int, *, alone: bool = False) -> None:
        """What the row gave; or the settings, where it cannot be used."""
        with self._lock:
            self._slots, self._cap, self._is_alone = slots, cap, alone
            waiting = [(s, loop) for s, loop in self._waiting.items() if s.waiting] if slots else []
            self._waiting = {s: loop for s, loop in self._waiting.items() if not loop.is_closed()}
        for request_slots, loop in waiting:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(request_slots.admit)

    def stand_alone(self) -> None:
        """The row cannot be used: the number of the settings holds for this process alone."""
        self.receive(self._most, self._most, alone=True)
