"""Why a question missed the cache: the parts of its key that differ from those of the nearest stored call, in words."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.core.call import Call
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.core.text import on_one_line
from ragpipe.report.model import CaseName
from ragpipe.store.call_database import StorePlace, call_database
from ragpipe.store.call_rows import COLUMNS, DamagedRow, SharedValues, StoreConnection, call_of, key_bytes, milliseconds
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import query_rows

MAX_DIFF_LINES = 12  # of a difference between two texts
MAX_QUESTIONS = 20  # of a case, explained at once
_STEP = ("metric", "step")

Row = dict[str, Any]


def explain_cache_miss(
    store: StorePlace, runs: Sequence[RunFolder], folder: RunFolder, question: Mapping[str, Any]
) -> Iterator[str]:
    """A few lines per question of a run.

    Args:
        store: the place of the call store.
        runs: the runs whose tables may hold the text of an earlier question.
        folder: the run that asked.
        question: values of the columns of judge inputs that choose the questions.

    Raises DataError when there is no such question.
    """
    rows = {row["key"]: row for path in _tables([folder]) for row in query_rows(path, **question)}
    if not rows:
        words = ", ".join(f"{'case' if name == 'sample_id' else name}={value}" for name, value in question.items())
        raise _no_question(str(folder.root), "question", words)
    for key in list(rows)[:MAX_QUESTIONS]:
        calls = stored_as(store, key)
        if not calls:
            raise _no_question(str(store), "key", key)
        yield from _explain_question(store, runs, calls[-1], rows[key], folder)
    if len(rows) > MAX_QUESTIONS:
        yield f"... and {len(rows) - MAX_QUESTIONS} more questions: name method, metric and step"


def _explain_question(store: StorePlace, runs: Sequence[RunFolder], call: Call, row: Row, folder: RunFolder) -> Iterator[str]:
    case = f"{CaseName.of(row)} / {row['metric']} / {row['step']}"
    yield on_one_line(f"{case}: {call.key[:12]} was asked by run {call.run_id}, judge {call.judge}, {call.created_at}", 400)
    if call.run_id != folder.run_id:
        yield f"  run {folder.run_id} did not ask it: it took that reply from the store"
    similar = _similar_questions(runs, row)
    nearest = nearest_call(store, call, resembling=similar)
    if nearest is None:
        yield (
            "  no stored call resembles it: none before it has its messages, and none is "
            f"of the same case and the same step ({row['metric']} / {row['step']}) or template"
        )
    else:
        yield from _difference(nearest)
        if "messages" in nearest.differing:
            key = nearest.call.key
            anywhere = (item for path in _tables(runs) for item in query_rows(path, key=key))
            yield from _message_differences(similar.get(key) or next(anywhere, None), row)


def _difference(nearest: NearestCall) -> Iterator[str]:
    call = nearest.call
    origin = f"run {call.run_id}, judge {call.judge}, {call.created_at}, {call.status}"
    yield on_one_line(f"  nearest before: {call.key[:12]} of {origin}", 400)
    if nearest.differing:
        yield f"  differs in: {', '.join(nearest.differing)}"
    else:
        yield f"  the same question: it failed there ({call.status}), and a failure is served to its own run only"


def _message_differences(old: Row | None, new: Row) -> Iterator[str]:
    if old is None:
        yield "  messages: no run under output_dir holds the other text"
        return
    if old["messages"] is None or new["messages"] is None:
        yield "  messages: a run was made with keep_messages=false and has no texts"
        return
    before, after = json.loads(old["messages"]), json.loads(new["messages"])
    if len(before) != len(after):
        yield f"  messages: {len(before)} before, {len(after)} now"
    for number, (old_message, new_message) in enumerate(zip(before, after, strict=False), 1):
        if old_message == new_message:
            continue
        yield f"  message {number} ({on_one_line(str(new_message['role']), 20)}):"
        had, has = (message["content"].split("\n") for message in (old_message, new_message))
        changed = difflib.unified_diff(had, has, n=0, lineterm="")
        lines = [line for line in changed if not line.startswith(("---", "+++", "@@"))]
        yield from (f"    {on_one_line(line, 200)}" for line in lines[:MAX_DIFF_LINES])
        if len(lines) > MAX_DIFF_LINES:
            yield f"    ... and {len(lines) - MAX_DIFF_LINES} more lines"


def _similar_questions(runs: Sequence[RunFolder], row: Row) -> dict[str, Row]:
    """By key, what other runs asked about the same case in the same step of the metric, or with the same template."""
    case = {name: row[name] for name in OUTPUT_KEY}
    candidates, asked_besides = dict[str, Row](), set[str]()
    for path in _tables(runs):
        questions = {
            item["key"]: item
            for item in query_rows(path, **case)
            if all(item[name] == row[name] for name in _STEP)
            or (item["template"] is not None and item["template"] == row["template"])
        }
        if row["key"] in questions:
            asked_besides |= questions.keys()
        else:
            candidates |= questions
    return {key: item for key, item in candidates.items() if key not in asked_besides}


def _tables(runs: Sequence[RunFolder]) -> Iterator[Path]:
    for folder in runs:
        for number in folder.iterations():
            if (path := folder.iteration(number).judge_inputs).is_file():
                yield path


def _no_question(where: str, what: str, value: str) -> DataError:
    fix = "task=explain messages=true shows the questions of a case with their keys; replies that were pruned, or that come from a recorded file, are not in it"
    problem = Problem(where, what, f"none for {value}", "a stored call", fix)
    return DataError("there is no such question", [problem])


@dataclass(frozen=True)
class NearestCall:
    """The nearest earlier call and the sorted names of the parts of the key in which it differs."""

    call: Call
    differing: tuple[str, ...]


def stored_as(place: StorePlace, key: str) -> list[Call]:
    """The rows of a key: one reply, or the failures of several runs; the newest last."""
    with call_database(place).reading() as db:
        return list(_calls(db, "key = ?", (key_bytes(key),)))


def nearest_call(place: StorePlace, asked: Call, *, resembling: Collection[str] = ()) -> NearestCall | None:
    """Of the calls stored before `asked` that resemble it the one with the fewest differing parts; None when there is none.

    What resembles it has the same messages, or its key is among `resembling` (the same place in a run): another case's question
    shares every part but its messages, and explains nothing. Among equally near ones a resembling key wins, then the newest. The
    same question of another run differs in nothing: it is that run's failure, which is served to no other run.
    """
    messages = bytes.fromhex(asked.fields.get("messages", ""))
    marks = ", ".join("?" * len(resembling)) or "NULL"
    values = (milliseconds(asked.created_at), messages, *map(key_bytes, resembling))
    nearest: tuple[tuple[int, bool, str], NearestCall] | None = None
    with call_database(place).reading() as db:
        for call in _calls(db, f"created_at <= ? AND (messages = ? OR key IN ({marks}))", values):
            if (call.key, call.run_id) == (asked.key, asked.run_id):
                continue
            names = sorted({*asked.fields, *call.fields})
            differing = tuple(name for name in names if asked.fields.get(name) != call.fields.get(name))
            rank = (-len(differing), call.key in resembling, call.created_at)
            if nearest is None or rank > nearest[0]:
                nearest = rank, NearestCall(call, differing)
    return None if nearest is None else nearest[1]


def _calls(db: StoreConnection, where: str, values: Sequence[Any]) -> Iterator[Call]:
    """The calls that match, in the order of time, but for damaged rows."""
    shared = SharedValues(db)
    for row in db.scan("calls", COLUMNS, where, values):
        with suppress(DamagedRow):
            if row is not None:
                yield call_of(row, shared)
