"""What the tries of one question were, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragpipe.judging.clients.client import Completion
from ragpipe.schema.call import Paid


@dataclass(slots=True)
class AttemptTally:
    """The tries of one question: `latency_ms` of the last one, how many were answered, the last answer and its price.

    `attempts` are all that were sent for it, probes of an outage too; `fault` says how the last one failed. `paid` is told
    of every answer at once, so that its price is kept whatever becomes of the call.
    """

    paid: Paid
    attempts: int = 0
    fault: str = ""
    latency_ms: float | None = None
    wire_hash: str | None = None
    answers: int = 0
    usd: float | None = None
    last: Completion = field(default_factory=lambda: Completion(None))
