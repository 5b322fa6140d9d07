"""CSV by the csv module, every cell a text: 007, 1e5 and NA stay what they are."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from ragpipe.core.sample import Output, Sample
from ragpipe.data.expressions import NotPrinted, parsed
from ragpipe.data.faults import Faults, named_fields, shown_value
from ragpipe.data.settings import SHORTCUTS
from ragpipe.data.text_lines import MAX_LINE, DataFile, text_lines

INDEX_COLUMN = "Unnamed: 0"
"""The first column of a data frame that was written with its index has no name; pandas reads it under this one. The native form
reads past it."""


def read_csv_rows(
    file: DataFile, faults: Faults, *, repeated_columns: bool = False
) -> Iterator[tuple[int, dict[str, str | None]]]:
    """(line on which the row begins, record by column name). The first row names the columns.

    With `repeated_columns` a column may stand twice, as in a data frame that is written with its index: the last one counts.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))  # process-wide; the default 128 KiB cuts real contexts
    number, text = 0, ""

    def lines() -> Iterator[str]:
        nonlocal number, text
        for line in text_lines(file, faults):
            number, text = line
            yield text

    reader = csv.reader(lines(), delimiter=file.delimiter, strict=True)
    header: list[str] | None = None
    while True:
        start = number + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fix = "a quote inside a quoted cell is written twice; close every quote"
            if "\r" in text.rstrip("\r\n"):
                fix = "lines that end with a bare CR are not read: `tr '\\r' '\\n' < FILE > NEW`"
            faults.add(file.at(start), "row", f"{error} (the row ends on line {number})", "a CSV row", fix)
            if header is None:
                return
            continue
        if not row:  # a blank line; `""` is a row with an empty cell
            continue
        if header is None:
            header = _header(row, start, file, faults, repeated_columns)
            if header is None:
                return
        elif len(row) != len(header):
            fix = "quote cells that hold the separator" if len(row) > len(header) else "is the line cut off?"
            faults.add(file.at(start), "row", f"{len(row)} cells", f"{len(header)}, as in the header", fix)
        else:
            cells = [cell or None for cell in row] if file.empty_is_null else row
            yield start, dict(zip(header, cells, strict=True))


def _header(row: list[str], line: int, file: DataFile, faults: Faults, repeated_columns: bool) -> list[str] | None:
    names = [name.strip() for name in row]
    if not names[0]:
        names[0] = INDEX_COLUMN
    twice = sorted({name for name in names if names.count(name) > 1 and not repeated_columns})
    if len(names) == 1 and (signs := [sign for sign in ";\t|" if sign in names[0]]):
        found, fix = f"one column, {names[0][:60]!r}", f"set dataset.delimiter to {signs[0]!r}"
        faults.add(file.at(line), "header", found, f"columns separated by {file.delimiter!r}", fix)
    elif twice:
        faults.add(file.at(line), "header", f"the column {twice[0]!r} twice", "one column of a name")
    elif "" in names:
        faults.add(file.at(line), "header", f"column {names.index('') + 1} without a name", "a name for each column")
    else:
        return names
    return None


_REQUIRED = frozenset({"question", "answer"})


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return True
    parts = get_args(annotation)
    return annotation is str or (type(None) in parts and all(p is type(None) or _is_text(p) for p in parts))


_FIELDS = Sample.model_fields | Output.model_fields
_TEXTS = {"reference", *(name for name, field in _FIELDS.items() if _is_text(field.annotation))}
JSON_FIELDS = {*_FIELDS, *SHORTCUTS, "outputs"} - _TEXTS


def parse_cell(row: dict[str, str | None], where: str, faults: Faults) -> dict[str, Any] | None:
    """The record of a row: an empty cell is an absent field (an empty `answer` is an empty answer). None on a fault."""
    record: dict[str, Any] = {}
    good = True
    for name, cell in row.items():
        if cell is None or name == INDEX_COLUMN:
            continue
        if name in _REQUIRED or (cell and name not in JSON_FIELDS):
            record[name] = cell
        elif cell.lower() in ("true", "false"):
            record[name] = cell.lower() == "true"
        elif cell:
            try:
                record[name] = parsed(cell)
            except NotPrinted as error:
                actual, expected = (f"{shown_value(cell)} ({error})", "true, false, a number, or a list or object as JSON")
                faults.add(named_fields(where, row), name, actual, expected, error.fix)
                good = False
    return record if good else None
