"""The rows of the ledger of payments: one per answered attempt, whatever became of its call. No row is ever changed or deleted.

A row is written with the reply that it paid for or before it. The requests in flight of a killed process are in no ledger:
only the provider knows whether they were answered.
"""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

from ragpipe.core.call import Call, Payment
from ragpipe.core.errors import OutputError, RagpipeError
from ragpipe.core.usage import TOKENS
from ragpipe.store.call_rows import (
    Cells,
    DamagedRow,
    PackedCall,
    SharedValues,
    StoreConnection,
    digest_of,
    key_bytes,
    milliseconds,
    real,
    storable_value,
    time_of,
)

_CELLS = ("mark", "iteration", "at", *TOKENS, "usd")
_COLUMNS = ("run", "model", *_CELLS, "sum")
_ADD = f"INSERT INTO payments ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"


def ledger_payment(key: str, run_id: str, iteration: int, payment: Payment) -> Payment:
    """A payment with who paid for which question. Raises ValueError for what is not a key."""
    mark, run_id = payment_mark(key_bytes(key)), str(storable_value(run_id))
    return replace(payment, mark=mark, run_id=run_id, iteration=iteration)


def payment_mark(key: bytes) -> int:
    """The first eight bytes of a key as a number."""
    return int.from_bytes(key[:8], "big", signed=True)


def check_payment(paid: Payment) -> None:
    """Raises TypeError or ValueError for values that the ledger cannot hold."""
    tokens = [getattr(paid, name) for name in TOKENS if getattr(paid, name) is not None]
    numbers = (paid.mark, paid.iteration, *tokens)
    texts = (paid.run_id, paid.model, paid.at)
    if not all(type(n) is int for n in numbers) or not all(type(text) is str for text in texts):
        raise TypeError("no payment")
    milliseconds(paid.at)
    for number in numbers:
        storable_value(number)
    if not -(2**31) <= paid.iteration < 2**31:
        raise ValueError("no iteration")
    if paid.usd is not None and not math.isfinite(paid.usd):
        raise ValueError("no money")


def add_payments(db: StoreConnection, shared: SharedValues, payments: Sequence[Payment]) -> None:
    """Write rows. Call it in a transaction."""
    rows = []
    for paid in payments:
        run, model = shared_values_of(paid)
        tokens = (storable_value(getattr(paid, name)) for name in TOKENS)
        cells = (paid.mark, paid.iteration, milliseconds(paid.at), *tokens, real(paid.usd))
        numbers = shared.number("runs", run), shared.number("models", model)
        rows.append((*numbers, *cells, _sum(run, model, cells)))
    if rows:
        db.executemany(_ADD, rows)


def shared_values_of(paid: Payment) -> tuple[Cells, Cells]:
    """The shared values of a payment: its run and its model."""
    return (paid.run_id,), (str(storable_value(paid.model)),)


def payments_in(
    db: StoreConnection,
    shared: SharedValues,
    *,
    run_id: str | None = None,
    iteration: int | None = None,
    after: int | None = None,
) -> Iterator[Payment | None]:
    """The ledger in the order of writing, or the rows of a run, of an iteration, or with a greater row number than `after`,
    which only SQLite has; None for a damaged row."""
    parts, values = ["TRUE"], list[Any]()
    if after is not None:
        parts.append("rowid > ?")
        values.append(after)
    if run_id is not None:
        parts.append("run = ?")
        values.append(shared.known("runs", (run_id,)))
    if iteration is not None:
        parts.append("iteration = ?")
        values.append(iteration)
    for row in db.scan("payments", _COLUMNS, " AND ".join(parts), values):
        try:
            yield None if row is None else _payment(row, shared)
        except DamagedRow:
            yield None


def _payment(row: tuple[Any, ...], shared: SharedValues) -> Payment:
    run, model, *cells, check = row
    names = shared.cells("runs", run), shared.cells("models", model)
    try:
        if _sum(*names, tuple(cells)) != check:
            raise DamagedRow
        mark, iteration, at, *tokens, usd = cells
        return Payment(
            names[1][0] or "",
            time_of(at),
            **dict(zip(TOKENS, tokens, strict=True)),
            usd=usd,
            mark=mark,
            run_id=names[0][0] or "",
            iteration=iteration,
        )
    except (TypeError, ValueError, OverflowError):
        raise DamagedRow from None


def _sum(run: tuple[str | None, ...], model: tuple[str | None, ...], cells: tuple[Any, ...]) -> int:
    content = digest_of(run) + digest_of(model) + json.dumps(cells, allow_nan=False).encode("ascii")
    return zlib.crc32(content) - (1 << 31)  # signed: it takes four bytes in the file


FIRST_POLL_S = 0.02


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
class AbortRequest(StoreRequest):
    """From now on, requests that would have to wait raise `reason`."""

    reason: RagpipeError


@dataclass(eq=False)
class StopRequest(StoreRequest):
    """The last request of a store."""


SILENT_AFTER_S = 30.0


class StoreLost(OutputError):
    """The store is no more where it was: whatever would be stored from now on would be lost."""


class OpenTable(Protocol):
    """The tables of a store, used by one thread. `damaged` are the keys of damaged rows, which count as missing."""

    notices: list[str]
    damaged: set[str]

    def find(self, lookups: Sequence[Lookup]) -> list[Call | None]:
        """The stored call for each look-up, None where there is none. Nothing is written."""

    def find_or_claim(self, lookups: Sequence[Lookup]) -> list[Call | ClaimResult]:
        """The stored call for each look-up, or what came of claiming its key."""

    def holder(self, key: str) -> str:
        """The owner of the claim on a key, in words; empty where there is none, or it is this store."""

    def write(
        self, puts: Sequence[PackedCall], released: Iterable[str] = ..., paid: Sequence[Payment] = ...
    ) -> list[Call | None]:
        """Store calls, free this store's claims on their keys and on `released`, and add `paid` to the ledger.

        One result per call: None when it was stored, else the reply that another process stored after taking the claim over.
        """

    def beat(self) -> None:
        """Show other processes that this store is open."""

    def sync(self) -> None:
        """Bring committed replies to the disk. Raises StoreLost."""

    def stored_here(self) -> tuple[list[Call], list[Payment]]:
        """The calls and payments of this run since the store was opened that are lost with it."""

    def close(self) -> None:
        """Free what this store claimed and close the connection. Raises OutputError when that cannot be written."""
