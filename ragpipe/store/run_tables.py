"""The reader of run folders: Parquet tables and JSON files, whoever made the folder.

Links are not followed. A file that is missing, a link, too large, broken or not what its run's seal says is one DataError with
its path: whoever reads a sealed file compares its bytes first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.strict_json import refuse_constant
from ragpipe.store.files import outside_cause
from ragpipe.store.seals import CHANGED_BYTES, is_changed, seal_over

BATCH = 256  # rows in memory at once; a row of judge_inputs.parquet may be tens of kilobytes
_BATCH_BYTES = 4 << 20  # of a batch of small rows, as they are stored without compression
_SMALL_ROWS = 32_768  # in one batch
NUMBERS = 32_768  # numbers in memory at once, beside those that are kept
JSON_LIMIT = 256 << 20  # bytes
_TABLE = "the table that ragpipe wrote"
_SEALED_KEYS = ("run_id", "source_run", "name", "created_at", "identity")
_FIX = "start the run's own command again (stored replies are used), or copy the whole run folder"
_RESTORE = (
    "restore the file, or remove it and start the run's own command again (stored replies are used); changed cases are judged "
    "with task=evaluate, as a run of their own"
)


def run_file_error(path: Path, content: str, expected: str, *, key: str = "file") -> DataError:
    """The DataError for a file of a run folder that cannot be used. `key` is the column or field at fault."""
    fix = f"remove it and {_FIX}" if path.exists() else _FIX
    return DataError("cannot read this run", [Problem(str(path), key, content, expected, fix)])


def check_regular_file(path: Path) -> None:
    """Raises DataError unless the path is a file and no link."""
    if path.is_symlink():
        raise run_file_error(path, "a symbolic link", "the file itself: links in a run folder are not followed")
    if not path.is_file():
        raise run_file_error(path, "no such file", "a file of a finished run")


def check_sealed(*paths: Path) -> None:
    """Raises DataError for a file that was changed after its run was sealed, and for a seal that was changed itself. Files that no
    seal names, and missing ones, are passed over."""
    problems = []
    for path in paths:
        try:
            if is_changed(path):
                problems.append(Problem(str(path), path.name, CHANGED_BYTES, "what seal.json says", _RESTORE))
        except ValueError as error:
            expected, fix = "the seal that ragpipe wrote", "copy the whole run folder"
            problem = Problem(str(path.parent), "seal.json", f"changed: {error}", expected, fix)
            raise DataError("a run's seal cannot be trusted", [problem]) from error
    if problems:
        raise DataError("this run was changed after it was sealed; nothing was computed", problems)


def check_sealed_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raises DataError where a manifest does not name the run that was sealed: what a later start writes into it is not looked at."""
    try:
        seal = seal_over(path.parent)
    except ValueError:
        return  # said by whoever reads a sealed file, and by the run's own start
    sealed = seal["manifest"] if seal else {}
    if changed := [key for key in _SEALED_KEYS if seal and manifest.get(key) != sealed.get(key)]:
        problem = Problem(str(path), changed[0], "changed since the run was sealed", "what seal.json says", _RESTORE)
        raise DataError("this run was changed after it was sealed; nothing was computed", [problem])


@contextmanager
def reading_table(path: Path, *invalid: type[Exception]) -> Iterator[None]:
    """Inside, an error of pyarrow or of the system is a DataError about this table; so are errors of the types `invalid`.

    What the machine lacks (memory, open files) says nothing about the file, and is passed on as it is.
    """
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, *invalid) as error:  # no UTF-8: a damaged name in the footer
        if isinstance(error, MemoryError) or outside_cause(error):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise run_file_error(path, f"no readable Parquet file ({reason})", _TABLE) from error


def open_parquet_file(path: Path, columns: Sequence[str] = (), **options: Any) -> pq.ParquetFile:
    """A table of a run folder, to be closed by the caller. `options` are those of `pq.ParquetFile`.

    Raises DataError for one that is missing, a link, unreadable, or without one of `columns`.
    """
    check_regular_file(path)
    check_sealed(path)
    with reading_table(path):
        file = pq.ParquetFile(path, **options)
    if missing := [name for name in columns if name not in file.schema_arrow.names]:
        file.close()
        raise run_file_error(path, f"no column {', '.join(missing)}", _TABLE)
    return file


@contextmanager
def open_table(path: Path, columns: Sequence[str] = (), **options: Any) -> Iterator[pq.ParquetFile]:
    """As `open_parquet_file`, closed at the end of the block.

    Do nothing but read this file inside: any OSError there is reported as an error of this table.
    """
    with open_parquet_file(path, columns, **options) as file, reading_table(path):
        yield file


