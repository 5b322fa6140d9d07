"""The attempts of all calls to one server, within its limits: rate, outages, and the retries of each call.

A judge's transport and a live system both send through it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from ragpipe.core.errors import FATAL
from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.limits.outage import SILENT, OutageGate
from ragpipe.judging.limits.rate_limit import Demand, RateLimiter
from ragpipe.judging.limits.retries import CaseTime, RetryLimits, RetryLoop, Sleep
from ragpipe.judging.limits.width import LearnedWidth, RequestSlots

T = TypeVar("T")

NO_ANSWER = SILENT | {"not_an_api_answer"}
"""Errors that say nothing about the server except that it gave no answer."""


@dataclass(slots=True)
class Traffic:
    """The requests to one server. Every attempt counts, retries and probes of an outage too; stored replies do not.

    `sent` were handed to the network, `answered` of them gave an answer that can be used, `failed` gave none (an error, a
    refusal, a broken or cancelled request). `waiting` calls hold their next attempt back for the server: the rate limit, a
    Retry-After, an outage, or the pause before a retry. Of the failed ones, `refusals` were refused by a rate limit (429),
    `overloads` because the server takes no more at once (503, 529, or a 429 that says so).
    """

    sent: int = 0
    answered: int = 0
    failed: int = 0
    refusals: int = 0
    overloads: int = 0
    waiting: int = 0
    pauses: dict[object, tuple[float, str]] = field(default_factory=dict)
    """The calls that pause before a retry: when each ends (monotonic seconds), and the kind of failure before it."""
    answer_seconds: float = 0.0
    """What the answered requests took, all together."""
    first_answer: float | None = None
    """When the first request was answered (monotonic seconds); None before."""
    last_answer: float | None = None

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return max(0, self.sent - self.answered - self.failed)

    async def count(self, request: Awaitable[T]) -> T:
        """Count one request, and how it ends."""
        self.sent += 1
        start = time.monotonic()
        try:
            answer = await request
        except BaseException:
            self.failed += 1
            raise
        self.answered += 1
        self.last_answer = time.monotonic()
        self.answer_seconds += self.last_answer - start
        if self.first_answer is None:
            self.first_answer = self.last_answer
        return answer


@dataclass(frozen=True, slots=True)
class Hold:
    """What holds requests back: `until` in monotonic seconds (it may have passed already), and the reason in a word or two."""

    until: float
    reason: str


OVERLOAD = "overload"
"""Why a call waits that a server's limit of concurrency holds back."""
RETRY_REASONS = {
    "rate_limit": "429",
    "server_error": "server error",
    "network": "no connection",
    "deadline": "timeout",
    "empty_reply": "empty reply",
    "not_an_api_answer": "no usable answer",
}
"""Why a call pauses before its next attempt, by the kind of its failure."""


class ServerState(Protocol):
    """What is known of a server: `answered` says that it has answered, be it with a refusal of the question."""

    answered: bool

    @property
    def rate_limiter(self) -> RateLimiter: ...
    @property
    def width(self) -> LearnedWidth: ...


class Tally(Protocol):
    """Counts the attempts of one call; `latency_ms` is the time of the last one, which the sender sets. `demand` is what it takes
    of a limit of tokens, `case_time` the time that is left for its case; None: neither counts."""

    attempts: int
    last_error: str
    latency_ms: float | None

    @property
    def demand(self) -> Demand | None: ...
    @property
    def case_time(self) -> CaseTime | None: ...


