"""The tries of one call that count: how many, how long in all, and how long to wait between two of them.

At most 1 + `judge.retries` tries, for every kind of fault, and no try after the call's deadline. Tries of an outage
(`judging/outage.py`) are not among them, and the deadline stands still while a gate is closed.
"""

from __future__ import annotations

from ragpipe.judging.clients.base import Fault
from ragpipe.judging.limits import backoff
from ragpipe.judging.settings import JudgeSettings

RETRYABLE = frozenset({"network", "rate_limit", "server_error", "deadline", "empty_reply", "not_an_api_answer"})
_EMPTY_RETRIES = 2  # at temperature 0 an empty reply is likely to come again, and every one is paid


class Tries:
    """What is left of one call: `limit` before each try, `failed` after one that failed."""

    def __init__(self, settings: JudgeSettings):
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

    def failed(self, fault: Fault, seconds: float, outages: int) -> float | None:
        """The wait before the next try, None when this was the last. `seconds` is how long it took, `outages` how many
        there were so far: what failed before one is laid to it, and the call has all its tries again."""
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
