"""From labelled files to the labels of a draw: the last word of every annotator on every case."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.named_files import named_text
from ragpipe.core.safe_text import shorten
from ragpipe.labelling.label_files import DRAWN_COLUMNS, LABEL_COLUMNS, Draw, LabelGrade
from ragpipe.labelling.label_sheets import CANNOT_TELL
from ragpipe.schema.sample import OUTPUT_KEY, CaseKey
from ragpipe.schema.table_schemas import table_of
from ragpipe.store.outside_causes import outside_cause

Row = dict[str, Any]
_FROM_DRAW = tuple(name for name in LABEL_COLUMNS.names if name in DRAWN_COLUMNS.names)


class LabelKey(NamedTuple):
    """Whose label of which item."""

    item: str
    annotator: str


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
        stack = stacks.setdefault(LabelKey(event.item, event.annotator), [])
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
    keys = sorted(labels, key=lambda key: (order[key.item], key.annotator))
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
        LabelKey(items[tuple(row[name] for name in OUTPUT_KEY)], row["annotator"]): GivenLabel(
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


CANNOT_READ = "labelled files cannot be read; nothing was imported"
EVENT_VERSION = 1
"""Of a line of the page's file."""
LIMIT = 64 << 20  # bytes of a file
_FORMS = ".jsonl (of the page) or .csv (a sheet)"


@dataclass(frozen=True)
class LabelEvent:
    """A line of a labelled file: a label, or its undoing. `label` is the text of the label, a number, or None for "cannot
    tell". `draw` and `at` are None in a sheet."""

    where: str
    item: str
    annotator: str
    question: str
    label: str | float | None
    note: str | None
    undo: bool
    draw: str | None
    at: str | None


def read_labelled_file(path: Path, problems: list[Problem]) -> list[LabelEvent]:
    """The labels of a file in their order; lines of a sheet without a label are left out. Faults go to `problems`."""
    text = labelled_text(path, problems)
    if text is None:
        return []
    if path.suffix.lower() not in (".csv", ".jsonl"):
        problems.append(Problem(str(path), "label.import", f"a file {path.suffix or 'without an ending'}", _FORMS))
        return []
    rows = _csv_rows(path, text, problems) if path.suffix.lower() == ".csv" else json_line_rows(path, text, problems)
    events = (_event(where, row, problems) for where, row in rows)
    return [event for event in events if event is not None]


def labelled_text(path: Path, problems: list[Problem]) -> str | None:
    """The text of a file that is to be imported. None, and a fault in `problems`, where it is too large or no UTF-8 text."""
    try:
        return named_text(path, LIMIT, "utf-8-sig")
    except UnicodeDecodeError as error:
        content = f"text that is not UTF-8 (byte {error.start + 1:,})"
        fix = f"save it as {_utf8_words(path)}"
        problems.append(Problem(str(path), "label.import", content, "a file in UTF-8", fix))
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and outside_cause(error):
            raise
        problems.append(
            Problem(str(path), "label.import", f"no readable text ({error})", "a labelled file", "check the path")
        )
    return None


def _utf8_words(path: Path) -> str:
    """What a file is to be saved as, by the name that spreadsheets have for it."""
    return "CSV UTF-8 (in Excel: Save As, CSV UTF-8)" if path.suffix.lower() == ".csv" else "UTF-8"


def _csv_rows(path: Path, text: str, problems: list[Problem]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a sheet with their first lines. Spreadsheets of some countries write `;` between cells."""
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ",")
    try:
        names = [name.strip() for name in next(reader, [])]
        if missing := [name for name in ("item", "annotator", "label") if name not in names]:
            problems.append(
                Problem(f"{path}:1", "columns", ", ".join(names)[:200] or "nothing", f"also {', '.join(missing)}")
            )
            return
        line = reader.line_num + 1
        for cells in reader:
            if any(cells):
                yield f"{path}:{line}", dict(zip(names, cells, strict=False))
            line = reader.line_num + 1
    except csv.Error as error:
        problems.append(Problem(f"{path}:{reader.line_num}", "csv", str(error), "a CSV file with a row per case"))


def json_line_rows(path: Path, text: str, problems: list[Problem]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines with their places; what is none goes to `problems`."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append(
                Problem(
                    f"{path}:{number}", "line", f"no JSON ({error})", "a JSON object per line", "save the file again"
                )
            )
            continue
        if isinstance(row, dict):
            yield f"{path}:{number}", row
        else:
            problems.append(
                Problem(f"{path}:{number}", "line", f"a JSON {type(row).__name__}", "a JSON object per line")
            )


def _event(where: str, row: Mapping[str, Any], problems: list[Problem]) -> LabelEvent | None:
    """The event of a row. None where nobody labelled it, a line of the page only keeps a note, or it has a fault."""
    label, is_of_page = row.get("label", ""), "v" in row
    if is_of_page and row["v"] != EVENT_VERSION:
        problems.append(Problem(where, "v", repr(row["v"]), str(EVENT_VERSION), "label with the page of this ragpipe"))
        return None
    undo = row.get("undo") is True
    if isinstance(label, str):
        label = label.strip()
        if not label and not undo:
            return None
    faults = len(problems)
    texts = {
        name: _text(where, name, row.get(name), problems)
        for name in ("item", "annotator", "question", "note", "draw", "at")
    }
    for name in ("item", "annotator", *(("draw",) if is_of_page else ())):
        if not texts[name]:
            problems.append(Problem(where, name, "nothing", _NEEDED[name], f"fill in the column {name}"))
    if isinstance(label, bool) or not (label is None or isinstance(label, str | int | float)):
        problems.append(Problem(where, "label", shorten(repr(label), 60), "the name of a grade, a number, or null"))
    if len(problems) > faults:
        return None
    if label in (CANNOT_TELL, "?"):
        label = None
    return LabelEvent(
        where,
        texts["item"],
        texts["annotator"],
        texts["question"],
        label,
        texts["note"] or None,
        undo,
        texts["draw"] or None,
        texts["at"] or None,
    )


_NEEDED = {"item": "the item's name", "annotator": "who gave the label", "draw": "the draw's name"}


def _text(where: str, name: str, value: Any, problems: list[Problem]) -> str:
    if value is None or isinstance(value, str):
        return (value or "").strip()
    problems.append(Problem(where, name, shorten(repr(value), 60), "a text"))
    return ""


def checked(problems: list[Problem]) -> None:
    """Raises DataError where there is a problem."""
    if problems:
        raise DataError(CANNOT_READ, problems)
