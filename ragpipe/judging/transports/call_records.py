"""From the attempts of a question to the call that is stored for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ragpipe.judging.cache_key import Question
from ragpipe.judging.clients.client import Completion
from ragpipe.judging.limits.rate_limit import Demand
from ragpipe.schema.call import Call, Paid

_REDACTED = "the reply held the key, which was replaced by ***"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a question ended: `ok` or the kind of failure, and the completion (of a failed call, what could be read).

    `message` is for the user; `output_mode` is the form in which the answer was requested, `sent` the parameters that went
    with the messages.
    """

    status: str
    completion: Completion
    message: str | None
    output_mode: str
    sent: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallRecorder:
    """Builds calls from which the provider's keys are redacted: from messages, and from what the provider sent."""

    run_id: str
    redact_message: Callable[[str], str]
    redact_reply: Callable[[str], str]

    def record(self, question: Question, outcome: Outcome, tally: AttemptTally) -> Call:
        """The call of one question. Its tokens are those of the last answered attempt."""
        completion, last = outcome.completion, tally.last_completion
        text = self._redacted(completion.text)
        message = None if outcome.message is None else self.redact_message(outcome.message)
        if text != completion.text:
            message = "; ".join(filter(None, (message, _REDACTED)))
        return Call(
            key=question.key,
            payload_id=question.payload.id,
            judge=question.judge,
            status=outcome.status,
            text=text,
            message=message,
            model=self._redacted(completion.model),
            finish_reason=completion.finish_reason,
            tokens_in=last.tokens_in,
            tokens_out=last.tokens_out,
            tokens_cached=last.tokens_cached,
            tokens_reasoning=last.tokens_reasoning,
            tokens_written=last.tokens_written,
            fingerprint=self._redacted(completion.fingerprint),
            paid_usd=tally.usd,
            answers=tally.answers,
            latency_ms=tally.latency_ms,
            attempts=tally.attempts,
            output_mode=outcome.output_mode,
            sent=dict(outcome.sent),
            wire_hash=tally.wire_hash,
            fields=dict(question.fields),
            run_id=self.run_id,
            iteration=question.iteration,
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def not_asked(self, question: Question, status: str, message: str, tally: AttemptTally) -> Call:
        """The call of a question that was not sent, or not sent again, for a reason of this run. It is never stored."""
        outcome = Outcome(status, Completion(None), message, "", {})
        return self.record(question, outcome, tally)

    def _redacted(self, text: str | None) -> str | None:
        return None if text is None else self.redact_reply(text)


_NO_COMPLETION = Completion(None)


@dataclass(slots=True)
class AttemptTally:
    """What the attempts of one question have come to so far.

    `paid` is called for every answered attempt at once, so that its price is kept whatever becomes of the call.
    `body` is the request body without the model's name. `attempts` counts all requests sent for the question, probes of an outage included. `answers` counts those that were
    answered, `usd` is the price of the last one. `last_error` says how the last attempt failed; `latency_ms` is its time.
    `demand` is what an attempt takes of a limit of tokens.
    """

    paid: Paid
    attempts: int = 0
    last_error: str = ""
    latency_ms: float | None = None
    body: dict[str, Any] = field(default_factory=dict)
    wire_hash: str | None = None
    answers: int = 0
    usd: float | None = None
    last_completion: Completion = _NO_COMPLETION
    demand: Demand | None = None


_NOTICE_AFTER_S = 8.0  # without any answer; the next notice comes after twice as long, and so on


async def notify_while_silent(tally: AttemptTally, *, tries: int, place: str, notify: Callable[[str], None]) -> None:
    """Tell the user that the provider has not answered yet, after 8, 16, 32 ... seconds, of up to so many tries."""
    began, wait = time.monotonic(), _NOTICE_AFTER_S
    while True:
        await asyncio.sleep(wait)
        passed = time.monotonic() - began
        text = f"no answer yet from {place} after {passed:.0f} s: try {max(1, tally.attempts)} of {tries}"
        notify(f"{text}; the one before: {tally.last_error}" if tally.last_error else text)
        wait = passed
