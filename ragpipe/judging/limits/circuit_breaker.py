"""What ends a run although the provider answers: calls in a row that come to nothing.

Silence is no matter of the breaker: that is an outage, which is waited for (`limits/outage.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.limits.retries import RETRYABLE

_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class CircuitBreaker:
    """Counts calls in a row that failed for a passing reason, and by step those that were refused in the same words: a
    schema or a parameter that this provider does not take is refused for every case."""

    failures: int = 0
    refusals: dict[str, tuple[str, int]] = field(default_factory=dict)

    def passed(self, step: str) -> None:
        """A call of this step was answered."""
        self.failures = 0
        self.refusals.pop(step, None)

    def failed(self, step: str, fault: AttemptError, limit: int) -> tuple[str, str] | None:
        """A call of this step failed after all its tries. The kind and the text of what ends the run; None: it goes on."""
        passing = fault.kind in RETRYABLE and fault.kind != "empty_reply"
        self.failures = self.failures + 1 if passing else 0
        if self.failures >= limit:
            return "breaker", f"{self.failures} calls in a row failed after all their tries; the last: {fault.message}"
        words = _NUMBER.sub("0", fault.message)
        before, times = self.refusals.pop(step, ("", 0))
        if fault.kind == "bad_request":
            times = times + 1 if before == words else 1
            self.refusals[step] = (words, times)
            if times >= limit:
                return (
                    "bad_request",
                    f"{times} calls of {step} in a row were refused in the same words: {fault.message}",
                )
        return None
