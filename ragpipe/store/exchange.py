"""Calls on their way from one store to another: a file of rows, each with the format number and a digest of its own.

A row is taken in only when its key is that of its parts and its digest that of its cells; a reply that stands already
is never overwritten. A row holds no request header and no key of a provider.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.digest import sha256
from ragpipe.errors import DataError, Problem
from ragpipe.schema.call import Call
from ragpipe.schema.format import FORMAT, other_format
from ragpipe.store.call_errors import transaction
from ragpipe.store.file import changing, reading
from ragpipe.store.folder import make_folder
from ragpipe.store.parquet import parquet_writer
from ragpipe.store.replaced import keep_payments
from ragpipe.store.unchanged import open_unless_same

NAMES = tuple(field.name for field in fields(Call))
NUMBER, DIGEST = "format", "row_sha256"
_KINDS = {"int": pa.int64(), "float": pa.float64()}
SCHEMA = pa.schema([
    pa.field(NUMBER, pa.int64()),
    *(pa.field(f.name, _KINDS.get(str(f.type).split(" ")[0], pa.string())) for f in fields(Call)),
    pa.field(DIGEST, pa.string()),
])  # fmt: skip
_BATCH = 2000


def export_calls(path: Path, to: Path, *, run_id: str | None = None) -> int:
    """Write the calls of a store, or those that one run paid for, to a .parquet or .jsonl file; gives their number."""
    with reading(path) as db, open_unless_same(to) as file:
        chosen, values = ("WHERE run_id = ?", (run_id,)) if run_id else ("", ())
        cursor = db.execute(f"SELECT {', '.join(NAMES)} FROM calls {chosen} ORDER BY key, run_id", values)
        count = 0
        if to.suffix == ".jsonl":
            for row in map(_sealed, cursor):
                file.write(json.dumps(row, ensure_ascii=True, allow_nan=False).encode() + b"\n")
                count += 1
            return count
        with parquet_writer(file, SCHEMA, compression="zstd") as writer:
            while rows := [_sealed(row) for row in cursor.fetchmany(_BATCH)]:
                writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
                count += len(rows)
        return count


def import_calls(path: Path, source: Path, *, silent_after_s: float = 30.0) -> tuple[int, int]:
    """Take in the calls of an exported file: how many were new, how many stood already. A damaged row refuses the whole
    file before anything is written. Raises DataError, Locked."""
    path = Path(path).absolute()
    for number, row in enumerate(_rows(source), 1):
        _check(source, number, row)
    make_folder(path.parent)
    new = old = 0
    with changing(path, silent_after_s=silent_after_s) as db:
        for batch in _batches(source):
            with transaction(path, db):
                taken = sum(_take(db, row) for row in batch)
            new, old = new + taken, old + len(batch) - taken
    return new, old


def _take(db: sqlite3.Connection, row: tuple[Any, ...]) -> bool:
    cells = dict(zip(NAMES, row, strict=True))
    same = "SELECT 1 FROM calls WHERE key = ? AND (status = 'ok' OR run_id = ?)"
    other = None if cells["status"] == "ok" else cells["run_id"]
    if db.execute(same, (cells["key"], other)).fetchone():
        return False
    if cells["status"] == "ok":  # a reply ends the failures of its key
        keep_payments(db, "key = ?", (cells["key"],))
        db.execute("DELETE FROM calls WHERE key = ?", (cells["key"],))
    db.execute(f"INSERT INTO calls ({', '.join(NAMES)}) VALUES ({', '.join('?' * len(NAMES))})", row)
    return True


def _sealed(row: tuple[Any, ...]) -> dict[str, Any]:
    cells = {NUMBER: FORMAT, **dict(zip(NAMES, row, strict=True))}
    return {**cells, DIGEST: sha256(cells)}


def _rows(source: Path) -> Iterator[dict[str, Any]]:
    try:
        if source.suffix == ".jsonl":
            with open(source, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise _refused(source, f"line {number}", "no JSON object")
                    yield row
        else:
            with pq.ParquetFile(source) as table:
                for batch in table.iter_batches(batch_size=_BATCH):
                    yield from batch.to_pylist()
    except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
        raise _refused(source, "file", str(error)) from error


def _batches(source: Path) -> Iterator[list[tuple[Any, ...]]]:
    rows = _rows(source)
    while batch := [tuple(row[name] for name in NAMES) for row in islice(rows, _BATCH)]:
        yield batch


def _check(source: Path, number: int, row: Mapping[str, Any]) -> None:
    place = f"row {number}"
    if row.get(NUMBER) != FORMAT:
        mend = "import it with the ragpipe that exported it; nothing was taken in"
        raise other_format("calls of another format are not taken in", source, row.get(NUMBER), None, mend)
    if set(row) != {NUMBER, *NAMES, DIGEST}:
        raise _refused(source, place, f"the columns {sorted(row)}")
    cells = {name: row[name] for name in (NUMBER, *NAMES)}
    if not all(isinstance(row[name], str) for name in (DIGEST, "key", "payload_id")):
        raise _refused(source, place, "a digest that is no text")
    if row[DIGEST] != _digest(cells):
        raise _refused(source, place, f"cells that are not those of its {DIGEST}")
    try:
        parts = json.loads(row["fields"])
    except (TypeError, ValueError, RecursionError):
        parts = None
    if not isinstance(parts, dict):
        raise _refused(source, place, "fields that are no JSON object")
    if row["key"] != _digest(parts):
        raise _refused(source, place, "a key that is not that of its fields")
    payload = {name: parts.get(name) for name in ("messages", "schema")}
    if row["payload_id"] != _digest(payload):
        raise _refused(source, place, "a payload_id that is not that of its fields")


def _digest(value: Any) -> str | None:
    """The digest, None of what has none: NaN, half characters."""
    try:
        return sha256(value)
    except (TypeError, ValueError, RecursionError):
        return None


def _refused(source: Path, place: str, found: str) -> DataError:
    mend = "export again from the store that it came from; nothing was taken in"
    return DataError(
        "the calls cannot be taken in", [Problem(str(source), place, found, "what ragpipe exported", mend)]
    )
