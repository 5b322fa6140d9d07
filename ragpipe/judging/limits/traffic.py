"""What has passed to one server, in plain counts that any thread may read while requests are under way."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
_FEW_ROUNDS = 3  # answers per request under way from which the answers so far tell the rate


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


def call_rate(traffic: Sequence[Traffic], now: float, *, is_held: bool = False) -> float | None:
    """Answers per second that may be expected from now on; None before the first answer.

    In the beginning the requests under way by the mean seconds of an answer (Little's law): the first call goes alone, so
    what was answered so far says little. Later the answers since the first one. A silence counts only where it is longer than
    two answers usually take: replies of a slow judge arrive in bursts.

    Args:
        traffic: the requests to the servers that do the work.
        now: the time of `time.monotonic`.
        is_held: whether calls wait for a time that is known, such as a Retry-After: then a silence says nothing.
    """
    answered, in_flight = sum(t.answered for t in traffic), sum(t.in_flight for t in traffic)
    firsts = [t.first_answer for t in traffic if t.first_answer is not None]
    lasts = [t.last_answer for t in traffic if t.last_answer is not None]
    if not firsts or not lasts:
        return None
    latency = max(sum(t.answer_seconds for t in traffic) / max(1, answered), 1e-6)
    silence = 0.0 if is_held and not in_flight else max(0.0, now - max(lasts) - 2 * latency)
    span = max(lasts) - min(firsts) + silence
    if answered < max(2, _FEW_ROUNDS * in_flight) or span <= 0:
        return max(1, in_flight) / latency
    return (answered - 1) / span


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
