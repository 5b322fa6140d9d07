"""From the attempts of a question to the call that is stored for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ragpipe.judging.cache_key import Question
from ragpipe.judging.clients.client import Completion
from ragpipe.judging.transports.attempt_tally import AttemptTally
from ragpipe.schema.call import Call

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
