"""What the tries of one question were, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragpipe.judging.clients.base import Content
from ragpipe.schema.call import Paid


@dataclass(slots=True)
class Tally:
    """The tries of one question: `latency_ms` of the last one, the bills of all that were answered, and the last answer.

    `attempts` are those of the call, `tries` all that were sent for it, those of an outage too; `fault` says how the last one
    failed. `paid` is told of every answer at once, so that its price is kept whatever becomes of the call.
    """

    paid: Paid
    attempts: int = 0
    tries: int = 0
    fault: str = ""
    latency_ms: float | None = None
    wire_hash: str | None = None
    bills: list[tuple[float | None, str | None]] = field(default_factory=list)
    last: Content = field(default_factory=lambda: Content(None))


def together(tally: Tally) -> tuple[float | None, str | None]:
    """The price of all tries: none is for nothing because the next one gave the answer."""
    reasons = [reason for usd, reason in tally.bills if usd is None]
    if reasons or not tally.bills:
        return None, reasons[0] if reasons else "no reply with a usage came"
    return sum(usd for usd, _ in tally.bills if usd is not None), None
