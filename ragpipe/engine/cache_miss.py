"""Why a question was asked again: the parts of its key that differ from those of the nearest stored one, in words."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.model import CaseName
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.store.calls.nearest_key import NearestCall, StoredKey, nearest_call, stored_as
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import query_rows

SHOWN = 12  # lines of a difference between two texts
QUESTIONS = 20  # of a case that are explained at once
_STEP = ("metric", "step")

Row = dict[str, Any]


def explain_cache_miss(
    store: Path,
    runs: Sequence[RunFolder],
    folder: RunFolder | None,
    iteration: int,
    place: Mapping[str, Any],
    key: str | None,
) -> Iterator[str]:
    """A few lines for each question of a run at `place`, or for one `key`. Raises DataError when there is no such."""
    rows = _rows_of(folder, iteration, place, key) if folder else []
    keys = [key] if key else list(dict.fromkeys(row["key"] for row in rows))
    if not keys:
        raise _absent(str(folder and folder.root), "question", ", ".join(f"{k}={v}" for k, v in place.items()))
    for one in keys[:QUESTIONS]:
        stored = stored_as(store, one)
        row = next((row for row in rows if row["key"] == one), None)
        if not stored:
            raise _absent(str(store), "key", one)
        yield from _question(store, runs, stored[-1], row or _anywhere(runs, one), folder)
    if len(keys) > QUESTIONS:
        yield f"... and {len(keys) - QUESTIONS} more questions: name method, metric and step"


def _question(
    store: Path, runs: Sequence[RunFolder], asked: StoredKey, row: Row | None, folder: RunFolder | None
) -> Iterator[str]:
    where = f"{CaseName.of(row)} / {row['metric']} / {row['step']}: " if row else ""
    yield on_one_line(
        f"{where}{asked.key[:12]} was asked by run {asked.run_id}, judge {asked.judge}, {asked.created_at}", 400
    )
    if folder is not None and asked.run_id != folder.run_id:
        yield f"  run {folder.run_id} did not ask it: it took that reply from the store"
    twins = _same_place(runs, row) if row else {}
    found = nearest_call(store, asked, resembling=twins)
    if found is None:
        yield "  nothing was stored before it"
        return
    if not found.alike:
        yield f"  no stored call resembles it: none before it has its messages{_elsewhere(row)}"
        return
    yield from _difference(found)
    if row and "messages" in found.differing:
        other = twins.get(found.call.key) or _anywhere(runs, found.call.key)
        yield from _texts(other, row) if other else ("  messages: no run under output_dir holds the other text",)


def _elsewhere(row: Row | None) -> str:
    if row is None:
        return ", and no run under output_dir says which case asked it"
    return f", and none is of the same case and the same step ({row['metric']} / {row['step']}) or template"


def _difference(found: NearestCall) -> Iterator[str]:
    call = found.call
    yield on_one_line(
        f"  nearest before: {call.key[:12]} of run {call.run_id}, judge {call.judge}, {call.created_at}, {call.status}",
        400,
    )
    if found.differing:
        yield f"  differs in: {', '.join(found.differing)}"
    else:
        yield f"  the same question: it failed there ({call.status}), and a failure is served to its own run only"


def _texts(old: Row, new: Row) -> Iterator[str]:
    if old["messages"] is None or new["messages"] is None:
        yield "  messages: a run was made with keep_messages=false and has no texts"
        return
    before, after = json.loads(old["messages"]), json.loads(new["messages"])
    if len(before) != len(after):
        yield f"  messages: {len(before)} before, {len(after)} now"
    for number, (a, b) in enumerate(zip(before, after, strict=False), 1):
        if a == b:
            continue
        yield f"  message {number} ({on_one_line(str(b['role']), 20)}):"
        lines = [
            line
            for line in difflib.unified_diff(a["content"].split("\n"), b["content"].split("\n"), n=0, lineterm="")
            if not line.startswith(("---", "+++", "@@"))
        ]
        yield from (f"    {on_one_line(line, 200)}" for line in lines[:SHOWN])
        if len(lines) > SHOWN:
            yield f"    ... and {len(lines) - SHOWN} more lines"


def _rows_of(folder: RunFolder, iteration: int, place: Mapping[str, Any], key: str | None) -> list[Row]:
    cells = {"key": key} if key else dict(place)
    return query_rows(folder.iteration(iteration).judge_inputs, **cells)


def _same_place(runs: Sequence[RunFolder], row: Row) -> dict[str, Row]:
    """What other runs asked about the same case in the same step of the metric, or with the same template, by key.

    What a run asks beside this very question (the other ranks of a chain, the other parts of a fan-out) is no earlier
    form of it, wherever else it was asked.
    """
    case = {name: row[name] for name in OUTPUT_KEY}
    there, beside = dict[str, Row](), set[str]()
    for path in _tables(runs):
        found = {one["key"]: one for one in query_rows(path, **case) if _same_question(one, row)}
        if row["key"] in found:
            beside |= found.keys()
        else:
            there |= found
    return {key: one for key, one in there.items() if key not in beside}


def _same_question(one: Row, other: Row) -> bool:
    same_step = all(one[name] == other[name] for name in _STEP)
    return same_step or (one["template"] is not None and one["template"] == other["template"])


def _anywhere(runs: Sequence[RunFolder], key: str) -> Row | None:
    return next((row for path in _tables(runs) for row in query_rows(path, key=key)), None)


def _tables(runs: Sequence[RunFolder]) -> Iterator[Path]:
    for folder in runs:
        for number in folder.iterations():
            if (path := folder.iteration(number).judge_inputs).is_file():
                yield path


def _absent(where: str, what: str, found: str) -> DataError:
    fix = "task=explain shows the questions of a case with their keys; replies that were pruned are not known any more"
    return DataError("there is no such question", [Problem(where, what, f"none for {found}", "a stored call", fix)])
