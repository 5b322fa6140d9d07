"""Calls and payments as rows of a file, each with the format number and its own digest.

A row has no request header and no provider key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pyarrow as pa

from ragpipe.core.digest import sha256
from ragpipe.schema.call import Call, Payment
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.calls.ledger_rows import PaymentEntry

CALL, PAYMENT = "call", "payment"
NUMBER, KIND, DIGEST = "format", "row", "row_sha256"
JSON = ("sent", "fields")
CALLS = tuple(field.name for field in fields(Call))
PAYMENTS = ("mark", "run_id", "iteration", *(field.name for field in fields(Payment)))
NAMES = tuple(dict.fromkeys((*CALLS, *PAYMENTS)))
"""All columns except the number, the kind and the digest. A column that a row's kind does not have is null."""
_TYPES = {str(f.type).split(" ")[0]: pa.string() for f in (*fields(Call), *fields(Payment))} | {
    "int": pa.int64(),
    "float": pa.float64(),
}
_COLUMNS = {"mark": pa.int64()} | {f.name: _TYPES[str(f.type).split(" ")[0]] for f in (*fields(Call), *fields(Payment))}
SCHEMA = pa.schema(
    [
        pa.field(NUMBER, pa.int64()),
        pa.field(KIND, pa.string()),
        *(pa.field(name, _COLUMNS[name]) for name in NAMES),
        pa.field(DIGEST, pa.string()),
    ]
)


def row_of_call(call: Call) -> dict[str, Any]:
    """A call as a row with its digest."""
    cells = {name: getattr(call, name) for name in CALLS}
    return _sealed(CALL, cells | {name: json.dumps(cells[name], separators=(",", ":")) for name in JSON})


def row_of_payment(entry: PaymentEntry) -> dict[str, Any]:
    """A payment as a row with its digest."""
    paid = {field.name: getattr(entry.payment, field.name) for field in fields(Payment)}
    return _sealed(PAYMENT, {"mark": entry.mark, "run_id": entry.run_id, "iteration": entry.iteration, **paid})


def line_of_call(call: Call) -> bytes:
    """A call as a line of JSON."""
    return _line(row_of_call(call))


def line_of_payment(entry: PaymentEntry) -> bytes:
    """A payment as a line of JSON."""
    return _line(row_of_payment(entry))


def call_in(row: Mapping[str, Any]) -> Call:
    """The call of a row. Raises ValueError, TypeError for cells that are not a call."""
    cells = {name: row[name] for name in CALLS}
    return Call(**{**cells, **{name: json.loads(row[name]) for name in JSON}})


def payment_in(row: Mapping[str, Any]) -> PaymentEntry:
    """The payment of a row."""
    paid = Payment(**{field.name: row[field.name] for field in fields(Payment)})
    return PaymentEntry(row["mark"], row["run_id"], row["iteration"], paid)


def digest_of_row(row: Mapping[str, Any]) -> str | None:
    """The digest that a row must have; None for one that cannot have any: NaN, lone surrogates."""
    try:
        return sha256({name: cell for name, cell in row.items() if name != DIGEST})
    except (TypeError, ValueError, RecursionError):
        return None


def _sealed(kind: str, cells: Mapping[str, Any]) -> dict[str, Any]:
    row = {NUMBER: FORMAT, KIND: kind, **{name: cells.get(name) for name in NAMES}}
    return {**row, DIGEST: sha256(row)}


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
