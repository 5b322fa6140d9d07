"""The rows of the ledger of payments: one per answered attempt, whatever became of its call. No row is ever changed or deleted.

A row is written with the reply that it paid for or before it. The requests in flight of a killed process are in no ledger:
only the provider knows whether they were answered.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.schema.call import Payment
from ragpipe.schema.usage import TOKENS
from ragpipe.store.calls.call_rows import (
    Cells,
    DamagedRow,
    SharedValues,
    digest_of,
    key_bytes,
    milliseconds,
    real,
    storable_value,
    time_of,
)
from ragpipe.store.calls.store_connection import StoreConnection

_CELLS = ("mark", "iteration", "at", *TOKENS, "usd")
_COLUMNS = ("run", "model", *_CELLS, "sum")
_ADD = f"INSERT INTO payments ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_MARK_BYTES = 8


@dataclass(frozen=True, slots=True)
class PaymentEntry:
    """A payment in the ledger: by which run and iteration, and for which question.

    `mark` is the beginning of the question's key as a number: enough to tell questions apart.
    """

    mark: int
    run_id: str
    iteration: int
    payment: Payment


def payment_entry(key: str, run_id: str, iteration: int, payment: Payment) -> PaymentEntry:
    """The entry for an answered attempt. Raises ValueError for what is not a key."""
    return PaymentEntry(payment_mark(key_bytes(key)), str(storable_value(run_id)), iteration, payment)


def payment_mark(key: bytes) -> int:
    """The first eight bytes of a key as a number."""
    return int.from_bytes(key[:_MARK_BYTES], "big", signed=True)


def check_payment(entry: PaymentEntry) -> None:
    """Raises TypeError or ValueError for values that the ledger cannot hold."""
    paid = entry.payment
    tokens = [getattr(paid, name) for name in TOKENS if getattr(paid, name) is not None]
    numbers = (entry.mark, entry.iteration, *tokens)
    texts = (entry.run_id, paid.model, paid.at)
    if not all(type(n) is int for n in numbers) or not all(type(text) is str for text in texts):
        raise TypeError("no payment")
    milliseconds(paid.at)
    for number in numbers:
        storable_value(number)
    if not -(2**31) <= entry.iteration < 2**31:
        raise ValueError("no iteration")
    if paid.usd is not None and not math.isfinite(paid.usd):
        raise ValueError("no money")


def add_payments(db: StoreConnection, shared: SharedValues, entries: Sequence[PaymentEntry]) -> None:
    """Write rows. Call it in a transaction."""
    rows = []
    for entry in entries:
        paid = entry.payment
        run, model = shared_values_of(entry)
        tokens = (storable_value(getattr(paid, name)) for name in TOKENS)
        cells = (entry.mark, entry.iteration, milliseconds(paid.at), *tokens, real(paid.usd))
        numbers = shared.number("runs", run), shared.number("models", model)
        rows.append((*numbers, *cells, _sum(run, model, cells)))
    if rows:
        db.executemany(_ADD, rows)


def shared_values_of(entry: PaymentEntry) -> tuple[Cells, Cells]:
    """The shared values of a payment: its run and its model."""
    return (entry.run_id,), (str(storable_value(entry.payment.model)),)


def payment_entries(
    db: StoreConnection,
    shared: SharedValues,
    *,
    run_id: str | None = None,
    iteration: int | None = None,
    after: int | None = None,
) -> Iterator[PaymentEntry | None]:
    """The ledger in the order of writing, or a part of it; None for a damaged row.

    Args:
        db: the store.
        shared: its shared values.
        run_id: only the rows of this run.
        iteration: only the rows of this iteration.
        after: only the rows with a greater row number, which only SQLite has.
    """
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
            yield None if row is None else _entry(row, shared)
        except DamagedRow:
            yield None


def _entry(row: tuple[Any, ...], shared: SharedValues) -> PaymentEntry:
    run, model, *cells, check = row
    names = shared.cells("runs", run), shared.cells("models", model)
    try:
        if _sum(*names, tuple(cells)) != check:
            raise DamagedRow
        mark, iteration, at, *tokens, usd = cells
        paid = Payment(names[1][0] or "", time_of(at), **dict(zip(TOKENS, tokens, strict=True)), usd=usd)
        return PaymentEntry(mark, names[0][0] or "", iteration, paid)
    except (TypeError, ValueError, OverflowError):
        raise DamagedRow from None


def _sum(run: tuple[str | None, ...], model: tuple[str | None, ...], cells: tuple[Any, ...]) -> int:
    content = digest_of(run) + digest_of(model) + json.dumps(cells, allow_nan=False).encode("ascii")
    return zlib.crc32(content) - (1 << 31)  # signed: it takes four bytes in the file
