"""The attempts of one question, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass

from ragpipe.judging.clients.client import Completion
from ragpipe.schema.call import Paid

_NO_COMPLETION = Completion(None)


@dataclass(slots=True)
class AttemptTally:
    """What the attempts of one question have come to so far.

    `paid` is called for every answered attempt at once, so that its price is kept whatever becomes of the call.
    `attempts` counts all requests sent for the question, probes of an outage included. `answers` counts those that were
    answered, `usd` is the price of the last one. `last_error` says how the last attempt failed; `latency_ms` is its time.
    """

    paid: Paid
    attempts: int = 0
    last_error: str = ""
    latency_ms: float | None = None
    wire_hash: str | None = None
    answers: int = 0
    usd: float | None = None
    last_completion: Completion = _NO_COMPLETION
