"""CSV by the csv module, every cell a text: 007, 1e5 and NA stay what they are."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.text_lines import MAX_LINE, DataFile, text_lines

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
    lines = _Counted(text_lines(file, faults))
    reader = csv.reader(lines, delimiter=file.delimiter, strict=True)
    header: list[str] | None = None
    while True:
        start = lines.number + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fix = "a quote inside a quoted cell is written twice; close every quote"
            if "\r" in lines.text.rstrip("\r\n"):
                fix = "lines that end with a bare CR are not read: `tr '\\r' '\\n' < FILE > NEW`"
            faults.add(file.at(start), "row", f"{error} (the row ends on line {lines.number})", "a CSV row", fix)
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


class _Counted:
    """Lines for the csv module; `number` and `text` are those of the last one it took."""

    def __init__(self, lines: Iterator[tuple[int, str]]):
        self._lines = lines
        self.number, self.text = 0, ""

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> str:
        self.number, self.text = next(self._lines)
        return self.text


def _header(row: list[str], line: int, file: DataFile, faults: Faults, repeated_columns: bool) -> list[str] | None:
    names = [name.strip() for name in row]
    if not names[0]:
        names[0] = INDEX_COLUMN
    twice = sorted({name for name in names if names.count(name) > 1 and not repeated_columns})
    if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
        sign = next(sign for sign in ";\t|" if sign in names[0])
        fix = f"set dataset.delimiter to {sign!r}"
        faults.add(
            file.at(line), "header", f"one column, {names[0][:60]!r}", f"columns separated by {file.delimiter!r}", fix
        )
    elif twice:
        faults.add(file.at(line), "header", f"the column {twice[0]!r} twice", "one column of a name")
    elif "" in names:
        faults.add(file.at(line), "header", f"column {names.index('') + 1} without a name", "a name for each column")
    else:
        return names
    return None
