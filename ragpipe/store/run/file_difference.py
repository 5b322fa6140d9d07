"""The first thing in which two files of a run folder differ, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_SHOWN = 80  # characters of a value
IDENTITY = ("id", "sample_id", "method", "repeat", "iteration", "metric", "score_name", "step")
"""Columns that name a row to a person, as far as a table has them."""


def first_difference(found: Path, expected: Path) -> str | None:
    """Where `found` is not what `expected` is; None when they say the same (their bytes may still differ)."""
    if found.suffix == ".parquet":
        return _tables(found, expected)
    if found.suffix == ".json":
        try:
            return _values(json.loads(found.read_bytes()), json.loads(expected.read_bytes()), "")
        except ValueError:
            pass  # no JSON any more: the first line that differs says more
    return _lines(found.read_bytes(), expected.read_bytes())


def named_row(path: Path, row: int) -> str:
    """`row 17 (case q1/bm25, faithfulness, verify)`: a row of a table by its number and by what names it."""
    with pq.ParquetFile(path) as file:
        names = [name for name in IDENTITY if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=4096, columns=names):
            if row < batch.num_rows:
                cells = batch.slice(row, 1).to_pylist()[0]
                if (repeat := cells.pop("repeat", 1)) != 1:
                    cells["method"] = f"{cells['method']} repeat {repeat}"
                return f"row {row} ({' / '.join(str(cell) for cell in cells.values() if cell is not None)})"
            row -= batch.num_rows
    return f"row {row} (after the end)"


def _tables(found: Path, expected: Path) -> str | None:
    try:
        with pq.ParquetFile(found) as one, pq.ParquetFile(expected) as other:
            if not one.schema_arrow.equals(other.schema_arrow):
                names = set(one.schema_arrow.names) ^ set(other.schema_arrow.names)
                return f"columns {sorted(names)}" if names else "the types of its columns"
            if one.metadata.num_rows != other.metadata.num_rows:
                return f"{one.metadata.num_rows:,} rows, expected {other.metadata.num_rows:,}"
            start = 0
            for left, right in zip(one.iter_batches(4096), other.iter_batches(4096), strict=True):
                if not left.equals(right):
                    return _cell(left, right, start, found)
                start += left.num_rows
    except (pa.ArrowException, OSError) as error:
        return f"no readable table ({_short(str(error))})"
    return None


def _cell(left: pa.RecordBatch, right: pa.RecordBatch, start: int, path: Path) -> str | None:
    for row in range(left.num_rows):
        if left.slice(row, 1).equals(right.slice(row, 1)):
            continue
        one, other = left.slice(row, 1).to_pylist()[0], right.slice(row, 1).to_pylist()[0]
        for name in one:
            if not _same(one[name], other[name]):
                return f"{named_row(path, start + row)}, {name}: {_pair(one[name], other[name])}"
    return None  # NaN beside NaN: equal for us


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def _values(found: Any, expected: Any, place: str) -> str | None:
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            where = f"{place}.{key}" if place else key
            if key not in found or key not in expected:
                return f"{where}: {'missing' if key not in found else 'not expected'}"
            if difference := _values(found[key], expected[key], where):
                return difference
        return None
    if isinstance(found, list) and isinstance(expected, list):
        for index, (one, other) in enumerate(zip(found, expected, strict=False)):
            if difference := _values(one, other, f"{place}[{index}]"):
                return difference
        return None if len(found) == len(expected) else f"{place}: {len(found)} items, expected {len(expected)}"
    if type(found) is type(expected) and found == expected:
        return None
    return f"{place}: {_pair(found, expected)}"


def _lines(found: bytes, expected: bytes) -> str | None:
    if found == expected:
        return None
    one, other = found.split(b"\n"), expected.split(b"\n")
    for number, (left, right) in enumerate(zip(one, other, strict=False), 1):
        if left != right:
            return f"line {number}: {_pair(left.decode('utf-8', 'replace'), right.decode('utf-8', 'replace'))}"
    return f"{len(one)} lines, expected {len(other)}"


def _pair(found: Any, expected: Any) -> str:
    """Both values; of long ones the part from shortly before the first character that differs."""
    one, other = repr(found), repr(expected)
    alike = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = alike - _SHOWN // 4
    if start > 0 and max(len(one), len(other)) > _SHOWN:
        one, other = "..." + one[start:], "..." + other[start:]
    return f"{_cut(one)}, expected {_cut(other)}"


def _short(value: Any) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
