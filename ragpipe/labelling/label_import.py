"""From labelled files to the labels of a draw: the last word of every annotator on every case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ragpipe.core.errors import Problem
from ragpipe.core.safe_text import shorten
from ragpipe.labelling.label_files import DRAWN_COLUMNS, LABEL_COLUMNS, Draw, LabelGrade
from ragpipe.labelling.label_sheets import CANNOT_TELL
from ragpipe.labelling.labelled_files import LabelEvent, checked
from ragpipe.schema.sample import OUTPUT_KEY, CaseKey
from ragpipe.schema.table_schemas import table_of

Row = dict[str, Any]
_FROM_DRAW = tuple(name for name in LABEL_COLUMNS.names if name in DRAWN_COLUMNS.names)


class LabelKey(NamedTuple):
    """Whose label of which item; `number` is 2 for an item that was asked again."""

    item: str
    annotator: str
    number: int


class GivenLabel(NamedTuple):
    """A label in the native scale, None for "cannot tell"; the grade's name, None for a number between the grades."""

    value: float | None
    grade: str | None
    note: str | None
    at: str | None


def labels_of(draw: Draw, items: Iterable[str], events: Sequence[LabelEvent]) -> dict[LabelKey, GivenLabel | None]:
    """What is left of a file's events: the last label of each key, after what was undone; None where all of it was undone.

    Raises DataError, with every fault, for events of another draw, of another question, of unknown items, and for labels
    that are no grade and no number of the scale.
    """
    problems: list[Problem] = []
    known = set(items)
    stacks: dict[LabelKey, list[GivenLabel]] = {}
    for event in events:
        if problem := _stranger(draw, known, event):
            problems.append(problem)
            continue
        stack = stacks.setdefault(LabelKey(event.item, event.annotator, event.number), [])
        if event.undo:
            if stack:
                stack.pop()
        elif label := _label(draw, event, problems):
            stack.append(label)
    checked(problems)
    return {key: stack[-1] if stack else None for key, stack in stacks.items()}


def merged_labels(
    earlier: pa.Table | None, new: Sequence[Mapping[LabelKey, GivenLabel | None]], drawn: pa.Table
) -> pa.Table:
    """The labels of a draw: those it has and those of new files, in the order of the draw. Of two labels of a key the later one
    counts; where a time is missing, the one that was read last."""
    rows = {row["item"]: row for row in drawn.to_pylist()}
    labels = _earlier_labels(earlier, rows)
    for file in new:
        for key, label in file.items():
            if label is None:
                labels.pop(key, None)
            elif not _is_later(labels.get(key), label):
                labels[key] = label
    order = {item: place for place, item in enumerate(rows)}
    keys = sorted(labels, key=lambda key: (order[key.item], key.annotator, key.number))
    return table_of([_row(rows[key.item], key, labels[key]) for key in keys], LABEL_COLUMNS)


def given_again(
    earlier: pa.Table | None, new: Sequence[Mapping[LabelKey, GivenLabel | None]], drawn: pa.Table
) -> dict[str, tuple[int, int]]:
    """By annotator how many items have labels of theirs from two files, or from an earlier import and a file, given at different
    times, and how many of these labels differ. Who gave none twice is left out."""
    labels = _earlier_labels(earlier, {row["item"]: row for row in drawn.to_pylist()})
    again: dict[LabelKey, bool] = {}
    for file in new:
        for key, label in file.items():
            before = labels.get(key)
            if label is not None and before is not None and (before.at != label.at or before.value != label.value):
                again[key] = again.get(key, False) or before.value != label.value
        labels |= {key: label for key, label in file.items() if label is not None}
    people = sorted({key.annotator for key in again})
    of_each = {name: [differs for key, differs in again.items() if key.annotator == name] for name in people}
    return {name: (len(flags), sum(flags)) for name, flags in of_each.items()}


