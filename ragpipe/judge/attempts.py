"""The attempts of all calls to one server, a judge's or a live system's: rate, outages, and the retries of each call."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from ragpipe.core.errors import FATAL
from ragpipe.judge.client import AttemptError
from ragpipe.judge.limits import SILENT, Demand, OutageGate, RateLimiter, Slots

T = TypeVar("T")

NO_ANSWER = SILENT | {"not_an_api_answer"}
"""Errors that say nothing about the server except that it gave no answer."""
_WHY = {"rate_limit": "429", "network": "no connection", "deadline": "timeout", "not_an_api_answer": "no usable answer"}
"""Why a call pauses before its next attempt, by the kind of its failure; any other kind in its own words."""


class AttemptSettings(Protocol):
    """What bounds the attempts of calls, of a judge or of a live system."""

    @property
    def concurrency(self) -> int: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def retries(self) -> int: ...
    @property
    def outage_s(self) -> float: ...


@dataclass(slots=True)
class ServerState:
    """What is known of a server, on no event loop. `answered`: a model has, be it with a refusal; `answered_before`: in an earlier start."""

    rate_limiter: RateLimiter
    answered: bool = False
    answered_before: bool = False


@dataclass(slots=True)
class Tally:
    """The attempts of one call: how many requests were sent, probes of an outage included, how the last one failed, and its time,
    which the sender sets. `demand` is what an attempt takes of a limit of tokens; None: nothing."""

    attempts: int = 0
    last_error: str = ""
    latency_ms: float | None = None
    demand: Demand | None = None


class AttemptRunner:
    """Sends the attempts of one server's calls. It belongs to one event loop; `traffic` and `hold` may be read anywhere.

    A call has at most 1 + `retries` attempts for every kind of error, and none after twice `timeout_s` in attempts; attempts during an
    outage do not count. `questions` are slots for those under way: hold one around a call and the keeping of its answer. `give_up`
    makes the error for an outage that lasted too long, from its seconds and the last message; `tell` gets notices for the user.
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
        self._open: set[str] = set()  # calls under way
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
        """Until when (monotonic seconds, perhaps past) and why, in a word or two, calls are held back; None where none waits."""
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
        settings, seconds_left, empty_replies, why = self._settings, 2 * self._settings.timeout_s, 0, ""

        async def attempt() -> T:
            nonlocal seconds_left, empty_replies
            try:
                return await self._attempt(key, send, tally, admit, seconds_left)
            except AttemptError as error:
                empty_replies += error.kind == "empty_reply"
                # the waits between attempts do not count
                seconds_left -= min(settings.timeout_s, (tally.latency_ms or 0) / 1000)
                raise

        failed: list[AttemptError] = []

        async def again() -> T:
            if failed:
                raise failed.pop()
            return await attempt()

        def is_last(tried: RetryCallState) -> bool:
            spent = empty_replies > EMPTY_RETRIES or seconds_left < 0.1 * settings.timeout_s
            return spent or tried.attempt_number > settings.retries

        def wait(tried: RetryCallState) -> float:
            nonlocal why
            error = tried.outcome.exception() if tried.outcome else None
            assert isinstance(error, AttemptError)
            why = _WHY.get(error.kind, error.kind.replace("_", " "))
            return seconds_before_retry(error, tried.attempt_number, has_answered=self.state.answered)

        self._open.add(key)
        try:
            try:
                return await attempt()
            except AttemptError as error:
                failed.append(error)  # nearly no call comes here: what repeats is made for those that do
            retrying = AsyncRetrying(
                retry=retry_if_exception(is_passing), stop=is_last, wait=wait, sleep=lambda s: self._pause(s, why), reraise=True
            )
            return await retrying(again)
        finally:
            self._open.discard(key)

    async def _pause(self, seconds: float, why: str) -> None:
        pause, traffic = (time.monotonic() + seconds, why), self.traffic
        traffic.pauses.append(pause)
        traffic.waiting += 1
        try:
            await self.sleep(seconds)
        finally:
            traffic.waiting -= 1
            traffic.pauses.remove(pause)

    async def _attempt(
        self,
        key: str,
        send: Callable[[float], Awaitable[T]],
        tally: Tally,
        admit: Callable[[], Awaitable[None]] | None,
        seconds_left: float,
    ) -> T:
        """One attempt that counts against the call's retries. Attempts during an outage are repeated here and do not."""
        limiter = self.state.rate_limiter
        while True:
            taken, probe = await self._acquire(tally.demand)
            with taken:
                if admit is not None:
                    await admit()
                tally.attempts += 1
                started, seconds = time.monotonic(), self._settings.timeout_s
                try:
                    result = await send(seconds if probe else min(seconds, seconds_left))
                except AttemptError as error:
                    tally.last_error = error.message
                    if self._record_failure(error, key, started, probe=probe):
                        continue
                    raise
                self.state.answered = True
                self._outage.record_answer()
                limiter.pace.record_answer(time.monotonic())
                if self._requests.is_narrowed:
                    limiter.width.record_answer()
                return result

    async def _acquire(self, demand: Demand | None) -> tuple[ExitStack, bool]:
        """Wait until an attempt may start. What gives back what it has taken, and whether it is the probe of an outage."""
        limiter = self.state.rate_limiter
        self.traffic.waiting += 1
        try:
            while True:
                with ExitStack() as taken:
                    probe = await self._outage.acquire(taken)
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
        may_begin = may_begin and self.state.answered
        if not (probe or may_begin) or not outage.record_failure(error, key, probe=probe):
            return False
        if outage.seconds >= self._settings.outage_s:
            if outage.blame_questions(self._open, error):
                return False
            raise self._give_up(outage.seconds, error.message)
        if error.retry_after is not None:
            limiter.pause(error.retry_after)
        return True