def schema_of(path: Path) -> pa.Schema:
    """The columns of a table with their descriptions. Raises DataError."""
    with open_table(path) as file:
        return file.schema_arrow


def read_columns(path: Path, columns: Sequence[str]) -> pa.Table:
    """These columns of all rows, in memory at once. Raises DataError."""
    with open_table(path, columns) as file:
        return file.read(columns=list(columns))


def count_rows(path: Path) -> int:
    """The number of rows of a table, from its footer. Raises DataError."""
    with open_table(path) as file:
        return int(file.metadata.num_rows)


def group_starts(file: pq.ParquetFile) -> list[int]:
    """The place of the first row of each row group, and last the number of rows."""
    metadata = file.metadata
    return [0, *accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))]


def numbers_of(file: pq.ParquetFile, column: str) -> NDArray[np.float64]:
    """A column of numbers or flags of an open table; NaN is null."""
    parts = [
        batch.column(0).cast(pa.float64()).to_numpy(zero_copy_only=False)
        for batch in file.iter_batches(batch_size=NUMBERS, columns=[column])
    ]
    return np.concatenate([np.empty(0), *parts])


def batches(path: Path, columns: Sequence[str] | None = None, *, size: int = BATCH) -> Iterator[pa.RecordBatch]:
    """The rows of a table in their order, at most `size` at once; all columns, or those named. Raises DataError."""
    with open_table(path, columns or ()) as file:  # errors of the caller's loop are not raised in here
        yield from file.iter_batches(batch_size=size, columns=None if columns is None else list(columns))


def query_rows(path: Path, **cells: Any) -> list[dict[str, Any]]:
    """The rows whose columns hold exactly these values, in the table's order. Raises DataError."""
    return list(numbered_rows(path, **cells).values())


def numbered_rows(path: Path, columns: Sequence[str] | None = None, /, **cells: Any) -> dict[int, dict[str, Any]]:
    """The rows whose columns hold exactly these values by their place in the table, from 0: all columns, or those named.

    Only the columns of `cells` are read of a row group without such a row. Raises DataError.
    """
    rows: dict[int, dict[str, Any]] = {}
    with open_table(path, [*cells, *(columns or ())]) as file:
        start = 0
        for group in range(file.num_row_groups):
            if len(matches := _matches(file.read_row_group(group, columns=list(cells)), cells)):
                table = file.read_row_group(group, columns=None if columns is None else list(columns)).take(matches)
                rows |= zip((start + place for place in matches.to_pylist()), table.to_pylist(), strict=True)
            start += file.metadata.row_group(group).num_rows
    return rows


def _matches(table: pa.Table, cells: Mapping[str, Any]) -> pa.Array:
    """The places of the rows with these values, each of the type of its column or None."""
    is_match = np.ones(table.num_rows, dtype=np.bool_)
    for name, value in cells.items():
        column = table[name]
        is_equal = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
        is_match &= pc.fill_null(is_equal, False).to_numpy()
    return pa.array(np.flatnonzero(is_match))


def rows_at(path: Path, places: Collection[int], columns: Sequence[str] | None = None) -> dict[int, dict[str, Any]]:
    """The rows at these places (from 0): all columns, or those named. Row groups without one are not read. Raises DataError."""
    rising = np.array(sorted(set(places)), dtype=np.int64)
    rows = (row for batch in batches_at(path, rising, columns) for row in batch.to_pylist())
    return dict(zip(rising.tolist(), rows, strict=False))


