"""Calls and payments in a file: exported from one store and imported into another, or kept there where they cannot be stored.

A call is imported only when its key is the hash of its parts and its digest that of its cells. A stored reply is never
overwritten, and a payment that is in the ledger is not entered again.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

from ragpipe.core.call import Call, Payment
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, OutputError, Problem
from ragpipe.core.version import FORMAT, format_mismatch
from ragpipe.store.call_database import StorePlace, call_database
from ragpipe.store.call_rows import SharedValues, StoreConnection, every_call, key_bytes, packed, store
from ragpipe.store.files import open_unless_same
from ragpipe.store.ledger import SILENT_AFTER_S, add_payments, check_payment, payments_in

log = logging.getLogger(__name__)
_BATCH = 2000


def export_calls(place: StorePlace, to: Path, *, run_id: str | None = None) -> int:
    """Write the calls and payments of a store, or those of one run, to a file of JSON lines.

    Returns the number of calls. Damaged rows are left out.
    """
    count = 0
    with call_database(place).reading() as db, open_unless_same(to) as file:
        shared = SharedValues(db)
        where, values = ("run = ?", (shared.known("runs", (run_id,)),)) if run_id else ("TRUE", ())
        for count, call in enumerate(filter(None, every_call(db, where, values)), 1):  # noqa: B007
            file.write(_line(row_of_call(call)))
        for payment in filter(None, payments_in(db, shared, run_id=run_id)):
            file.write(_line(row_of_payment(payment)))
    return count


def import_calls(place: StorePlace, source: Path, *, silent_after_s: float = SILENT_AFTER_S) -> tuple[int, int]:
    """Import the calls and payments of an exported file: how many calls were new, and how many were already stored.

    One damaged row refuses the whole file before anything is written. Raises DataError, FolderLocked.
    """
    for number, row in enumerate(_rows(source), 1):
        _check(source, number, row)
    new, old, database = 0, 0, call_database(place)
    with database.changing(silent_after_s=silent_after_s) as db:
        shared = SharedValues(db)
        known = Counter(payments_in(db, shared))
        rows = _rows(source)
        while batch := [*islice(rows, _BATCH)]:
            with database.transaction(db):
                for row in batch:
                    if row[KIND] == CALL:
                        taken = _add_if_new(db, shared, call_in(row))
                        new, old = new + taken, old + (not taken)
                    elif known[entry := payment_in(row)] > 0:
                        known[entry] -= 1
                    else:
                        add_payments(db, shared, [entry])
    return new, old


def _add_if_new(db: StoreConnection, shared: SharedValues, call: Call) -> bool:
    row = packed(call, call.run_id)
    failed_in = 0 if call.status == "ok" else shared.number("runs", row.shared[0])
    same = "SELECT 1 FROM calls WHERE key = ? AND failed_in IN (0, ?)"
    if db.execute(same, (row.key, failed_in)).fetchone():
        return False
    store(db, shared, row)
    return True


def _rows(source: Path) -> Iterator[dict[str, Any]]:
    try:
        if not source.is_file():
            raise OSError("not a regular file")
        with open(source, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise _refused(source, f"row {number}", "no JSON object")
                yield row
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(source, "file", str(error)) from error


def _check(source: Path, number: int, row: Mapping[str, Any]) -> None:
    place = f"row {number}"
    if row.get(NUMBER) != FORMAT:
        fix = "import it with the ragpipe that exported it; nothing was taken in"
        raise format_mismatch("calls of another format are not taken in", source, row.get(NUMBER), None, fix)
    if set(row) != {NUMBER, KIND, *NAMES, DIGEST}:
        raise _refused(source, place, f"the columns {sorted(row)}")
    if not isinstance(row[DIGEST], str):
        raise _refused(source, place, "a digest that is no text")
    if row[DIGEST] != _hashed({name: cell for name, cell in row.items() if name != DIGEST}):
        raise _refused(source, place, f"cells that are not those of its {DIGEST}")
    if row[KIND] not in (CALL, PAYMENT):
        raise _refused(source, place, f"a row of the kind {row[KIND]!r}")
    try:
        if row[KIND] == PAYMENT:
            check_payment(payment_in(row))
            return
        call = call_in(row)
        packed(call, "")
        key_bytes(call.key)
    except (TypeError, ValueError, AttributeError, RecursionError):
        raise _refused(source, place, f"cells that are no {row[KIND]}") from None
    if call.key != _hashed(call.fields):
        raise _refused(source, place, "a key that is not that of its fields")
    if call.payload_id != _hashed({name: call.fields.get(name) for name in ("messages", "schema")}):
        raise _refused(source, place, "a payload_id that is not that of its fields")


def _hashed(value: Any) -> str | None:
    with suppress(TypeError, ValueError, RecursionError):
        return sha256(value)
    return None


def _refused(source: Path, place: str, content: str) -> DataError:
    fix = "export again from the store that it came from; nothing was taken in"
    return DataError("the calls cannot be taken in", [Problem(str(source), place, content, "what ragpipe exported", fix)])


CALL, PAYMENT = "call", "payment"
NUMBER, KIND, DIGEST = "format", "row", "row_sha256"
JSON = ("sent", "fields")
CALLS = tuple(field.name for field in fields(Call))
PAYMENTS = tuple(field.name for field in fields(Payment))
NAMES = tuple(dict.fromkeys((*CALLS, "mark", *PAYMENTS)))
"""All columns except the number, the kind and the digest. A column that a row's kind does not have is null."""


