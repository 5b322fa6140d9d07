"""Whether a failed call is tried again and when, and the circuit breaker, which ends a run whose provider answers but whose calls
keep failing."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from ragpipe.judging.clients.client import AttemptError

RETRYABLE = frozenset({"network", "rate_limit", "server_error", "deadline", "empty_reply", "not_an_api_answer"})
"""Kinds of error after which another attempt may succeed."""
EMPTY_RETRIES = 2  # at temperature 0 an empty reply is likely to come again, and every one is paid
_MOST_BEFORE_AN_ANSWER = 2.0  # seconds: that nothing answers is told within half a minute


def is_passing(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    return isinstance(error, AttemptError) and error.kind in RETRYABLE and not error.permanent


def seconds_before_retry(error: AttemptError, attempt: int, *, has_answered: bool) -> float:
    """The wait after the failure of an attempt (1: the first). The Retry-After of a rate limit is for all calls, and waited for
    elsewhere: this spreads their restarts. That of any other failure, such as 503, is for the call that met it; when failures follow
    each other without an answer it is an outage, which holds all. `has_answered`: the server has answered before."""
    wait = backoff(1 if error.retry_after is not None else attempt)
    if error.kind == "rate_limit":
        return wait
    return (wait if has_answered else min(wait, _MOST_BEFORE_AN_ANSWER)) + (error.retry_after or 0.0)


def backoff(attempt: int, *, base: float = 0.5, cap: float = 30.0) -> float:
    """A random wait in seconds, up to `base` doubled with every attempt (full jitter) and at most `cap`."""
    return random.uniform(0, min(cap, base * 2 ** (attempt - 1)))


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