RETRYABLE = frozenset({"network", "rate_limit", "server_error", "deadline", "empty_reply", "not_an_api_answer"})
"""Kinds of error after which another attempt may succeed."""
RETRY_AFTER_CAP_S = 120.0
"""The longest wait that a server may ask for. A longer one ends the run: the same command goes on later."""
EMPTY_RETRIES = 2  # at temperature 0 an empty reply is likely to come again, and every one is paid
_MOST_BEFORE_AN_ANSWER = 2.0  # seconds: that nothing answers is told within half a minute


def is_passing(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    return isinstance(error, AttemptError) and error.kind in RETRYABLE and not error.permanent


def seconds_before_retry(error: AttemptError, attempt: int, *, has_answered: bool) -> float:
    """The wait after the failure of an attempt (1: the first). The Retry-After of a rate limit is for all calls, and waited for
    elsewhere: this spreads their restarts. That of any other failure, such as 503, is for the call that met it. `has_answered`: the
    server has answered before."""
    wait = backoff(1 if error.retry_after is not None else attempt)
    if error.kind == "rate_limit":
        return wait
    return (wait if has_answered else min(wait, _MOST_BEFORE_AN_ANSWER)) + (error.retry_after or 0.0)


def backoff(attempt: int) -> float:
    """A random wait, up to 0.5 s doubled with every attempt (full jitter) and at most 30 s."""
    return random.uniform(0, min(30.0, 0.5 * 2 ** (attempt - 1)))


_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class CircuitBreaker:
    """Counts consecutive failed calls.

    `failures` counts those that failed for a passing reason. `refusals` holds, by step, the words and the count of calls
    that were refused in the same words: a schema or parameter that the provider does not take is refused for every case.
    Replies without a text are counted like refusals, but only for a step (not in `answered`) that no reply had a text for.
    """

    failures: int = 0
    refusals: dict[str, tuple[str, int]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)

    def record_success(self, step: str) -> None:
        """A call of this step was answered."""
        self.failures = 0
        self.refusals.pop(step, None)
        self.answered.add(step)

    def record_failure(self, step: str, error: AttemptError, limit: int) -> tuple[str, str] | None:
        """A call of this step failed after all its attempts. The kind and the message that end the run; None: go on."""
        is_empty = error.kind == "empty_reply"
        self.failures = self.failures + 1 if error.kind in RETRYABLE and not is_empty else 0
        if self.failures >= limit:
            return "breaker", f"{self.failures} calls in a row failed after all their tries; the last: {error.message}"
        words, times = self.refusals.pop(step, ("", 0))
        if error.kind != "bad_request" and (not is_empty or step in self.answered):
            return None
        now = _NUMBER.sub("0", error.message)
        self.refusals[step] = now, (times := times + 1 if words == now else 1)
        if times < limit:
            return None
        if is_empty:
            return "breaker", f"none of the first {times} replies to {step} had a text; the last: {error.message}"
        return "bad_request", f"{times} calls of {step} in a row were refused in the same words: {error.message}"


@dataclass(slots=True)
class Traffic:
    """The requests to one server. Every attempt counts, retries and probes of an outage too; stored replies do not.

    `sent` were handed to the network, `answered` of them gave an answer that can be used, `failed` gave none (an error, a
    refusal, a broken or cancelled request). `waiting` calls hold their next attempt back for the server: the rate limit, a
    Retry-After, an outage, or the pause before a retry. Of the failed ones, `refusals` were refused by a rate limit (429),
    `overloads` because the server takes no more at once (503, 529, or a 429 that says so). `pauses` before a retry are each until
    when (monotonic) and why.
    """

    sent: int = 0
    answered: int = 0
    failed: int = 0
    refusals: int = 0
    overloads: int = 0
    waiting: int = 0
    pauses: list[tuple[float, str]] = field(default_factory=list)

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return max(0, self.sent - self.answered - self.failed)

    async def count(self, request: Awaitable[T]) -> T:
        """Count one request, and how it ends."""
        self.sent += 1
        try:
            answer = await request
        except BaseException:
            self.failed += 1
            raise
        self.answered += 1
        return answer
