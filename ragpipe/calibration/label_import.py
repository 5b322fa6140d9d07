"""From labelled files to the labels of a draw: the last word of every annotator on every case."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ragpipe.calibration.label_files import DRAWN_COLUMNS, LABEL_COLUMNS, Draw, LabelGrade, ShownCase
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import CaseKey
from ragpipe.core.text import escape, printable, shorten
from ragpipe.core.yaml_files import named_text
from ragpipe.store.files import outside_cause, write_unless_same
from ragpipe.store.table_rows import table_of

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


def labels_of(
    draw: Draw, items: Iterable[str], events: Sequence[LabelEvent], turned: Collection[str] = ()
) -> dict[LabelKey, GivenLabel | None]:
    """What is left of a file's events: the last label of each key, after what was undone; None where all of it was undone. Of the items
    `turned` people saw the other answer first, so that what they chose is turned back.

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
            stack.append(_turned_back(label, draw) if event.item in turned else label)
    checked(problems)
    return {key: stack[-1] if stack else None for key, stack in stacks.items()}


def _turned_back(label: GivenLabel, draw: Draw) -> GivenLabel:
    """The label as if the answers had been shown the other way round: its value alone, the grade is what the person chose."""
    if label.value is None or draw.low is None or draw.high is None:
        return label
    return label._replace(value=draw.low + draw.high - label.value)


def merged_labels(earlier: pa.Table | None, new: Sequence[Mapping[LabelKey, GivenLabel | None]], drawn: pa.Table) -> pa.Table:
    """The labels of a draw: those it has and those of new files, in the order of the draw. Of two labels of a key the later one
    counts; where a time is missing, the one that was read last."""
    rows = {row["item"]: row for row in drawn.to_pylist()}
    items = {CaseKey.of(row)[:3]: item for item, row in rows.items()}
    labels: dict[LabelKey, GivenLabel] = {}
    for row in earlier.to_pylist() if earlier is not None else ():
        given = GivenLabel(row["label"], row["grade"], row["note"], row["at"])
        labels[LabelKey(items[CaseKey.of(row)[:3]], row["annotator"])] = given
    for file in new:
        for key, label in file.items():
            before = labels.get(key)
            if label is None:
                labels.pop(key, None)
                continue
            if before is None or before.at is None or label.at is None or before.at <= label.at:
                labels[key] = label
    order = {item: place for place, item in enumerate(rows)}
    keys = sorted(labels, key=lambda key: (order[key.item], key.annotator))
    return table_of([_row(rows[key.item], key, labels[key]) for key in keys], LABEL_COLUMNS)


def unlabelled_cases(drawn: pa.Table, labels: pa.Table, annotator: str) -> tuple[int, int]:
    """How many of the cases that an annotator is asked have no label by them (a "cannot tell" is one), and how many are asked."""
    rows = drawn.to_pylist()
    asked = {CaseKey.of(row) for row in rows if row["annotators"] is None or annotator in row["annotators"]}
    given = {CaseKey.of(row) for row in labels.to_pylist() if row["annotator"] == annotator}
    return len(asked - given), len(asked)


def _row(case: Row, key: LabelKey, label: GivenLabel) -> Row:
    given = {"label": label.value, "grade": label.grade, "note": label.note, "at": label.at}
    return {**{name: case[name] for name in _FROM_DRAW}, "annotator": key.annotator, **given}


def _stranger(draw: Draw, items: set[str], event: LabelEvent) -> Problem | None:
    if event.draw is not None and event.draw != draw.draw_id:
        fix = "import it into the run that it was drawn from"
        return Problem(event.where, "draw", shorten(event.draw, 60), draw.draw_id, fix)
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
        expected = f"one of {names}, {CANNOT_TELL}{scale}"
        problems.append(Problem(event.where, "label", shorten(str(event.label), 60), expected))
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
    text = _labelled_text(path, problems)
    if text is None:
        return []
    if path.suffix.lower() not in (".csv", ".jsonl"):
        problems.append(Problem(str(path), "label.import", f"a file {path.suffix or 'without an ending'}", _FORMS))
        return []
    rows = _csv_rows(path, text, problems) if path.suffix.lower() == ".csv" else _json_line_rows(path, text, problems)
    events = (_event(where, row, problems) for where, row in rows)
    return [event for event in events if event is not None]


