"""Labelled files that come back: labels.jsonl of the page, sheets as .csv or .jsonl. Every fault is named by file and line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.named_files import named_text
from ragpipe.core.safe_text import shorten
from ragpipe.labelling.label_sheets import CANNOT_TELL
from ragpipe.store.outside_causes import outside_cause

CANNOT_READ = "labelled files cannot be read; nothing was imported"
EVENT_VERSION = 1
"""Of a line of the page's file."""
LIMIT = 64 << 20  # bytes of a file
_FORMS = ".jsonl (of the page, or a sheet) or .csv"


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
    number: int
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
    number = _pass_number(where, row.get("pass", 1), problems)
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
        number,
        undo,
        texts["draw"] or None,
        texts["at"] or None,
    )


_NEEDED = {"item": "the item's name", "annotator": "who gave the label", "draw": "the draw's name"}


def _pass_number(where: str, value: Any, problems: list[Problem]) -> int:
    if value in (1, 2, "1", "2", "") and not isinstance(value, bool):
        return int(value or 1)
    problems.append(Problem(where, "pass", shorten(repr(value), 60), "1, or 2 for a case that was asked again"))
    return 1


def _text(where: str, name: str, value: Any, problems: list[Problem]) -> str:
    if value is None or isinstance(value, str):
        return (value or "").strip()
    problems.append(Problem(where, name, shorten(repr(value), 60), "a text"))
    return ""


def checked(problems: list[Problem]) -> None:
    """Raises DataError where there is a problem."""
    if problems:
        raise DataError(CANNOT_READ, problems)
