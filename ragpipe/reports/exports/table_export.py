"""The tables of a run for other programs: each as CSV or JSON Lines in `export/`, which is laid out as the run folder."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.core.safe_text import UNSAFE, escape
from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.store.files.atomic import json_bytes, open_unless_same, sweep_temporaries
from ragpipe.store.run.run_folder import IterationFolder, RunFolder, make_folder
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


_WRITERS: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "csv": (".csv", write_csv),
    "json": (".jsonl", write_json_lines),
}


def export_tables(folder: RunFolder, formats: Collection[str], iterations: Iterable[int]) -> list[Path]:
    """Write all tables of the run and of these iterations in those of `formats` that are `csv` or `json`.

    Returns the files in a fixed order. Memory is bounded by a few hundred rows. Raises DataError for a table that is
    missing or broken, OutputError.
    """
    writers = [_WRITERS[name] for name in _WRITERS if name in formats]
    if not writers:
        return []
    paths = _export([folder.samples, folder.outputs], folder.export, writers)
    for number in iterations:
        iteration = folder.iteration(number)
        paths += _export(_tables(iteration), folder.export / iteration.root.name, writers)
    return paths


def _tables(folder: IterationFolder) -> list[Path]:
    return [folder.records, folder.scores, folder.judge_inputs]


def _export(tables: list[Path], target: Path, writers: list[tuple[str, Callable[[Path, Path], None]]]) -> list[Path]:
    make_folder(target)
    sweep_temporaries(target)
    paths = []
    for table in tables:
        for ending, write in writers:
            paths.append(target / (table.stem + ending))
            write(table, paths[-1])
    return paths