def _labelled_text(path: Path, problems: list[Problem]) -> str | None:
    """The text of a file that is to be imported. None, and a fault in `problems`, where it is too large or no UTF-8 text."""
    try:
        return named_text(path, LIMIT, "utf-8-sig")
    except UnicodeDecodeError as error:
        content = f"text that is not UTF-8 (byte {error.start + 1:,})"
        is_sheet = path.suffix.lower() == ".csv"
        fix = f"save it as {'CSV UTF-8 (in Excel: Save As, CSV UTF-8)' if is_sheet else 'UTF-8'}"
        problems.append(Problem(str(path), "label.import", content, "a file in UTF-8", fix))
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and outside_cause(error):
            raise
        found = f"no readable text ({error})"
        problems.append(Problem(str(path), "label.import", found, "a labelled file", "check the path"))
    return None


def _csv_rows(path: Path, text: str, problems: list[Problem]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a sheet with their first lines. Spreadsheets of some countries write `;` between cells."""
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ",")
    try:
        names = [name.strip() for name in next(reader, [])]
        if missing := [name for name in ("item", "annotator", "label") if name not in names]:
            found = ", ".join(names)[:200] or "nothing"
            problems.append(Problem(f"{path}:1", "columns", found, f"also {', '.join(missing)}"))
            return
        line = reader.line_num + 1
        for cells in reader:
            if any(cells):
                yield f"{path}:{line}", dict(zip(names, cells, strict=False))
            line = reader.line_num + 1
    except csv.Error as error:
        problems.append(Problem(f"{path}:{reader.line_num}", "csv", str(error), "a CSV file with a row per case"))


def _json_line_rows(path: Path, text: str, problems: list[Problem]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines with their places; what is none goes to `problems`."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            found, expected = f"no JSON ({error})", "a JSON object per line"
            problems.append(Problem(f"{path}:{number}", "line", found, expected, "save the file again"))
            continue
        if isinstance(row, dict):
            yield f"{path}:{number}", row
        else:
            found = f"a JSON {type(row).__name__}"
            problems.append(Problem(f"{path}:{number}", "line", found, "a JSON object per line"))


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
    faults, names = len(problems), ("item", "annotator", "question", "note", "draw", "at")
    texts = {name: _text(where, name, row.get(name), problems) for name in names}
    for name in ("item", "annotator", *(("draw",) if is_of_page else ())):
        if not texts[name]:
            problems.append(Problem(where, name, "nothing", _NEEDED[name], f"fill in the column {name}"))
    if isinstance(label, bool) or not (label is None or isinstance(label, str | int | float)):
        problems.append(Problem(where, "label", shorten(repr(label), 60), "the name of a grade, a number, or null"))
    if len(problems) > faults:
        return None
    if label in (CANNOT_TELL, "?"):
        label = None
    given = texts["item"], texts["annotator"], texts["question"], label
    return LabelEvent(where, *given, texts["note"] or None, undo, texts["draw"] or None, texts["at"] or None)


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


CANNOT_TELL = "cannot tell"


def sheet_rows(draw: Draw, items: Mapping[str, ShownCase], *, with_reference: bool) -> list[dict[str, str]]:
    """A row per item, in the order of their names, which says nothing about how they were drawn. To fill in: `annotator`,
    `label` and, if there is something to say, `note`."""
    grades = ", ".join(grade.name for grade in draw.grades)
    rows = []
    for item, case in sorted(items.items()):
        row = {
            "item": item,
            "annotator": "",
            "question": draw.score,
            "label": "",
            "note": "",
            "asked": f"{draw.question} Write one of: {grades}, {CANNOT_TELL}",
            "user_question": case.question,
            "earlier_turns": "\n\n".join(f"{turn.role}: {turn.text}" for turn in case.history),
            **_answers(case),
            "contexts": "(not recorded)" if case.contexts is None else numbered_texts(case.contexts),
        }
        if with_reference:
            row["reference"] = numbered_texts(case.references) if len(case.references) > 1 else "".join(case.references)
        rows.append({name: printable(text) for name, text in row.items()})
    return rows


def _answers(case: ShownCase) -> dict[str, str]:
    """The answer, or both of a pair, by the names of their columns."""
    if case.other_answer is not None:
        return {"answer_a": case.answer or "", "answer_b": case.other_answer}
    return {"answer": "(not recorded)" if case.answer is None else case.answer}


def numbered_texts(texts: list[str]) -> str:
    """The texts one after another, each with its number before it."""
    return "\n\n".join(f"[{number}] {text}" for number, text in enumerate(texts, 1))


def write_sheet(folder: Path, rows: list[dict[str, str]]) -> Path:
    """Write `sheet.csv` of one row or more, for spreadsheets: with a byte order mark, and no text computes. Raises OutputError."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\r\n")
    names = list(rows[0])
    writer.writerow(names)
    writer.writerows([escape(row[name]) for name in names] for row in rows)
    path = folder / "sheet.csv"
    write_unless_same(path, "\ufeff" + table.getvalue())
    return path
