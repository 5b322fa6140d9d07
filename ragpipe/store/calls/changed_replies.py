"""Whether the call store still has the replies of a finished run: every one of them, and word for word.

A run that takes over what another run measured would get the same replies from the store, but for permanent failures: the store
serves those to the run that paid for them, and taking over is how another run of the same judge comes to them. That is checked row
by row, on the cells as they are stored: making a `Call` of each would cost more than taking over saves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragpipe.core.digest import canonical_json
from ragpipe.store.calls.call_database import StorePlace, call_database
from ragpipe.store.calls.call_rows import (
    COLUMNS,
    PLAIN,
    UNUSED,
    Cells,
    DamagedRow,
    SharedValues,
    checked_cells,
    key_bytes,
    wire_hash_of,
)
from ragpipe.store.calls.store_connection import StoreConnection
from ragpipe.store.run.run_tables import batches

ACCEPTED_BY = ("template", "model", "flags", "output_mode", "status")
"""The columns of a row that `accept` looks at."""
_AT_ONCE = 500  # keys in one statement, and rows of the table in memory
_SAME = tuple(name for name in PLAIN if name not in ("iteration", "text", "answers", UNUSED))
"""Columns of `judge_inputs.parquet` that stand under the same name among the cells of a call."""
_PLACES = {name: PLAIN.index(name) for name in (*_SAME, "text", "iteration", "answers")}
_BESIDE = ("reply", "judge", "model", "fingerprint", "paid_by", "output_mode", "sent", "wire_hash")
"""The other columns that are compared, in the order of `_StoredRows`."""
_READ = tuple(dict.fromkeys((*_SAME, *_BESIDE, *ACCEPTED_BY, "key")))
_WIRE = len(PLAIN)  # place of the hash of the request body among the cells


def changed_replies(
    store: StorePlace, judge_inputs: Path, accept: Callable[[Mapping[str, Any]], bool]
) -> Iterator[str]:
    """The keys of the rows of a run's `judge_inputs.parquet` for which the store has no reply and no failure that is equal in
    all that the row says of it.

    Args:
        store: the place of the call store.
        judge_inputs: the table.
        accept: whether a row, by its columns `ACCEPTED_BY`, may be used by this run at all.

    Raises OutputError and DataError for a store or a table that cannot be read.
    """
    with call_database(store).reading() as db:
        reader = _StoredRows(db)
        for batch in batches(judge_inputs, _READ, size=_AT_ONCE):
            rows = batch.to_pylist()
            stored = reader.read([row["key"] for row in rows])
            yield from (
                row["key"] for row in rows if _recorded(row) not in stored.get(row["key"], ()) or not accept(row)
            )


class _StoredRows:
    """Reads the replies and failures of a store as tuples, in the form of `_recorded`."""

    def __init__(self, db: StoreConnection):
        self._db, self._shared = db, SharedValues(db)
        self._sent: dict[str | None, str | None] = {}

    def read(self, keys: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
        """By key the reply, or the failures of all runs where there is none. Missing and damaged ones are left out."""
        stored: dict[str, list[tuple[Any, ...]]] = {}
        for key, cells in self._rows(list(dict.fromkeys(map(key_bytes, keys)))):
            stored.setdefault(key, []).append(cells)
        return stored

    def _rows(self, keys: Sequence[bytes]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        marks = ", ".join("?" * len(keys))
        statement = f"SELECT {', '.join(COLUMNS)} FROM calls WHERE key IN ({marks})"
        for row in self._db.execute(statement, keys):
            try:
                shared, cells = checked_cells(row, self._shared)
            except DamagedRow:
                continue
            yield row[0].hex(), self._as_recorded(shared, cells)

    def _as_recorded(self, shared: tuple[Cells, Cells, Cells], cells: tuple[Any, ...]) -> tuple[Any, ...]:
        (run,), (label, _, mode, sent), (model, fingerprint) = shared
        payer = f"{run}/{cells[_PLACES['iteration']]}" if cells[_PLACES["answers"]] else None
        same = (cells[_PLACES[name]] for name in _SAME)
        return (
            *same,
            cells[_PLACES["text"]],
            label,
            model,
            fingerprint,
            payer,
            mode,
            self._canonical(sent),
            wire_hash_of(cells[_WIRE]),
        )

    def _canonical(self, sent: str | None) -> str | None:
        """The parameters of a call as its row has them: a judge has one or two kinds."""
        if sent not in self._sent:
            parameters = json.loads(sent or "{}")
            self._sent[sent] = canonical_json(parameters) if parameters else None
        return self._sent[sent]


def _recorded(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*_SAME, *_BESIDE))
