"""The first difference between two files of a run folder, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.core.safe_text import shorten

_VALUE_CHARS = 77  # of a value in a message, before `...`
_CONTEXT_CHARS = 20  # before the first character that differs
_BATCH = 4096  # rows
IDENTITY = ("id", "sample_id", "method", "repeat", "iteration", "metric", "score_name", "step")
"""Columns that identify a row for a person, as far as a table has them."""


def first_difference(actual: Path, expected: Path) -> str | None:
    """Where `actual` differs from `expected`; None when their content is equal (their bytes may still differ)."""
    if actual.suffix == ".parquet":
        return _table_difference(actual, expected)
    if actual.suffix == ".json":
        try:
            return _value_difference(json.loads(actual.read_bytes()), json.loads(expected.read_bytes()), "")
        except (ValueError, RecursionError):
            pass  # no longer JSON: the first line that differs says more
    return _line_difference(actual.read_bytes(), expected.read_bytes())


def named_row(path: Path, row: int) -> str:
    """`row 17 (case q1/bm25, faithfulness, verify)`: a row of a table by its number and its identity."""
    with pq.ParquetFile(path) as file:
        names = [name for name in IDENTITY if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=_BATCH, columns=names):
            if row < batch.num_rows:
                cells = batch.slice(row, 1).to_pylist()[0]
                if (repeat := cells.pop("repeat", 1)) != 1:
                    cells["method"] = f"{cells['method']} repeat {repeat}"
                return f"row {row} ({' / '.join(str(cell) for cell in cells.values() if cell is not None)})"
            row -= batch.num_rows
    return f"row {row} (after the end)"


def _table_difference(actual: Path, expected: Path) -> str | None:
    try:
        with pq.ParquetFile(actual) as left_file, pq.ParquetFile(expected) as right_file:
            if difference := _shape_difference(left_file, right_file):
                return difference
            start = 0
            pairs = zip(left_file.iter_batches(_BATCH), right_file.iter_batches(_BATCH), strict=True)
            for left, right in pairs:
                if not left.equals(right):
                    return _cell_difference(left, right, start, actual)
                start += left.num_rows
    except (pa.ArrowException, OSError) as error:
        return f"no readable table ({shorten(repr(str(error)), _VALUE_CHARS)})"
    return None


def _shape_difference(actual: pq.ParquetFile, expected: pq.ParquetFile) -> str | None:
    """Different columns, types or numbers of rows."""
    if not actual.schema_arrow.equals(expected.schema_arrow):
        names = set(actual.schema_arrow.names) ^ set(expected.schema_arrow.names)
        return f"columns {sorted(names)}" if names else "the types of its columns"
    if actual.metadata.num_rows != expected.metadata.num_rows:
        return f"{actual.metadata.num_rows:,} rows, expected {expected.metadata.num_rows:,}"
    return None


def _cell_difference(left: pa.RecordBatch, right: pa.RecordBatch, start: int, path: Path) -> str | None:
    for row in range(left.num_rows):
        if left.slice(row, 1).equals(right.slice(row, 1)):
            continue
        actual, expected = left.slice(row, 1).to_pylist()[0], right.slice(row, 1).to_pylist()[0]
        for name in actual:
            if not _is_same(actual[name], expected[name]):
                return f"{named_row(path, start + row)}, {name}: {_both(actual[name], expected[name])}"
    return None  # NaN on both sides counts as equal


def _is_same(left: Any, right: Any) -> bool:
    return bool(left == right or (left != left and right != right))


def _value_difference(actual: Any, expected: Any, place: str) -> str | None:
    if isinstance(actual, dict) and isinstance(expected, dict):
        return _mapping_difference(actual, expected, place)
    if isinstance(actual, list) and isinstance(expected, list):
        return _list_difference(actual, expected, place)
    if type(actual) is type(expected) and actual == expected:
        return None
    return f"{place}: {_both(actual, expected)}"


def _mapping_difference(actual: Mapping[str, Any], expected: Mapping[str, Any], place: str) -> str | None:
    for key in [*expected, *(key for key in actual if key not in expected)]:
        where = f"{place}.{key}" if place else key
        if key not in actual:
            return f"{where}: missing"
        if key not in expected:
            return f"{where}: not expected"
        if difference := _value_difference(actual[key], expected[key], where):
            return difference
    return None


def _list_difference(actual: Sequence[Any], expected: Sequence[Any], place: str) -> str | None:
    for index, (left, right) in enumerate(zip(actual, expected, strict=False)):
        if difference := _value_difference(left, right, f"{place}[{index}]"):
            return difference
    return None if len(actual) == len(expected) else f"{place}: {len(actual)} items, expected {len(expected)}"


def _line_difference(actual: bytes, expected: bytes) -> str | None:
    if actual == expected:
        return None
    left_lines, right_lines = actual.split(b"\n"), expected.split(b"\n")
    for number, (left, right) in enumerate(zip(left_lines, right_lines, strict=False), 1):
        if left != right:
            return f"line {number}: {_both(left.decode('utf-8', 'replace'), right.decode('utf-8', 'replace'))}"
    return f"{len(left_lines)} lines, expected {len(right_lines)}"


def _both(actual: Any, expected: Any) -> str:
    """Both values; of long ones the part from shortly before the first character that differs."""
    left, right = repr(actual), repr(expected)
    first = next((place for place, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
    start = first - _CONTEXT_CHARS
    if start > 0 and max(len(left), len(right)) > _VALUE_CHARS + len("..."):
        left, right = "..." + left[start:], "..." + right[start:]
    return f"{shorten(left, _VALUE_CHARS)}, expected {shorten(right, _VALUE_CHARS)}"
