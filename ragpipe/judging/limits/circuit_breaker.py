"""Ends a run whose provider answers but whose calls keep failing.

A provider that does not answer at all is an outage, which is waited for (`outage.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.limits.retries import RETRYABLE

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
