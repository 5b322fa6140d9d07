"""JSON: a file that holds one list of objects, streamed; or any document, whole, with the path of its list.

Two more forms have names of their own: objects one after another that are not one per line (`json_objects`, streamed), and
an object of columns, each an object of row name and value (`json_columns`, what `DataFrame.to_json()` writes).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from typing import Any, TextIO

from ragpipe.core import strict_json
from ragpipe.data.expressions import BadExpression, Expression
from ragpipe.data.faults import Faults, shown_value
from ragpipe.data.text_lines import DAMAGED, MAX_LINE, NAN_IS_NULL, DataFile, add_damage, open_bytes, text_lines

MAX_DOCUMENT = 512 << 20
_BLOCK = 1 << 20


def read_json_rows(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, record) for each object of the file's list, without holding the list."""
    return _objects(file, faults, _elements)


def read_json_objects(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, record) for each of the objects that stand one after another, with or without line breaks in them."""
    return _objects(file, faults, _values)


def read_json_columns(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, record) of an object of columns. Every column must have the rows of the first one."""
    document = read_document(file, faults)
    if document is None:
        return
    expected = "an object of columns, each an object of row and value"
    if not isinstance(document, dict) or not all(isinstance(column, dict) for column in document.values()):
        faults.add(file.display_path, "document", shown_value(document), expected)
        return
    rows = list(next(iter(document.values()), {}))
    for name, column in document.items():
        if column.keys() != set(rows):
            faults.add(file.display_path, name, f"{len(column)} rows", f"the {len(rows)} rows of the first column")
            return
    for position, row in enumerate(rows, 1):
        yield position, {name: column[row] for name, column in document.items()}


class _Window:
    """A moving piece of the text; `line` is the line of `at`."""

    def __init__(self, stream: TextIO, nan_is_null: bool):
        self._stream, self._nan_is_null = stream, nan_is_null
        self.text, self.at, self.line, self.ended = "", 0, 1, False
        self._column = 1  # in its line, of the first character of `text`

    def more(self, size: int = _BLOCK) -> None:
        piece = self._stream.read(size)
        self.ended = not piece
        self._column = self.column
        self.text, self.at = self.text[self.at :] + piece, 0

    def skip(self, end: int) -> None:
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    @property
    def column(self) -> int:
        line_break = self.text.rfind("\n", 0, self.at)
        return self._column + self.at if line_break < 0 else self.at - line_break

    def next_sign(self) -> str:
        """The next character that is not white space, "" at the end; it is not consumed."""
        while True:
            end = self.at
            while end < len(self.text) and self.text[end] in " \t\r\n":
                end += 1
            self.skip(end)
            if self.at < len(self.text):
                return self.text[self.at]
            if self.ended:
                return ""
            self.more()

    def value(self) -> Any:
        """Parse the value that begins here; reads on while it is cut by the window's edge."""
        while True:
            try:
                value, end = strict_json.raw_decode(self.text, self.at, nan_is_null=self._nan_is_null)
            except json.JSONDecodeError as error:
                left = len(self.text) - self.at
                if not self.ended and left <= MAX_LINE:
                    self.more(max(_BLOCK, left))
                    continue
                self.skip(min(error.pos, len(self.text)))
                raise strict_json.InvalidJson(error.msg, self.column) from None
            self.skip(end)
            return value


Rows = Iterator[tuple[int, Any]]


def _objects(file: DataFile, faults: Faults, values: Callable[[_Window, DataFile, Faults], Rows]) -> Rows:
    """The objects among the values, to the first one that is no JSON."""
    with TextIOWrapper(open_bytes(file.path), "utf-8-sig", newline="") as stream:
        window = _Window(stream, file.nan_is_null)
        try:
            try:
                for line, value in values(window, file, faults):
                    if isinstance(value, dict):
                        yield line, value
                    else:
                        faults.add(file.at(line), "record", shown_value(value), "an object")
            except strict_json.InvalidJson as error:
                actual = f"{error} at column {error.column}" if error.column else str(error)
                actual = "the end of the file" if window.next_sign() == "" else actual
                fix = NAN_IS_NULL if "NaN is" in str(error) else "the rest of the file was not read; is it cut off?"
                faults.add(file.at(window.line), "record", actual, "JSON", fix)
        except UnicodeDecodeError:
            for _ in text_lines(file, faults):  # names every line that is not UTF-8
                pass


def _values(window: _Window, file: DataFile, faults: Faults) -> Rows:
    while window.next_sign():
        yield window.line, window.value()


def _elements(window: _Window, file: DataFile, faults: Faults) -> Rows:
    if (sign := window.next_sign()) != "[":
        if sign:
            fix = (
                "name the list inside by dataset.records=PATH; an object by id needs 'dataset.records=\"*\"', one of columns "
                "'dataset.records=\"rows(@)\"'; one object a line needs dataset.format=jsonl, objects one after another json_objects, "
                "and columns of rows (DataFrame.to_json) json_columns"
            )
            faults.add(file.at(window.line), "document", f"it begins with {sign!r}", "a list of objects", fix)
        return
    window.skip(window.at + 1)
    sign = window.next_sign()
    while sign != "]":
        yield window.line, window.value()
        if (sign := window.next_sign()) == ",":
            window.skip(window.at + 1)
            sign = window.next_sign()
            if sign != "]":
                continue
        elif sign == "]":
            break
        actual = "a comma before `]`" if sign == "]" else repr(sign) if sign else "the end of the file"
        faults.add(file.at(window.line), "list", actual, "a further record or `]`", "is the file cut off?")
        return
    window.skip(window.at + 1)
    if sign := window.next_sign():
        faults.add(file.at(window.line), "document", f"{sign!r} after the list", "the end of the file")


def read_document(file: DataFile, faults: Faults) -> Any:
    """The whole document; None (and a fault) when it cannot be read."""
    lines, left = [], MAX_DOCUMENT
    try:
        for _, piece in text_lines(file, faults):
            lines.append(piece)
            left -= len(piece)
            if left < 0:
                expected = f"at most {MAX_DOCUMENT >> 20} MiB"
                faults.add(file.display_path, "document", "more than that", expected, "write its records as JSONL")
                break
    except DAMAGED as error:
        add_damage(file.display_path, error, faults)
    if faults:
        return None
    text = "".join(lines)
    try:
        return strict_json.strict_loads(text, nan_is_null=file.nan_is_null)
    except strict_json.InvalidJson as error:
        line = text.count("\n", 0, (error.column or 1) - 1) + 1
        fix = NAN_IS_NULL if "NaN is" in str(error) else ""
        faults.add(file.at(line) if error.column else file.display_path, "document", str(error), "JSON", fix)
    return None


def inside(where: str, records: Expression, document: Any, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(position from 1, record) of the list that `records` gives in a document or row, or of the document itself (`@`)."""
    try:
        value = records(document)
    except BadExpression as error:
        faults.add(where, f"records ({records.text})", str(error), "a list of objects")
        return
    if value is document and isinstance(document, dict):
        yield 1, document
        return
    if not isinstance(value, list):
        names = ", ".join(list(document)[:12]) if isinstance(document, dict) else ""
        fix = f"the document's own names: {names}" if names else ""
        faults.add(where, f"records ({records.text})", shown_value(value), "a list of objects", fix)
        return
    for position, record in enumerate(value, 1):
        if isinstance(record, dict):
            yield position, record
        else:
            faults.add(f"{where} record {position}", records.text, shown_value(record), "an object")
