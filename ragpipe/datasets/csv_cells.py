"""CSV cells in the native form: texts stay texts, every other field's cell is read as JSON, or as Python or numpy print it."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from ragpipe.datasets.csv_rows import INDEX_COLUMN
from ragpipe.datasets.fault_list import Faults, named_fields, shown_value
from ragpipe.datasets.printed_values import NotPrinted, parsed
from ragpipe.datasets.settings import SHORTCUTS
from ragpipe.schema.sample import Output, Sample

_REQUIRED = frozenset({"question", "answer"})


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return True
    parts = get_args(annotation)
    return annotation is str or (type(None) in parts and all(p is type(None) or _is_text(p) for p in parts))


_TEXTS = {n for noun in (Sample, Output) for n, field in noun.model_fields.items() if _is_text(field.annotation)} | {
    "reference"
}
_JSON = ({n for noun in (Sample, Output) for n in noun.model_fields} | SHORTCUTS | {"outputs"}) - _TEXTS


def parse_cell(row: dict[str, str | None], where: str, faults: Faults) -> dict[str, Any] | None:
    """The record of a row: an empty cell is an absent field (an empty `answer` is an empty answer). None on a fault."""
    record: dict[str, Any] = {}
    good = True
    for name, cell in row.items():
        if cell is None or name == INDEX_COLUMN:
            continue
        if name in _REQUIRED or (cell and name not in _JSON):
            record[name] = cell
        elif cell.lower() in ("true", "false"):
            record[name] = cell.lower() == "true"
        elif cell:
            try:
                record[name] = parsed(cell)
            except NotPrinted as error:
                actual, expected = (
                    f"{shown_value(cell)} ({error})",
                    "true, false, a number, or a list or object as JSON",
                )
                faults.add(named_fields(where, row), name, actual, expected, error.fix)
                good = False
    return record if good else None
