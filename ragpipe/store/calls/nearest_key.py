"""Why a question was asked again: the parts of its key that differ from the nearest key stored before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ragpipe.store.calls.call_database import StorePlace, call_database
from ragpipe.store.calls.call_rows import DamagedRow, SharedValues, key_bytes, key_parts_of, milliseconds, time_of
from ragpipe.store.calls.store_connection import StoreConnection

_NAMED = "SELECT key, run, judge, status, created_at, messages, iteration FROM calls"


@dataclass(frozen=True)
class StoredKey:
    """The key of a stored call. `fields` are the hashes of its parts, by name."""

    key: str
    run_id: str
    judge: str
    status: str
    created_at: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class NearestCall:
    """The nearest earlier call and the sorted names of the parts in which it differs.

    `alike` is true when it asked the same messages, or was among `resembling`; else it is an unrelated question.
    """

    call: StoredKey
    differing: tuple[str, ...]
    alike: bool


def stored_as(place: StorePlace, key: str) -> list[StoredKey]:
    """The rows of a key: one reply, or the failures of several runs; the newest last."""
    with call_database(place).reading() as db:
        rows = db.execute(f"{_NAMED} WHERE key = ? ORDER BY created_at", (key_bytes(key),)).fetchall()
        reader = _KeyRows(db)
        return [key for key in map(reader.stored, rows) if key is not None]


def nearest_call(place: StorePlace, asked: StoredKey, *, resembling: Collection[str] = ()) -> NearestCall | None:
    """The call stored before `asked` with the fewest differing parts, None when there is none.

    Calls with the same messages, and those whose key is among `resembling` (the same place in a run), come before all
    others: another case's question shares every part but its messages, and explains nothing. Among equally near ones a
    resembling key wins, then the newest. The same question of another run differs in nothing: it is that run's failure,
    which is served to no other run.
    """
    best: tuple[bool, int, bool, int] | None = None
    nearest: StoredKey | None = None
    with call_database(place).reading() as db:
        reader = _KeyRows(db)
        rows = db.stream(
            f"{_NAMED} WHERE created_at <= ? AND NOT (key = ? AND run IN (SELECT id FROM runs WHERE run_id = ?))",
            (milliseconds(asked.created_at), key_bytes(asked.key), asked.run_id),
        )
        for row in rows:
            if (fields := reader.fields(row)) is None:
                continue
            rank = _rank(asked.fields, fields, is_resembling=row[0].hex() in resembling, created=row[4])
            if (best is None or rank > best) and (call := reader.stored(row)):
                best, nearest = rank, call
    if best is None or nearest is None:
        return None
    names = sorted({*asked.fields, *nearest.fields})
    differing = tuple(name for name in names if asked.fields.get(name) != nearest.fields.get(name))
    return NearestCall(nearest, differing, alike=best[0])


def _rank(
    asked: Mapping[str, str], stored: Mapping[str, str], *, is_resembling: bool, created: int
) -> tuple[bool, int, bool, int]:
    """The greater the nearer: alike, then few differences, then the same place, then a late date."""
    messages = asked.get("messages")
    is_alike = is_resembling or (messages is not None and stored.get("messages") == messages)
    n_differences = max(len(asked), len(stored)) - len(asked.items() & stored.items())
    return is_alike, -n_differences, is_resembling, created


class _KeyRows:
    """Reads rows of `_NAMED`; None for a damaged one."""

    def __init__(self, db: StoreConnection):
        self._shared = SharedValues(db)
        self._parts: dict[tuple[Any, Any], dict[str, str]] = {}  # of a judge and an iteration, without the messages

    def fields(self, row: tuple[Any, ...]) -> dict[str, str] | None:
        _, _, judge, _, created, messages, iteration = row
        try:
            parts = self._parts.get((judge, iteration))
            if parts is None:
                cells = self._shared.cells("judges", judge)
                parts = self._parts[judge, iteration] = key_parts_of(cells, b"", iteration)
            has_messages = messages is not None and created is not None
            return {**parts, "messages": messages.hex()} if has_messages else dict(parts)
        except (DamagedRow, ValueError, TypeError, AttributeError):
            return None

    def stored(self, row: tuple[Any, ...]) -> StoredKey | None:
        key, run, judge, status, created, *_ = row
        fields = self.fields(row)
        if fields is None:
            return None
        try:
            (name,), (label, *_) = self._shared.cells("runs", run), self._shared.cells("judges", judge)
            return StoredKey(key.hex(), name or "", label or "", str(status), time_of(created), fields)
        except (DamagedRow, ValueError, TypeError, AttributeError, OverflowError):
            return None
