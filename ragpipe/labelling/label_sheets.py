"""The cases of a draw as a sheet, for those who prefer one to the page: as blind as the page. `label_import` reads it back."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from ragpipe.core.safe_text import escape, printable
from ragpipe.labelling.drawn_cases import ShownCase
from ragpipe.labelling.label_files import Draw
from ragpipe.store.files.atomic import write_unless_same

SHEET_COLUMNS = ("item", "annotator", "question", "label", "note")
"""What comes back; the columns after these are to read."""
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
            "answer": "(not recorded)" if case.answer is None else case.answer,
            "contexts": "(not recorded)" if case.contexts is None else numbered_texts(case.contexts),
        }
        if with_reference:
            row["reference"] = numbered_texts(case.references) if len(case.references) > 1 else "".join(case.references)
        rows.append({name: printable(text) for name, text in row.items()})
    return rows


def numbered_texts(texts: list[str]) -> str:
    """The texts one after another, each with its number before it."""
    return "\n\n".join(f"[{number}] {text}" for number, text in enumerate(texts, 1))


def write_sheet(folder: Path, rows: list[dict[str, str]]) -> Path:
    """Write `sheet.csv`, for spreadsheets: with a byte order mark, and no text computes. Raises OutputError."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\r\n")
    names = list(rows[0]) if rows else list(SHEET_COLUMNS)
    writer.writerow(names)
    writer.writerows([escape(row[name]) for name in names] for row in rows)
    path = folder / "sheet.csv"
    write_unless_same(path, "\ufeff" + table.getvalue())
    return path
