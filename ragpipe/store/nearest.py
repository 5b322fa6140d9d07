"""Why a question was asked again: which parts of its key differ from those of the nearest one that was stored before."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.store.file import reading

_NAMED = "SELECT key, run_id, judge, status, created_at, fields FROM calls"


@dataclass(frozen=True)
class Stored:
    """A stored call as far as its key goes. `fields` are the hashes of the parts of the key, by name."""

    key: str
    run_id: str
    judge: str
    status: str
    created_at: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Nearest:
    """The nearest earlier call and the names of the parts in which it differs, in the order of their names. `alike` says
    whether it asked the same messages, or was named as one that resembles; else it is just any other question."""

    call: Stored
    differing: tuple[str, ...]
    alike: bool


def stored_as(path: Path, key: str) -> list[Stored]:
    """The rows of a key: one reply, or the failures of several runs; the newest last."""
    with reading(path) as db:
        rows = db.execute(f"{_NAMED} WHERE key = ? ORDER BY created_at", (key,)).fetchall()
    return [_stored(row) for row in rows]


def nearest(path: Path, asked: Stored, *, resembling: Collection[str] = ()) -> Nearest | None:
    """The call stored before `asked` with the fewest differing parts, None when there is none.

    Those with the same messages and those whose key is among `resembling` (the same place in a run) come before all
    others: another case's question shares every part but its messages, and says nothing. Of equally near ones a
    resembling key counts, then the newest. The same question of another run differs in nothing: that run's failure, which
    nobody else is served.
    """
    best: tuple[bool, int, bool, str] | None = None
    found: tuple[Any, ...] | None = None
    wanted, width = asked.fields, len(asked.fields)
    messages = wanted.get("messages")
    with reading(path) as db:
        rows = db.execute(f"{_NAMED} WHERE created_at <= ? AND NOT (key = ? AND run_id = ?)",
                          (asked.created_at, asked.key, asked.run_id))  # fmt: skip
        for row in rows:
            fields = json.loads(row[5])
            same = len(wanted.items() & fields.items())
            apart = max(width, len(fields)) - same
            known = row[0] in resembling
            # the more is the better: alike, few differences, then the same place, then a late date
            rank = (known or (messages is not None and fields.get("messages") == messages), -apart, known, row[4])
            if best is None or rank > best:
                best, found = rank, row
    if best is None or found is None:
        return None
    call = _stored(found)
    names = sorted({*wanted, *call.fields})
    return Nearest(call, tuple(name for name in names if wanted.get(name) != call.fields.get(name)), alike=best[0])


def _stored(row: tuple[Any, ...]) -> Stored:
    key, run_id, judge, status, created_at, parts = row
    return Stored(key, run_id, judge, status, created_at, json.loads(parts))