class AttemptRunner:
    """Sends the attempts of one server's calls. It belongs to one event loop; `traffic` and `hold` may be read anywhere.

    Args:
        limits: The settings of retries and times.
        state: What is known of the server.
        most: Requests that may be in flight at once, however many the server would take.
        outage: Holds the attempts back while the server is down.
        sleep: Waits; it raises when the run ends meanwhile.
        check: Raises where nothing more is to be sent.
        give_up: The error for an outage that lasted too long, from its seconds and the last message.
        first_wait_s: Longest back-off before the server's first answer; None: as later.
    """

    def __init__(
        self,
        limits: RetryLimits,
        state: ServerState,
        outage: OutageGate,
        *,
        most: int,
        sleep: Sleep,
        check: Callable[[], None],
        give_up: Callable[[float, str], Exception],
        first_wait_s: float | None = None,
    ):
        self._limits, self._outage = limits, outage
        self.state = state
        self._slots = RequestSlots(most, state.width)
        self._sleep, self._check, self._give_up = sleep, check, give_up
        self._first_wait_s = first_wait_s
        self.traffic = Traffic()

    def share(self, state: ServerState) -> None:
        """Continue with what is known of the server elsewhere. Call it before anything is sent."""
        self.state = state
        self._slots.learned = state.width

    def hold(self) -> Hold | None:
        """What holds back the calls that wait now; None where none waits."""
        now, limiter, pauses = time.monotonic(), self.state.rate_limiter, list(self.traffic.pauses.values())
        if not self.traffic.waiting:
            return None
        if self._outage.active:
            return Hold(self._outage.next_probe, self._outage.reason)
        if limiter.paused_until > now:
            return Hold(limiter.paused_until, "429")
        if self.traffic.waiting > len(pauses):
            start, why = limiter.next_start(now)
            if why:
                return Hold(start, why)
            if self._slots.is_narrowed:
                return Hold(now, OVERLOAD)
        if not pauses:
            return None
        until, kind = min(pauses)
        return Hold(until, RETRY_REASONS.get(kind, kind))

    async def run(
        self,
        key: str,
        send: Callable[[float], Awaitable[T]],
        tally: Tally,
        *,
        admit: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """Call `send` with the seconds that it may take until it succeeds or no attempt is left. Raises its last AttemptError.

        `key` names the call: an outage that one call alone has met is that call's failure. `admit` is awaited before each `send`: a
        wait there does not count against the time of the case.
        """
        retries = RetryLoop(self._limits)
        attempt = partial(self._attempt, key, send, admit, tally, retries)
        return await retries.run(attempt, partial(self._pause, retries, tally))

    async def _pause(self, retries: RetryLoop, tally: Tally, seconds: float) -> None:
        """Wait before a retry."""
        traffic, name = self.traffic, object()
        traffic.pauses[name] = (time.monotonic() + seconds, retries.last_kind)
        traffic.waiting += 1
        try:
            with tally.case_time or _NO_LIMIT:
                await self._sleep(seconds)
        finally:
            traffic.waiting -= 1
            del traffic.pauses[name]

    async def _attempt(
        self,
        key: str,
        send: Callable[[float], Awaitable[T]],
        admit: Callable[[], Awaitable[None]] | None,
        tally: Tally,
        retries: RetryLoop,
    ) -> T:
        """One attempt that counts against the call's retries. Attempts during an outage are repeated here and do not."""
        while True:
            raise_if_late(tally)
            probe = await self._acquire(key, tally)
            tally.attempts += 1
            if admit is not None:
                with self._given_back(probe=probe):
                    await admit()
            started, case_time = time.monotonic(), tally.case_time
            seconds = self._limits.timeout_s if probe else retries.attempt_timeout
            try:
                if case_time is not None and not probe:
                    seconds = case_time.at_most(seconds)
                with case_time or _NO_LIMIT:
                    result = await send(seconds)
            except AttemptError as error:
                tally.last_error = error.message
                self._learn_of_refusal(error, started)
                if error.kind in NO_ANSWER and not probe:
                    raise_if_late(tally, error)
                if self._is_outage(error, key, probe):
                    if error.retry_after is not None:
                        self.state.rate_limiter.pause(error.retry_after)
                    continue
                retries.record_failure(error, (tally.latency_ms or 0) / 1000, self._outage.count)
                is_first = self._first_wait_s is not None and not self.state.answered and error.retry_after is None
                if is_first and retries.wait is not None:
                    retries.wait = min(retries.wait, self._first_wait_s or 0.0)
                raise
            except BaseException:
                if probe:
                    self._outage.abandon_probe()
                raise
            finally:
                is_held = self._slots.is_full
                self._slots.release()
            self.state.answered = True
            self._outage.record_answer()
            self.state.rate_limiter.record_success()
            if self.state.width.limit is not None:
                self.state.width.record_answer(is_held=is_held)
                self._slots.admit()
            return result

    @contextmanager
    def _given_back(self, *, probe: bool, slot: bool = True) -> Iterator[None]:
        """Where it is left by an exception, the slot is free again and another may be the probe."""
        try:
            yield
        except BaseException:
            if slot:
                self._slots.release()
            if probe:
                self._outage.abandon_probe()
            raise

    def _learn_of_refusal(self, error: AttemptError, started: float) -> None:
        """What a failure says of the server's limits: that its rate is too high, or the requests in flight too many."""
        if error.overload:
            self.traffic.overloads += 1
            if not self._outage.active:  # the refused probe of an outage says nothing of a width
                self.state.width.record_refusal(started, self.traffic.in_flight + 1, time.monotonic())
        elif error.kind == "rate_limit":
            self.traffic.refusals += 1
            self.state.rate_limiter.record_limit(started)

    def _is_outage(self, error: AttemptError, key: str, probe: bool) -> bool:
        """Record a failed attempt. Whether it is attributed to an outage, and not to its call."""
        if error.kind not in NO_ANSWER and error.kind != "rate_limit":
            self._outage.record_answer()  # a refusal of the question is an answer too
            if error.kind not in FATAL:
                self.state.answered = True
            return False
        # a limit of the rate refuses many requests, but not all: what is under way may be answered
        may_begin = self.state.answered and not (error.kind == "rate_limit" and self.traffic.in_flight)
        if not self._outage.record_failure(error, key, probe=probe, answered_before=may_begin):
            return False
        if self._outage.too_long:
            raise self._give_up(self._outage.seconds, error.message)
        return True

    async def _acquire(self, key: str, tally: Tally) -> bool:
        """Wait until an attempt may start, and take a slot for it. Whether it is the probe of an outage."""
        self.traffic.waiting += 1
        try:
            while True:
                probe = await self._outage.acquire(key)
                with self._given_back(probe=probe, slot=False):
                    self._check()
                    await self._slots.acquire()
                with self._given_back(probe=probe):
                    self._check()
                    await self.state.rate_limiter.acquire(self._sleep, tally.demand)
                    self._check()
                    raise_if_late(tally)
                if probe or not self._outage.active:
                    return probe
                self._slots.release()
        finally:
            self.traffic.waiting -= 1


_NO_LIMIT = nullcontext()


def raise_if_late(tally: Tally, cause: AttemptError | None = None) -> None:
    """Raises AttemptError where the case of the call has no time left; `cause` is what its last attempt met."""
    if tally.case_time is None or tally.case_time.remaining > 0:
        return
    last = cause.message if cause is not None else tally.last_error
    message = f"the questions of this case took judge.case_deadline_s={tally.case_time.limit_s:g} s together"
    if last:
        message += f"; the last attempt: {last}"
    raise AttemptError("case_deadline", message, partial=cause.partial if cause is not None else None) from None
