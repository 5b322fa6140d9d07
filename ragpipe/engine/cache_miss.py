"""Why a question missed the cache: the parts of its key that differ from those of the nearest stored call, in words."""

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
from ragpipe.store.calls.call_database import StorePlace
from ragpipe.store.calls.nearest_key import NearestCall, StoredKey, nearest_call, stored_as
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import query_rows

MAX_DIFF_LINES = 12  # of a difference between two texts
MAX_QUESTIONS = 20  # of a case, explained at once
_STEP = ("metric", "step")

Row = dict[str, Any]


def explain_cache_miss(
    store: StorePlace,
    runs: Sequence[RunFolder],
    folder: RunFolder | None,
    iteration: int,
    question: Mapping[str, Any],
    key: str | None,
) -> Iterator[str]:
    """A few lines per question of a run, or for one key.

    Args:
        store: the place of the call store.
        runs: the runs whose tables may hold the text of an earlier question.
        folder: the run that asked; None where only the key is known.
        iteration: the iteration of that run.
        question: values of the columns of judge inputs that choose the questions.
        key: the key of one question, instead of these values.

    Raises DataError when there is no such question.
    """
    rows = _matching_rows(folder, iteration, question, key) if folder else []
    keys = [key] if key else list(dict.fromkeys(row["key"] for row in rows))
    if not keys:
        words = ", ".join(f"{'case' if name == 'sample_id' else name}={value}" for name, value in question.items())
        raise _no_question(str(folder and folder.root), "question", words)
    for question_key in keys[:MAX_QUESTIONS]:
        calls = stored_as(store, question_key)
        if not calls:
            raise _no_question(str(store), "key", question_key)
        row = next((row for row in rows if row["key"] == question_key), None)
        yield from _explain_question(store, runs, calls[-1], row or _row_of_any_run(runs, question_key), folder)
    if len(keys) > MAX_QUESTIONS:
        yield f"... and {len(keys) - MAX_QUESTIONS} more questions: name method, metric and step"


def _explain_question(
    store: StorePlace, runs: Sequence[RunFolder], call: StoredKey, row: Row | None, folder: RunFolder | None
) -> Iterator[str]:
    case = f"{CaseName.of(row)} / {row['metric']} / {row['step']}: " if row else ""
    yield on_one_line(
        f"{case}{call.key[:12]} was asked by run {call.run_id}, judge {call.judge}, {call.created_at}", 400
    )
    if folder is not None and call.run_id != folder.run_id:
        yield f"  run {folder.run_id} did not ask it: it took that reply from the store"
    similar = _similar_questions(runs, row) if row else {}
    nearest = nearest_call(store, call, resembling=similar)
    if nearest is None:
        yield "  nothing was stored before it"
    elif not nearest.alike:
        yield f"  no stored call resembles it: none before it has its messages{_search_scope(row)}"
    else:
        yield from _difference(nearest)
        if row and "messages" in nearest.differing:
            yield from _message_differences(
                similar.get(nearest.call.key) or _row_of_any_run(runs, nearest.call.key), row
            )


def _search_scope(row: Row | None) -> str:
    if row is None:
        return ", and no run under output_dir says which case asked it"
    return f", and none is of the same case and the same step ({row['metric']} / {row['step']}) or template"


def _difference(nearest: NearestCall) -> Iterator[str]:
    call = nearest.call
    origin = f"run {call.run_id}, judge {call.judge}, {call.created_at}, {call.status}"
    yield on_one_line(f"  nearest before: {call.key[:12]} of {origin}", 400)
    if nearest.differing:
        yield f"  differs in: {', '.join(nearest.differing)}"
    else:
        yield f"  the same question: it failed there ({call.status}), and a failure is served to its own run only"


def _message_differences(old: Row | None, new: Row) -> Iterator[str]:
    """The lines in which the messages of two questions differ."""
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
        lines = _changed_lines(old_message["content"], new_message["content"])
        yield from (f"    {on_one_line(line, 200)}" for line in lines[:MAX_DIFF_LINES])
        if len(lines) > MAX_DIFF_LINES:
            yield f"    ... and {len(lines) - MAX_DIFF_LINES} more lines"


def _changed_lines(old: str, new: str) -> list[str]:
    lines = difflib.unified_diff(old.split("\n"), new.split("\n"), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _matching_rows(folder: RunFolder, iteration: int, question: Mapping[str, Any], key: str | None) -> list[Row]:
    columns = {"key": key} if key else dict(question)
    return query_rows(folder.iteration(iteration).judge_inputs, **columns)


def _similar_questions(runs: Sequence[RunFolder], row: Row) -> dict[str, Row]:
    """By key, what other runs asked about the same case in the same step of the metric, or with the same template.

    Questions that a run asks besides this very question (the other ranks of a chain, the other parts of a fan-out) are no
    earlier form of it, wherever else they were asked.
    """
    case = {name: row[name] for name in OUTPUT_KEY}
    candidates, asked_besides = dict[str, Row](), set[str]()
    for path in _tables(runs):
        questions = {item["key"]: item for item in query_rows(path, **case) if _is_similar(item, row)}
        if row["key"] in questions:
            asked_besides |= questions.keys()
        else:
            candidates |= questions
    return {key: item for key, item in candidates.items() if key not in asked_besides}


def _is_similar(row: Row, reference: Row) -> bool:
    same_step = all(row[name] == reference[name] for name in _STEP)
    return same_step or (row["template"] is not None and row["template"] == reference["template"])


def _row_of_any_run(runs: Sequence[RunFolder], key: str) -> Row | None:
    return next((row for path in _tables(runs) for row in query_rows(path, key=key)), None)


def _tables(runs: Sequence[RunFolder]) -> Iterator[Path]:
    for folder in runs:
        for number in folder.iterations():
            if (path := folder.iteration(number).judge_inputs).is_file():
                yield path


def _no_question(where: str, what: str, value: str) -> DataError:
    fix = "task=explain shows the questions of a case with their keys; replies that were pruned, or that come from a recorded file, are not in it"
    problem = Problem(where, what, f"none for {value}", "a stored call", fix)
    return DataError("there is no such question", [problem])