def unlabelled_cases(drawn: pa.Table, labels: pa.Table, annotator: str) -> tuple[int, int]:
    """How many of the cases that an annotator is asked have no label by them (a "cannot tell" is one), and how many are asked."""
    asked = {
        CaseKey.of(row) for row in drawn.to_pylist() if row["annotators"] is None or annotator in row["annotators"]
    }
    given = {CaseKey.of(row) for row in labels.to_pylist() if row["annotator"] == annotator}
    return len(asked - given), len(asked)


def _earlier_labels(earlier: pa.Table | None, rows: Mapping[str, Row]) -> dict[LabelKey, GivenLabel]:
    items = {tuple(row[name] for name in OUTPUT_KEY): item for item, row in rows.items()}
    return {
        LabelKey(items[tuple(row[name] for name in OUTPUT_KEY)], row["annotator"], row["pass"]): GivenLabel(
            row["label"], row["grade"], row["note"], row["at"]
        )
        for row in (earlier.to_pylist() if earlier is not None else ())
    }


def _is_later(before: GivenLabel | None, label: GivenLabel) -> bool:
    """Whether the label that there is was given after the new one."""
    return before is not None and before.at is not None and label.at is not None and before.at > label.at


def _row(case: Row, key: LabelKey, label: GivenLabel) -> Row:
    return {
        **{name: case[name] for name in _FROM_DRAW},
        "annotator": key.annotator,
        "label": label.value,
        "grade": label.grade,
        "note": label.note,
        "pass": key.number,
        "at": label.at,
    }


def _stranger(draw: Draw, items: set[str], event: LabelEvent) -> Problem | None:
    """What shows that an event does not belong to this draw."""
    if event.draw is not None and event.draw != draw.draw_id:
        return Problem(
            event.where, "draw", shorten(event.draw, 60), draw.draw_id, "import it into the run that it was drawn from"
        )
    if event.question and event.question not in (draw.score, draw.question):
        return Problem(event.where, "question", shorten(event.question, 60), draw.score)
    if event.item not in items:
        return Problem(event.where, "item", shorten(event.item, 60), f"an item of the draw {draw.draw_id}")
    return None


def _label(draw: Draw, event: LabelEvent, problems: list[Problem]) -> GivenLabel | None:
    if event.label is None:
        return GivenLabel(None, None, event.note, event.at)
    if (grade := _grade(draw.grades, event.label)) is not None:
        return GivenLabel(grade.value, grade.name, event.note, event.at)
    value = _number(event.label)
    low, high = (-math.inf if draw.low is None else draw.low), (math.inf if draw.high is None else draw.high)
    if value is None or not low <= value <= high:
        names = ", ".join(grade.name for grade in draw.grades)
        scale = f", a number from {low:g} to {high:g}" if math.isfinite(low + high) else ", a number"
        problems.append(
            Problem(event.where, "label", shorten(str(event.label), 60), f"one of {names}, {CANNOT_TELL}{scale}")
        )
        return None
    name = next((grade.name for grade in draw.grades if grade.value == value), None)
    return GivenLabel(value, name, event.note, event.at)


def _grade(grades: Sequence[LabelGrade], label: str | float) -> LabelGrade | None:
    """The grade of this name; upper and lower case are the same where no two grades differ by them alone."""
    if not isinstance(label, str):
        return None
    same = [grade for grade in grades if grade.name == label] or [
        grade for grade in grades if grade.name.casefold() == label.casefold()
    ]
    return same[0] if len(same) == 1 else None


def _number(label: str | float) -> float | None:
    """The number that a label is, also with a comma as spreadsheets of some countries write it; None where it is none."""
    try:
        value = float(label.replace(",", ".") if isinstance(label, str) else label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def draw_of_files(draws: Mapping[Path, tuple[Draw, set[str]]], events: Sequence[LabelEvent]) -> Path | None:
    """The folder of the draw that events belong to: the one they name, else the one with their first item. None: no draw."""
    first = events[0]
    for folder, (draw, items) in draws.items():
        if first.draw == draw.draw_id or (first.draw is None and first.item in items):
            return folder
    return None
