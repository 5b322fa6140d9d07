"""What the tasks of a run ask of the call store's thread."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from ragpipe.core.errors import JudgeError, RagpipeError
from ragpipe.schema.call import Call
from ragpipe.store.calls.call_rows import PackedCall, milliseconds
from ragpipe.store.calls.ledger_rows import PaymentEntry

FIRST_POLL_S = 0.02
FREED_DIGITS = 8
"""Digits of a key that say which claim was freed."""


@dataclass(frozen=True)
class Freshness:
    """Which stored calls may answer a question.

    Replies do if `replies` is true, and failures of the same run if they were noted at `failures_since` (seconds of the epoch) or
    later. The time of a call is by the clock of the host that asked, whatever the database.
    """

    replies: bool = True
    failures_since: float = -math.inf

    ANY: ClassVar[Freshness]
    """Replies, and failures of the same run."""
    NO_FAILURES: ClassVar[Freshness]
    """Replies alone: what failed before is asked again."""
    NONE: ClassVar[Freshness]
    """No stored call: the question is asked again."""

    @property
    def has_failures(self) -> bool:
        """Whether any failure may answer."""
        return self.failures_since < math.inf

    def accepts(self, call: Call) -> bool:
        """Whether this stored call of the same run may answer. A failure without a time is older than any."""
        if call.status == "ok":
            return self.replies
        noted = milliseconds(call.created_at)
        return self.failures_since <= (-math.inf if noted is None else noted / 1000)


Freshness.ANY = Freshness()
Freshness.NO_FAILURES = Freshness(failures_since=math.inf)
Freshness.NONE = Freshness(replies=False, failures_since=math.inf)


class ClaimResult(Enum):
    """The answer to a claim on a key."""

    GRANTED = "granted"
    HELD = "held by another store, or by another task of this one"


class Lookup(NamedTuple):
    """A key, which stored calls may answer it, and one that may not (`rejected`)."""

    key: str
    freshness: Freshness = Freshness.ANY
    rejected: Call | None = None


@dataclass(eq=False, kw_only=True)
class StoreRequest:
    """Base of all requests. `future` is None where nobody waits for the outcome."""

    future: asyncio.Future[Any] | None = None


@dataclass(eq=False)
class GetOrClaimRequest(StoreRequest):
    """The stored call, or a claim on the key. While another store holds the claim, the request waits."""

    lookup: Lookup
    due: float = 0.0  # when it is tried next, by the monotonic clock
    delay_s: float = FIRST_POLL_S  # until the next time
    waiting_since: float | None = None

    @property
    def key(self) -> str:
        return self.lookup.key


@dataclass(eq=False)
class PutRequest(StoreRequest):
    """A call to store; it ends the claim on its key."""

    key: str
    row: PackedCall


@dataclass(eq=False)
class ReleaseRequest(StoreRequest):
    """The end of a claim without an answer."""

    key: str


@dataclass(eq=False)
class PaymentRequest(StoreRequest):
    """A payment for the ledger, committed with the next call at the latest."""

    entry: PaymentEntry


@dataclass(eq=False)
class AbortRequest(StoreRequest):
    """From now on, requests that would have to wait raise `reason`."""

    reason: RagpipeError


@dataclass(eq=False)
class EndWaitingRequest(StoreRequest):
    """From now on, requests that would have to wait for another process raise `reason`. Those for a key that a task of this store
    is asking still wait: its call in flight completes."""

    reason: JudgeError


@dataclass(eq=False)
class StopRequest(StoreRequest):
    """The last request of a store."""
