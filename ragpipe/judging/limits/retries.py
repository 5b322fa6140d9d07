"""The tries of one call that count: how many, how long in all, and how long to wait between two of them.

At most 1 + `judge.retries` tries, for every kind of fault, and no try after the call's deadline. Tries of an outage
(`limits/outage.py`) are not among them, and the deadline stands still while a gate is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, retry_if_exception

from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.limits.rate_limit import Sleep, backoff
from ragpipe.judging.settings import JudgeSettings

T = TypeVar("T")

RETRYABLE = frozenset({"network", "rate_limit", "server_error", "deadline", "empty_reply", "not_an_api_answer"})
_EMPTY_RETRIES = 2  # at temperature 0 an empty reply is likely to come again, and every one is paid


class RetryLoop:
    """What is left of one call: `limit` before each try, `failed` after one that failed, `wait` then says how long to wait
    before the next, None when that was the last."""

    def __init__(self, settings: JudgeSettings):
        self.wait: float | None = None
        self._settings = settings
        self._tries = self._empty = self._outage = 0
        self._used = 0.0  # seconds

    @property
    def limit(self) -> float:
        """Seconds that the next try may take. A try that took its whole time leaves a little less than another one: that is
        no reason to cut the next."""
        whole = self._settings.timeout_s
        return max(0.001, self._left if self._left < 0.9 * whole else whole)

    @property
    def _left(self) -> float:
        """Of `judge.deadline_s`; null: twice `judge.timeout_s`, and the waits between tries are not counted."""
        given = self._settings.deadline_s
        left = (2 * self._settings.timeout_s if given is None else given) - self._used
        return left if given is not None or left > 0.1 * self._settings.timeout_s else 0.0

    async def __call__(self, attempt: Callable[[], Awaitable[T]], sleep: Sleep) -> T:
        """Try until `attempt` succeeds or was the last. It tells `failed` of its fault. Raises that of the last one."""
        try:
            return await attempt()
        except AttemptError as fault:
            if self.wait is None:
                raise
            first = [fault]

        async def attempts() -> T:  # the loop costs more than the rest of a call: only those that failed once enter it
            if first:
                raise first.pop()
            return await attempt()

        again = retry_if_exception(lambda error: isinstance(error, AttemptError) and self.wait is not None)
        return await AsyncRetrying(retry=again, wait=lambda _: self.wait or 0.0, sleep=sleep, reraise=True)(attempts)

    def failed(self, fault: AttemptError, seconds: float, outages: int) -> None:
        """A try ended in `fault` after so many seconds. `outages` is how many there were so far: what failed before one is
        laid to it, and the call has all its tries again."""
        self.wait = self._next_wait(fault, seconds, outages)

    def _next_wait(self, fault: AttemptError, seconds: float, outages: int) -> float | None:
        if outages > self._outage:
            self._tries, self._empty, self._outage = 0, 0, outages
        self._tries += 1
        self._empty += fault.kind == "empty_reply"
        self._used += seconds
        if fault.kind not in RETRYABLE or fault.final:
            return None
        if self._tries > self._settings.retries or self._empty > _EMPTY_RETRIES or self._left <= 0:
            return None
        # after a Retry-After the gate holds everybody back for as long as was asked; this spreads them behind it
        wait = backoff(1 if fault.retry_after is not None else self._tries)
        if self._settings.deadline_s is not None:
            self._used += wait
            if self._left <= 0:
                return None
        return wait
