"""The attempts of one call: how many, how long in all, and how long to wait between two of them. The time of a case, and the circuit
breaker, which ends a run whose provider answers but whose calls keep failing.

At most 1 + `retries` attempts, for every kind of error, and none after the call's deadline. Attempts during an outage
(`outage.py`) do not count, and waits do not count.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, TypeVar

from tenacity import AsyncRetrying, retry_if_exception

from ragpipe.judging.clients.client import AttemptError

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
"""Waits so many seconds; it may raise instead when the run ends meanwhile."""

RETRYABLE = frozenset({"network", "rate_limit", "server_error", "deadline", "empty_reply", "not_an_api_answer"})
"""Kinds of error after which another attempt may succeed."""
_EMPTY_RETRIES = 2  # at temperature 0 an empty reply is likely to come again, and every one is paid


def holds_all(error: AttemptError) -> bool:
    """Whether the Retry-After of a failure is for all calls: a rate limit's is. That of any other failure, such as 503, is for the
    call that met it; when failures follow each other without an answer it is an outage (`outage.py`), which holds all."""
    return error.kind == "rate_limit"


class RetryLimits(Protocol):
    """The settings that bound the attempts of a call: those of a judge, or of a live system."""

    @property
    def timeout_s(self) -> float: ...
    @property
    def retries(self) -> int: ...


class RetryLoop:
    """The attempts of one call.

    Read `attempt_timeout` before each attempt and call `record_failure` after one that failed. `wait` is then the seconds
    before the next attempt, None when that was the last, and `last_kind` the kind of the failure.
    """

    def __init__(self, settings: RetryLimits):
        self.wait: float | None = None
        self.last_kind = ""
        self._settings = settings
        self._attempts = self._empty_replies = self._outages = 0
        self._elapsed = 0.0  # seconds

    @property
    def attempt_timeout(self) -> float:
        """Seconds that the next attempt may take. One that took its full time leaves slightly less than another: the next is not cut
        for that."""
        timeout = self._settings.timeout_s
        return max(0.001, self._remaining if self._remaining < 0.9 * timeout else timeout)

    @property
    def _remaining(self) -> float:
        """Seconds left of twice `timeout_s`, without the waits between attempts."""
        remaining = 2 * self._settings.timeout_s - self._elapsed
        return remaining if remaining > 0.1 * self._settings.timeout_s else 0.0

    async def run(self, attempt: Callable[[], Awaitable[T]], sleep: Sleep) -> T:
        """Call `attempt` until it succeeds or was the last. `attempt` calls `record_failure` itself. Raises the last error."""
        try:
            return await attempt()
        except (
            AttemptError
        ) as error:  # tenacity costs more than the rest of a call: only calls that failed once pay for it
            if self.wait is None:
                raise
            first = [error]

        async def attempts() -> T:
            if first:
                raise first.pop()
            return await attempt()

        def is_passing(error: BaseException) -> bool:  # a case that is late raises without `record_failure`
            return isinstance(error, AttemptError) and error.kind in RETRYABLE and self.wait is not None

        retry = retry_if_exception(is_passing)
        return await AsyncRetrying(retry=retry, wait=lambda _: self.wait or 0.0, sleep=sleep, reraise=True)(attempts)

    def record_failure(self, error: AttemptError, seconds: float, outages: int) -> None:
        """An attempt failed after so many seconds. `outages` counts those so far: failures before an outage are attributed
        to it, and the call has all its attempts again."""
        if outages > self._outages:
            self._attempts, self._empty_replies, self._outages = 0, 0, outages
        self._attempts += 1
        self._empty_replies += error.kind == "empty_reply"
        self._elapsed += seconds
        self.wait, self.last_kind = None, error.kind
        is_last = (
            self._attempts > self._settings.retries or self._empty_replies > _EMPTY_RETRIES or self._remaining <= 0
        )
        if error.kind not in RETRYABLE or error.permanent or is_last:
            return
        # after a Retry-After the wait is the one asked for; this spreads the restarts
        wait = backoff(1 if error.retry_after is not None else self._attempts)
        self.wait = wait if holds_all(error) else wait + (error.retry_after or 0.0)


def backoff(attempt: int, *, base: float = 0.5, cap: float = 30.0) -> float:
    """A random wait in seconds, up to `base` doubled with every attempt (full jitter) and at most `cap`."""
    return random.uniform(0, min(cap, base * 2 ** (attempt - 1)))


class CaseTime:
    """The time that the questions of one case may take together, in seconds.

    It runs while an attempt of the case is under way or pauses before a retry, once for several at a time. It stands still
    while all of them wait for the server: a Retry-After, a limit, an outage. `with` runs it.
    """

    def __init__(self, limit_s: float):
        self.limit_s = limit_s
        self._spent = self._since = 0.0
        self._running = 0

    @property
    def remaining(self) -> float:
        """Seconds that are left; 0 or less: none."""
        running = time.monotonic() - self._since if self._running else 0.0
        return self.limit_s - self._spent - running

    def at_most(self, seconds: float) -> float:
        """These seconds, or what is left where that is less."""
        return min(seconds, max(0.001, self.remaining))

    def __enter__(self) -> None:
        if not self._running:
            self._since = time.monotonic()
        self._running += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running -= 1
        if not self._running:
            self._spent += time.monotonic() - self._since


_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class CircuitBreaker:
    """Counts consecutive failed calls.

    `failures` counts those that failed for a passing reason. `refusals` holds, by step, the words and the count of calls
    that were refused in the same words: a schema or parameter that the provider does not take is refused for every case.
    `silent` counts, by step, the replies without a text before the first with one; None after that.
    """

    failures: int = 0
    refusals: dict[str, tuple[str, int]] = field(default_factory=dict)
    silent: dict[str, int | None] = field(default_factory=dict)

    def record_success(self, step: str) -> None:
        """A call of this step was answered."""
        self.failures = 0
        self.refusals.pop(step, None)
        self.silent[step] = None

    def record_failure(self, step: str, error: AttemptError, limit: int) -> tuple[str, str] | None:
        """A call of this step failed after all its attempts. The kind and the message that end the run; None: go on."""
        if error.kind == "empty_reply" and (silent := self.silent.get(step, 0)) is not None:
            self.silent[step] = silent + 1
            if silent + 1 >= limit:
                return (
                    "breaker",
                    f"none of the first {silent + 1} replies to {step} had a text; the last: {error.message}",
                )
        passing = error.kind in RETRYABLE and error.kind != "empty_reply"
        self.failures = self.failures + 1 if passing else 0
        if self.failures >= limit:
            return "breaker", f"{self.failures} calls in a row failed after all their tries; the last: {error.message}"
        words = _NUMBER.sub("0", error.message)
        previous_words, times = self.refusals.pop(step, ("", 0))
        if error.kind != "bad_request":
            return None
        times = times + 1 if previous_words == words else 1
        self.refusals[step] = (words, times)
        if times < limit:
            return None
        return "bad_request", f"{times} calls of {step} in a row were refused in the same words: {error.message}"
