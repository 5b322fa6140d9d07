"""One provider as all processes know it: what this process learns goes to the row, and what others learned comes back.

Where nothing limits, the row is read and written at a beat, and at once after what others must know. Where a rate is known or was learned, every
start is reserved in it. Where the rows cannot be used, this process goes on alone and says so.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock
from typing import Any

from ragpipe.core.errors import RagpipeError
from ragpipe.judging.limits.limit_headers import Unit
from ragpipe.judging.limits.limit_rules import LimitRules
from ragpipe.judging.limits.provider_row import ProviderRow
from ragpipe.judging.limits.slot_pool import SlotPool
from ragpipe.store.files.processes import this_boot
from ragpipe.store.limits.limit_rows import Moment, Texts
from ragpipe.store.limits.limit_worker import LimitWorker
from ragpipe.store.limits.row_owners import RowOwner

BEAT_S = 0.25
"""Seconds after which a process knows what another one has met."""
_SHORT_S = 0.1  # until slots are asked for again
_LEAVES_S = 1.0  # without requests, after which this process gives back all it has
_ALONE_S = 5.0  # until rows that could not be used are tried again

Event = Callable[[ProviderRow, float], Any]
"""Something that this process knows, told to the row. The second argument are the seconds by which its clock is ahead."""


class SharedProvider:
    """The row of one provider as this process uses it. Methods may be called from any thread.

    Args:
        name: the provider and key, as a digest.
        rules: what is known of its limits.
        me: this process.
        worker: has the rows open.
        tell: gets the notice that the rows cannot be used.
    """

    def __init__(self, name: str, rules: LimitRules, me: RowOwner, worker: LimitWorker, tell: Callable[[str], None]):
        self._name, self._rules, self._me, self._worker, self._tell = f"provider {name}", rules, me, worker, tell
        self._lock = Lock()
        self._own: dict[Unit, tuple[float, str]] = {}
        self._events: list[Event] = []
        self._questions: list[tuple[Event, Future[Any]]] = []
        self._turn: tuple[list[Event], list[tuple[Event, Future[Any]]], dict[str, tuple[int, int, int]]] = ([], [], {})
        self._pools: dict[str, SlotPool] = {}
        self._last_use = -math.inf
        self._next_beat = 0.0
        self._leaves = self._is_leaving = self._is_alone = self._said = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.followers: list[Callable[[ProviderRow, float], None]] = []
        """Called in the worker's thread with the row after each turn, and by how many seconds its clock is ahead."""
        self.due = math.inf
        worker.add(self)

    def limit_own(self, unit: Unit, per_second: float, why: str) -> None:
        """Take over a limit that the user sets: the lowest of this process holds."""
        if unit not in self._own or per_second < self._own[unit][0]:
            self._own[unit] = per_second, why

    def pool(self, name: str) -> SlotPool:
        """The slots of one model."""
        with self._lock:
            return self._pools.setdefault(name, SlotPool(self._wake))

    def tell(self, event: Event, *, urgent: bool = False) -> None:
        """An event that is written to the row at the next beat, or at once."""
        if self._is_alone:
            return
        with self._lock:
            self._events.append(event)
            is_new = self.due == math.inf
        if urgent or is_new:
            self._wake()

    async def ask(self, question: Event) -> Any:
        """What the row says now; None where the rows cannot be used. Where the task is cancelled, nothing takes the answer back."""
        self._loop = asyncio.get_running_loop()
        if self._is_alone:
            return None
        future: Future[Any] = Future()
        with self._lock:
            self._questions.append((question, future))
        self._wake()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Give back all that this process has."""
        if not self._is_alone and self._last_use > -math.inf:
            future: Future[Any] = Future()
            with self._lock:
                self._leaves = True
                self._questions.append((lambda row, _: row.end(self._me.id), future))
            self._wake()
            with suppress(RagpipeError, TimeoutError):
                future.result(timeout=10)
        self._worker.remove(self)

    def _wake(self) -> None:
        if self._is_alone:
            return  # it is due when the rows are tried again
        self._last_use, self.due = time.monotonic(), 0.0
        self._worker.wake()

    # --- the worker's side ---

    def names(self) -> Collection[str]:
        """The row."""
        now = time.monotonic()
        beat = now >= self._next_beat
        if beat:
            self._next_beat = now + BEAT_S
        with self._lock:
            events, questions, self._events, self._questions = self._events, self._questions, [], []
            pools = dict(self._pools)
            self.due = math.inf
            is_used = bool(events or questions) or any(pool.is_used for pool in pools.values())
            if is_used:
                self._last_use = now
        is_idle = not is_used and now - self._last_use > _LEAVES_S
        self._is_leaving = self._leaves or (is_idle and all(pool.leave() for pool in pools.values()))
        offers = {} if self._is_leaving else {name: pool.offer(beat=beat) for name, pool in pools.items()}
        self._turn = events, questions, offers
        return {self._name}

    def step(self, texts: Texts, moment: Moment) -> tuple[Texts, Any]:
        """Tell the row what happened, ask it what was asked, and exchange slots."""
        events, questions, offers = self._turn
        ahead = 0.0 if moment.clock == this_boot() else moment.seconds - time.monotonic()
        try:
            row = ProviderRow.read(texts[self._name], self._me, moment, self._rules, self._own, leaves=self._is_leaving)
        except (ValueError, KeyError, TypeError, AttributeError):
            row = ProviderRow.read(None, self._me, moment, self._rules, self._own)  # it is no evidence
        for event in events:
            event(row, ahead)
        # One that needs none says so too: it may stay, as it waits for the end of an outage, and others need those that it had.
        granted = {name: row.slots(name, kept, needed, most) for name, (kept, needed, most) in offers.items()}
        answers = [question(row, ahead) for question, _ in questions]
        return {self._name: row.text}, (row, ahead, granted, answers)

    def done(self, result: Any) -> None:
        """Hand out what came of it."""
        row, ahead, granted, answers = result
        _, questions, offers = self._turn
        self._is_alone = False
        with self._lock:
            later = list(self._events)
        for event in later:
            event(row, ahead)  # known here already, and to be told with the next turn
        for follower in tuple(self.followers):
            follower(row, ahead)
        for name in offers:
            self._pools[name].receive(*granted[name])
        self._plan_next()
        for (_, future), answer in zip(questions, answers, strict=True):
            if future.set_running_or_notify_cancel():
                future.set_result(answer)

    def _plan_next(self) -> None:
        now = time.monotonic()
        wait = _SHORT_S if any(pool.is_short for pool in self._pools.values()) else BEAT_S
        with self._lock:
            if not self._is_leaving:
                self.due = min(self.due, now + wait)
            elif any(pool.is_used for pool in self._pools.values()) or self._events or self._questions:
                self.due = 0.0

    def failed(self, error: RagpipeError) -> None:
        """The rows cannot be used: the limits of this process alone hold."""
        _, questions, _ = self._turn
        self._is_alone = True
        for pool in self._pools.values():
            pool.stand_alone()
        if not self._said:
            self._said = True
            self._say(f"limits hold in this process alone, other processes have theirs: {error}")
        with self._lock:
            self.due = time.monotonic() + _ALONE_S
            questions += self._questions
            self._questions = []
        for _, future in questions:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def _say(self, text: str) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            self._tell(text)
            return
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._tell, text)