def batches_at(path: Path, places: NDArray[np.int64], columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows at these places (from 0, rising): all columns, or those named. Row groups without one are not read. Raises
    DataError."""
    with open_table(path, columns or ()) as file:
        yield from batches_in(file, places, columns)


def batches_in(
    file: pq.ParquetFile, places: NDArray[np.int64], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """As `batches_at`, of an open table. Raises errors of pyarrow."""
    start = 0
    for group in range(file.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        in_group = places[slice(*np.searchsorted(places, [start, end]))] - start
        for first, batch in _numbered_batches(file, group, columns) if len(in_group) else ():
            in_batch = in_group[slice(*np.searchsorted(in_group, [first, first + batch.num_rows]))] - first
            if len(in_batch):
                yield batch if len(in_batch) == batch.num_rows else batch.take(pa.array(in_batch))
        start = end


def columns_at(path: Path, places: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
    """As `batches_at`, in memory at once. Raises DataError."""
    with open_table(path, columns) as file:
        return pa.Table.from_batches(batches_in(file, places, columns), schema=schema_in(file, columns))


def schema_in(file: pq.ParquetFile, columns: Sequence[str]) -> pa.Schema:
    """These columns of an open table."""
    schema = file.schema_arrow
    return pa.schema([schema.field(name) for name in columns])


def _numbered_batches(file: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of a row group, each with the place of its first row within the group."""
    size, first = file.metadata.row_group(group), 0
    rows = min(_SMALL_ROWS, size.num_rows * _BATCH_BYTES // max(1, size.total_byte_size))
    chosen = None if columns is None else list(columns)
    for batch in file.iter_batches(batch_size=max(BATCH, rows), row_groups=[group], columns=chosen):
        yield first, batch
        first += batch.num_rows


def is_json(field: pa.Field) -> bool:
    """Whether a text column contains JSON: its description starts with `JSON `."""
    return bytes((field.metadata or {}).get(b"description", b"")).startswith(b"JSON ")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder, at most JSON_LIMIT bytes. Raises DataError, also for one that lacks what readers of such a
    file need."""
    check_regular_file(path)
    check_sealed(path)
    if path.stat().st_size > JSON_LIMIT:
        raise run_file_error(path, f"{path.stat().st_size:,} bytes", f"at most {JSON_LIMIT:,}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse_constant)
    except OSError as error:
        if outside_cause(error):
            raise
        raise run_file_error(path, str(error), "a readable file") from error
    except (ValueError, RecursionError) as error:
        raise run_file_error(path, f"no readable JSON ({error})", "the JSON object that ragpipe wrote") from error
    if not isinstance(content, dict):
        raise run_file_error(path, f"a JSON {type(content).__name__}", "a JSON object")
    if found := shape_fault(path, content):
        raise run_file_error(path, found, "what ragpipe wrote")
    return content


_EACH = "*"  # of a shape: every value of a mapping
_NUMBER = (int, float)
_MAYBE_NUMBER = (int, float, type(None))
_SCORES = {"scores": {_EACH: {"mean": _MAYBE_NUMBER, "n_ok": int}}}
_USAGE = {"calls": int, "replies": int, "tokens_in": int, "tokens_out": int, "usd_known": _NUMBER, "unpriced": int}
_USED = {**_USAGE, "calls_computed": int, "calls_failed": int}
_METRICS: dict[str, Any] = {
    "n_cases": int,
    "signature": str,
    "judge": {"label": str},
    "declared": {_EACH: {"low": _MAYBE_NUMBER, "high": _MAYBE_NUMBER, "higher_is_better": bool}},
    "overall": _SCORES,
    "by": {_EACH: {_EACH: _SCORES}},
    "scoring": {"level": _NUMBER},
}
_SHAPES: Mapping[str, Any] = {
    "metrics.json": {**_METRICS, "iteration": int},
    "cost.json": {"used": _USED, "spent": _USAGE, "prices": dict},
    "final/metrics.json": {**_METRICS, "iterations": [int]},
    "final/cost.json": {"total": {"used": _USED, "spent": _USAGE}},
    "verdict.json": {"state": str, "sentence": str, "reasons": [{"code": str, "text": str}]},
    "gates.json": {"gates": [{"name": str, "outcome": str, "verdict": str, "sentence": str}]},
}


def shape_fault(path: Path, content: Mapping[str, Any]) -> str | None:
    """The first part of a run's document that is missing or of another kind, in words; None where all is there."""
    name = f"final/{path.name}" if path.parent.name == "final" else path.name
    return fault(content, _SHAPES.get(name, {}), "")


def fault(value: Any, shape: Any, place: str) -> str | None:
    """The first part of a JSON value, found at `place`, that is missing or of another kind than `shape` says, in words."""
    if isinstance(shape, type | tuple):
        is_right = isinstance(value, shape) and not (isinstance(value, bool) and shape is not bool)
        return None if is_right else f"{place} is {value!r:.60}"
    if not isinstance(value, type(shape)):
        return f"{place} is a {type(value).__name__}"
    if isinstance(shape, list):
        parts = [(item, shape[0], f"{place}[{number}]") for number, item in enumerate(value)]
    elif _EACH in shape:
        parts = [(item, shape[_EACH], f"{place}.{key}") for key, item in value.items()]
    else:
        if missing := [key for key in shape if key not in value]:
            return f"no `{missing[0]}`" + (f" in {place.lstrip('.')}" if place else "")
        parts = [(value[key], kind, f"{place}.{key}") for key, kind in shape.items()]
    return next(filter(None, (fault(item, kind, where.lstrip(".")) for item, kind, where in parts)), None)
