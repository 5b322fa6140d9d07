"""Tables as JSON Lines: one object per row with every column, null for a missing value, no NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.store.files.atomic import json_bytes, open_unless_same
from ragpipe.store.run.run_tables import batches, is_json, schema_of


def write_json_lines(table: Path, target: Path) -> None:
    """Write a Parquet table as JSON Lines, row by row; left alone when nothing would change.

    Columns that hold JSON as text (chunks, details, messages ...) become objects and lists; a text there that is not
    strict JSON stays a text. Raises DataError, OutputError.
    """
    schema = schema_of(table)
    values = [_values(field) for field in schema]
    with open_unless_same(target) as file:
        for batch in batches(table):
            columns = [value(column.to_pylist()) for value, column in zip(values, batch.columns, strict=True)]
            for row in zip(*columns, strict=True):
                file.write(json_bytes(dict(zip(schema.names, row, strict=True))) + b"\n")


def _values(field: pa.Field) -> Callable[[list[Any]], list[Any]]:
    """How the values of a column are written."""
    if pa.types.is_floating(field.type):
        return lambda column: [None if v is None or not math.isfinite(v) else v for v in column]
    if is_json(field):
        return lambda column: [None if v is None else _parsed(v) for v in column]
    return lambda column: column


def _parsed(text: str) -> Any:
    try:
        return strict_loads(text)
    except InvalidJson:
        return text
