"""The attempts of all calls to one server, within its limits: rate, outages, and the retries of each call.

A judge's transport and a live system both send through it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from ragpipe.core.errors import FATAL
from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.limits.outage import SILENT, OutageGate
from ragpipe.judging.limits.rate_limit import Demand, RateLimiter
from ragpipe.judging.limits.retries import EMPTY_RETRIES, is_passing, seconds_before_retry
from ragpipe.judging.limits.width import Slots

T = TypeVar("T")

NO_ANSWER = SILENT | {"not_an_api_answer"}
"""Errors that say nothing about the server except that it gave no answer."""
_REASONS = {
    "rate_limit": "429",
    "network": "no connection",
    "deadline": "timeout",
    "not_an_api_answer": "no usable answer",
}
"""Why a call pauses before its next attempt, by the kind of its failure; any other kind in its own words."""


@dataclass(slots=True)
class Traffic:
    """The requests to one server. Every attempt counts, retries and probes of an outage too; stored replies do not.

    `sent` were handed to the network, `answered` of them gave an answer that can be used, `failed` gave none (an error, a
    refusal, a broken or cancelled request). `waiting` calls hold their next attempt back for the server: the rate limit, a
    Retry-After, an outage, or the pause before a retry. Of the failed ones, `refusals` were refused by a rate limit (429),
    `overloads` because the server takes no more at once (503, 529, or a 429 that says so). `pauses` before a retry are each until
    when and why, `answer_seconds` what the answered requests took together; all times are monotonic.
    """

    sent: int = 0
    answered: int = 0
    failed: int = 0
    refusals: int = 0
    overloads: int = 0
    waiting: int = 0
    pauses: list[tuple[float, str]] = field(default_factory=list)
    answer_seconds: float = 0.0
    first_answer: float | None = None
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


class AttemptSettings(Protocol):
    """The settings that bound the attempts of calls: those of a judge, or of a live system."""

    @property
    def concurrency(self) -> int: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def retries(self) -> int: ...
    @property
    def outage_s(self) -> float: ...


class ServerState(Protocol):
    """What is known of a server: `answered` says that it has answered, be it with a refusal of the question."""

    answered: bool
    rate_limiter: RateLimiter


class Tally(Protocol):
    """Counts the attempts of one call; `latency_ms` is the time of the last one, which the sender sets. `demand` is what it takes
    of a limit of tokens; None: it takes nothing of one."""

    attempts: int
    last_error: str
    latency_ms: float | None
    demand: Demand | None


@dataclass(slots=True)
class _Call(Generic[T]):
    key: str
    send: Callable[[float], Awaitable[T]]
    tally: Tally
    admit: Callable[[], Awaitable[None]] | None
    seconds_left: float  # of all attempts together, without the waits between them
    empty_replies: int = 0
    last_kind: str = ""


class AttemptRunner:
    """Sends the attempts of one server's calls. It belongs to one event loop; `traffic` and `hold` may be read anywhere.

    A call has at most 1 + `retries` attempts for every kind of error, and none after twice `timeout_s` in attempts; attempts during an
    outage do not count. `questions` are slots for those under way: hold one around a call and the keeping of its answer.

    Args:
        settings: How many at once, how often, and how long.
        state: What is known of the server.
        give_up: The error for an outage that lasted too long, from its seconds and the last message.
        tell: Gets the notices for the user.
    """

    def __init__(
        self,
        settings: AttemptSettings,
        state: ServerState,
        *,
        give_up: Callable[[float, str], Exception],
        tell: Callable[[str], None],
    ):
        self._settings, self._give_up = settings, give_up
        self.state, self.traffic = state, Traffic()
        self.questions = Slots(settings.concurrency)
        self._requests = Slots(settings.concurrency, state.rate_limiter.width)
        self._outage = OutageGate(settings.outage_s, self.questions, tell)
        self._turn = asyncio.Lock()  # attempts start in the order in which they came
        self._stopped: Exception | None = None
        self._stopping = asyncio.Event()

    def share(self, state: ServerState) -> None:
        """Continue with what is known of the server elsewhere. Call it before anything is sent."""
        self.state, self._requests.width = state, state.rate_limiter.width

    def stop(self, why: Exception) -> None:
        """Start no more attempts: what waits raises `why` at once. Requests in flight go on."""
        self._stopped = self._stopped or why
        self._stopping.set()
        self._outage.release()

    def check(self) -> None:
        """Raises why nothing more is sent, where that is so."""
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)  # it is raised for every call that is left

    async def sleep(self, seconds: float) -> None:
        """Wait, unless all ends meanwhile: a provider may ask for minutes. Raises as `check`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        self.check()

    def hold(self) -> tuple[float, str] | None:
        """What holds back the calls that wait now: until when (monotonic seconds; it may have passed already), and the reason in a word or
        two. None where none waits."""
        if not self.traffic.waiting:
            return None
        if self._outage.active:
            return self._outage.next_probe, self._outage.reason
        start, why = self.state.rate_limiter.next_start(time.monotonic())
        if why:
            return start, why
        return (start, "overload") if self._requests.is_narrowed else min(list(self.traffic.pauses), default=None)

    async def run(
        self,
        key: str,
        send: Callable[[float], Awaitable[T]],
        tally: Tally,
        *,
        admit: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """Call `send` with the seconds that it may take until it succeeds or no attempt is left. Raises its last AttemptError.

        `key` names the call: an outage that one call alone has met is that call's failure. `admit` is awaited before each `send`.
        """
        call = _Call(key, send, tally, admit, 2 * self._settings.timeout_s)
        try:
            return await self._attempt(call)
        except AttemptError as error:  # most calls never fail, and tenacity would cost them more than all of this
            failed = [error]

        async def attempt() -> T:
            if failed:
                raise failed.pop()
            return await self._attempt(call)

        return await AsyncRetrying(
            retry=retry_if_exception(is_passing),
            stop=partial(self._is_last, call),
            wait=self._wait,
            sleep=partial(self._pause, call),
            reraise=True,
        )(attempt)

    def _is_last(self, call: _Call[T], attempts: RetryCallState) -> bool:
        return (
            attempts.attempt_number > self._settings.retries
            or call.empty_replies > EMPTY_RETRIES
            or call.seconds_left < 0.1 * self._settings.timeout_s
        )

    def _wait(self, attempts: RetryCallState) -> float:
        error = attempts.outcome.exception() if attempts.outcome is not None else None
        assert isinstance(error, AttemptError)
        return seconds_before_retry(error, attempts.attempt_number, has_answered=self.state.answered)

    async def _pause(self, call: _Call[T], seconds: float) -> None:
        """Wait before a retry."""
        why = _REASONS.get(call.last_kind, call.last_kind.replace("_", " "))
        pause, traffic = (time.monotonic() + seconds, why), self.traffic
        traffic.pauses.append(pause)
        traffic.waiting += 1
        try:
            await self.sleep(seconds)
        finally:
            traffic.waiting -= 1
            traffic.pauses.remove(pause)

    async def _attempt(self, call: _Call[T]) -> T:
        """One attempt that counts against the call's retries. Attempts during an outage are repeated here and do not."""
        tally, limiter = call.tally, self.state.rate_limiter
        while True:
            taken, probe = await self._acquire(tally.demand)
            with taken:
                if call.admit is not None:
                    await call.admit()
                tally.attempts += 1
                started, seconds = time.monotonic(), self._settings.timeout_s
                seconds = seconds if probe else min(seconds, call.seconds_left)
                try:
                    result = await call.send(seconds)
                except AttemptError as error:
                    tally.last_error, call.last_kind = error.message, error.kind
                    if self._record_failure(error, call.key, started, probe=probe):
                        continue
                    call.seconds_left -= min(seconds, (tally.latency_ms or 0) / 1000)
                    call.empty_replies += error.kind == "empty_reply"
                    raise
                self.state.answered = True
                self._outage.record_answer()
                limiter.pace.record_answer(time.monotonic())
                if self._requests.is_narrowed:
                    limiter.width.record_answer()
                return result

    async def _acquire(self, demand: Demand | None) -> tuple[ExitStack, bool]:
        """Wait until an attempt may start, and take a slot for it. What gives back what it has taken, and whether it is the probe of an
        outage."""
        limiter = self.state.rate_limiter
        self.traffic.waiting += 1
        try:
            while True:
                with ExitStack() as taken:
                    if probe := await self._outage.acquire():
                        taken.callback(self._outage.end_probe)
                    self.check()
                    await self._requests.acquire()
                    taken.callback(self._requests.release)
                    async with self._turn:
                        while (start := limiter.next_start(now := time.monotonic())[0]) > now:
                            await self.sleep(start - now)
                        self.check()
                        limiter.take(now, demand)
                    if probe or not self._outage.active:
                        return taken.pop_all(), probe
        finally:
            self.traffic.waiting -= 1

    def _record_failure(self, error: AttemptError, key: str, started: float, *, probe: bool) -> bool:
        """Learn from a failed attempt. Whether it is attributed to an outage, and not to its call."""
        limiter, outage, now = self.state.rate_limiter, self._outage, time.monotonic()
        is_limit = error.kind == "rate_limit"
        if error.overload:
            self.traffic.overloads += 1
            if not outage.active:  # the refused probe of an outage says nothing of a width
                limiter.width.record_refusal(started, self.traffic.in_flight + 1, now)
        elif is_limit:
            self.traffic.refusals += 1
            limiter.pace.record_refusal(started, now)
        if error.kind not in NO_ANSWER and not is_limit:
            outage.record_answer()  # a refusal of the question is an answer too
            self.state.answered = self.state.answered or error.kind not in FATAL
            return False
        # a limit of the rate refuses many requests, but not all: what is under way may be answered
        may_begin = error.kind in SILENT or (is_limit and not self.traffic.in_flight)
        if not probe and not (may_begin and self.state.answered):
            return False
        if not outage.record_failure(error, key, probe=probe):
            return False
        if outage.seconds >= self._settings.outage_s:
            raise self._give_up(outage.seconds, error.message)
        if error.retry_after is not None:
            limiter.pause(error.retry_after)
        return True
