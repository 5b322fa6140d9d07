"""Why a question was asked again: which parts of its key differ from those of the nearest one that was stored before."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.store.calls.call_rows import DamagedRow, SharedValues, key_bytes, key_parts_of, milliseconds, time_of
from ragpipe.store.calls.maintenance import reading

_NAMED = "SELECT key, run, judge, status, created_at, messages, iteration FROM calls"


@dataclass(frozen=True)
class StoredKey:
    """A stored call as far as its key goes. `fields` are the hashes of the parts of the key, by name."""

    key: str
    run_id: str
    judge: str
    status: str
    created_at: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class NearestCall:
    """The nearest earlier call and the names of the parts in which it differs, in the order of their names. `alike` says
    whether it asked the same messages, or was named as one that resembles; else it is just any other question."""

    call: StoredKey
    differing: tuple[str, ...]
    alike: bool


def stored_as(path: Path, key: str) -> list[StoredKey]:
    """The rows of a key: one reply, or the failures of several runs; the newest last."""
    with reading(path) as db:
        rows = db.execute(f"{_NAMED} WHERE key = ? ORDER BY created_at", (key_bytes(key),)).fetchall()
        found = _Rows(db)
        return [one for one in map(found.stored, rows) if one is not None]


def nearest_call(path: Path, asked: StoredKey, *, resembling: Collection[str] = ()) -> NearestCall | None:
    """The call stored before `asked` with the fewest differing parts, None when there is none.

    Those with the same messages and those whose key is among `resembling` (the same place in a run) come before all
    others: another case's question shares every part but its messages, and says nothing. Of equally near ones a
    resembling key counts, then the newest. The same question of another run differs in nothing: that run's failure, which
    nobody else is served.
    """
    best: tuple[bool, int, bool, int] | None = None
    found: StoredKey | None = None
    wanted, width = asked.fields, len(asked.fields)
    messages = wanted.get("messages")
    with reading(path) as db:
        stored = _Rows(db)
        rows = db.execute(
            f"{_NAMED} WHERE created_at <= ? AND NOT (key = ? AND run IN (SELECT id FROM runs WHERE run_id = ?))",
            (milliseconds(asked.created_at), key_bytes(asked.key), asked.run_id),
        )
        for row in rows:
            if (fields := stored.fields(row)) is None:
                continue
            same = len(wanted.items() & fields.items())
            apart = max(width, len(fields)) - same
            known = row[0].hex() in resembling
            # the more is the better: alike, few differences, then the same place, then a late date
            rank = (known or (messages is not None and fields.get("messages") == messages), -apart, known, row[4])
            if (best is None or rank > best) and (call := stored.stored(row)):
                best, found = rank, call
    if best is None or found is None:
        return None
    names = sorted({*wanted, *found.fields})
    return NearestCall(
        found, tuple(name for name in names if wanted.get(name) != found.fields.get(name)), alike=best[0]
    )


class _Rows:
    """Rows of `_NAMED` as what they say; None for one that is damaged."""

    def __init__(self, db: sqlite3.Connection):
        self._shared = SharedValues(db)
        self._parts: dict[tuple[Any, Any], dict[str, str]] = {}  # of a judge and an iteration, without the messages

    def fields(self, row: tuple[Any, ...]) -> dict[str, str] | None:
        _, _, judge, _, created, messages, iteration = row
        try:
            parts = self._parts.get((judge, iteration))
            if parts is None:
                cells = self._shared.cells("judges", judge)
                parts = self._parts[judge, iteration] = key_parts_of(cells, b"", iteration)
            return (
                {**parts, "messages": messages.hex()} if messages is not None and created is not None else dict(parts)
            )
        except (DamagedRow, ValueError, TypeError, AttributeError):
            return None

    def stored(self, row: tuple[Any, ...]) -> StoredKey | None:
        key, run, judge, status, created, *_ = row
        fields = self.fields(row)
        try:
            (name,), (label, *_) = self._shared.cells("runs", run), self._shared.cells("judges", judge)
            return (
                None
                if fields is None
                else StoredKey(key.hex(), name or "", label or "", str(status), time_of(created), fields)
            )
        except (DamagedRow, ValueError, TypeError, AttributeError, OverflowError):
            return None
