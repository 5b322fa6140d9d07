"""Why a question missed the cache: the parts of its key that differ from those of the nearest stored call, in words."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.model import CaseName
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.store.calls.call_database import StorePlace, call_database
from ragpipe.store.calls.call_rows import DamagedRow, SharedValues, key_bytes, key_parts_of, milliseconds, time_of
from ragpipe.store.calls.store_connection import StoreConnection
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
    """By key, what other runs asked about the same case in the same step of the metric, or with the same template."""
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