def row_of_call(call: Call) -> dict[str, Any]:
    """A call as a row with its digest."""
    cells = {name: getattr(call, name) for name in CALLS}
    return _sealed(CALL, cells | {name: json.dumps(cells[name], separators=(",", ":")) for name in JSON})


def row_of_payment(payment: Payment) -> dict[str, Any]:
    """A payment as a row with its digest."""
    return _sealed(PAYMENT, {name: getattr(payment, name) for name in PAYMENTS})


def call_in(row: Mapping[str, Any]) -> Call:
    """The call of a row. Raises ValueError, TypeError for cells that are not a call."""
    cells = {name: row[name] for name in CALLS}
    return Call(**{**cells, **{name: json.loads(row[name]) for name in JSON}})


def payment_in(row: Mapping[str, Any]) -> Payment:
    return Payment(**{name: row[name] for name in PAYMENTS})


def _sealed(kind: str, cells: Mapping[str, Any]) -> dict[str, Any]:
    row = {NUMBER: FORMAT, KIND: kind, **{name: cells.get(name) for name in NAMES}}
    return {**row, DIGEST: sha256(row)}


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


_CONTENT = "what was paid for and could not be stored"


class LastResortFile:
    """What was paid for and cannot be stored (the disk is full, the store was deleted or damaged), in the system's temporary
    folder. Made with its first line, with a warning that names it. Safe in threads; never raises.

    `setting` is the word of the command line that names the store; empty where the default or `store.path` does.
    """

    def __init__(self, setting: str = "") -> None:
        self._setting = f" {shlex.quote(setting)}" if setting else ""
        self.file: Path | None = None
        self._lock = threading.Lock()

    def add_call(self, call: Call) -> None:
        """Keep a call, where this can be written."""
        self._write(row_of_call(call))

    def add_payment(self, payment: Payment) -> None:
        """Keep a payment, where this can be written."""
        self._write(row_of_payment(payment))

    def with_location(self, error: OutputError | DataError) -> OutputError | DataError:
        """The error with the place of the file and the command that takes it in; unchanged where there is no file."""
        if self.file is None or str(self.file) in str(error):
            return error
        command = self._command()
        located: OutputError | DataError
        if isinstance(error, DataError):
            fix = f"`{command}` takes them in"
            problem = Problem(str(self.file), "replies", _CONTENT, "these rows in a call store", fix)
            located = type(error)(error.title, [*error.problems, problem])
        else:
            located = type(error)(f"{error} {_CONTENT.capitalize()} is kept in {self.file}: `{command}` takes it in.")
        located.__cause__ = error.__cause__
        return located

    def _command(self) -> str:
        return f"task=store action=import from={shlex.quote(str(self.file))}{self._setting}"

    def _write(self, row: Mapping[str, Any]) -> None:
        with self._lock, suppress(OSError):
            if self.file is None:
                descriptor, name = tempfile.mkstemp(prefix="ragpipe-replies-", suffix=".jsonl")
                self.file = Path(name)
                log.warning("%s is kept in %s: `%s` takes it in", _CONTENT, self.file, self._command())
            else:
                descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND)
            with open(descriptor, "ab") as file:
                file.write(_line(row))
