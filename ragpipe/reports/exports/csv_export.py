r"""Tables as CSV for spreadsheets and other programs; text of data sets and judges can neither compute nor shift a cell there.

RFC 4180 with a byte order mark (spreadsheets take UTF-8 for something else without it), CRLF after each row. Texts are
always in quotes; numbers, `true` and `false` never; a null is nothing at all and so differs from the empty text `""`. A
list of texts is its JSON.

Control characters, and marks that reorder the text around them, are shown by their number (`\u001b`), so that a file
that is printed to a terminal cannot drive it; line breaks and tabs stay. In a cell that is JSON this is the same JSON.

What a spreadsheet would take for a formula is escaped (`core/spreadsheet_text.py`): `restore` there gives back every text without
those characters.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.core.safe_text import UNSAFE, escape
from ragpipe.store.files.atomic import open_unless_same
from ragpipe.store.run.run_tables import batches, schema_of

BOM = b"\xef\xbb\xbf"
_UNSAFE = re.compile(f"\r(?!\n)|(?!\r){UNSAFE}")  # a line break of two characters stays


def write_csv(table: Path, target: Path) -> None:
    """Write a Parquet table as CSV, row by row; left alone when nothing would change. Raises DataError, OutputError."""
    schema = schema_of(table)
    cells = [_cells(field.type) for field in schema]
    with open_unless_same(target) as file:
        file.write(BOM + _row([_quoted(name) for name in schema.names]))
        for batch in batches(table):
            columns = [cell(column.to_pylist()) for cell, column in zip(cells, batch.columns, strict=True)]
            file.write(b"".join(map(_row, zip(*columns, strict=True))))


def _row(cells: Any) -> bytes:
    return (",".join(cells) + "\r\n").encode("utf-8")


def _cells(kind: pa.DataType) -> Callable[[list[Any]], list[str]]:
    """How the values of a column are written."""
    if pa.types.is_boolean(kind):
        return lambda values: ["" if v is None else "true" if v else "false" for v in values]
    if pa.types.is_floating(kind):
        return lambda values: ["" if v is None or not math.isfinite(v) else repr(v) for v in values]
    if pa.types.is_integer(kind):
        return lambda values: ["" if v is None else str(v) for v in values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda values: ["" if v is None else _quoted(v) for v in values]
    return lambda values: ["" if v is None else _quoted(_json(v)) for v in values]


def _quoted(text: str) -> str:
    return '"' + escape(_UNSAFE.sub(_number, text)).replace('"', '""') + '"'


def _number(sign: re.Match[str]) -> str:
    return f"\\u{ord(sign[0]):04x}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
