"""The attempts of one question, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ragpipe.judging.clients.client import Completion
from ragpipe.judging.limits.rate_limit import Demand
from ragpipe.judging.limits.retries import CaseTime
from ragpipe.schema.call import Paid

_NO_COMPLETION = Completion(None)


@dataclass(slots=True)
class AttemptTally:
    """What the attempts of one question have come to so far.

    `paid` is called for every answered attempt at once, so that its price is kept whatever becomes of the call.
    `body` is the request body without the model's name. `attempts` counts all requests sent for the question, probes of an outage included. `answers` counts those that were
    answered, `usd` is the price of the last one. `last_error` says how the last attempt failed; `latency_ms` is its time.
    `demand` is what an attempt takes of a limit of tokens; `case_time` is the time that is left for its case.
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
    case_time: CaseTime | None = None
