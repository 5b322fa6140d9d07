"""Reading the tables of a run folder, whoever it came from: links are not followed, and a broken file is named."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ragpipe.schema.sample import CaseKey
from ragpipe.store.run.table_query import unreadable_table

BATCH = 256  # rows held at once; a row of judge_inputs.parquet may be tens of kilobytes


@contextmanager
def open_table(path: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file of a run folder, to be read and nothing else while it is open: any OSError counts as its own.

    Raises DataError for one that is missing, a link, or cannot be read.
    """
    check_plain(path)
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise unreadable_table(path, f"no readable Parquet file ({error})", "the table that ragpipe wrote") from None


def schema_of(path: Path) -> pa.Schema:
    """The columns of a table with their descriptions. Raises DataError."""
    with open_table(path) as file:
        return file.schema_arrow


def batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a table in their order, at most BATCH at once. Raises DataError."""
    with open_table(path) as file:  # what the reader of the batches raises does not come in here
        yield from file.iter_batches(batch_size=BATCH, columns=columns)


def rows_at(path: Path, places: Collection[int]) -> dict[int, dict[str, Any]]:
    """The rows at these places (from 0), reading only the row groups that hold them. Raises DataError."""
    found: dict[int, dict[str, Any]] = {}
    with open_table(path) as file:
        start = 0
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            here = [place for place in places if start <= place < start + size]
            for first, batch in _numbered(file, group) if here else ():
                for place in here:
                    if 0 <= place - start - first < batch.num_rows:
                        found[place] = batch.slice(place - start - first, 1).to_pylist()[0]
            start += size
    return found


def rows_of(path: Path, cases: Collection[CaseKey]) -> dict[CaseKey, list[dict[str, Any]]]:
    """The rows of these cases in their order. Texts are read only where such a row stands."""
    found: dict[CaseKey, list[dict[str, Any]]] = {case: [] for case in cases}
    ids = pa.array(sorted({case.sample_id for case in cases}), type=pa.string())
    with open_table(path) as file:
        for group in range(file.metadata.num_row_groups):
            names = file.read_row_group(group, columns=["sample_id"])["sample_id"]
            if pc.any(pc.is_in(names, value_set=ids)).as_py():
                for _, batch in _numbered(file, group):
                    for row in batch.filter(pc.is_in(batch.column("sample_id"), value_set=ids)).to_pylist():
                        if (case := CaseKey.of(row)) in found:
                            found[case].append(row)
    return found


def _numbered(file: pq.ParquetFile, group: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of a row group, each with the place of its first row within the group."""
    first = 0
    for batch in file.iter_batches(batch_size=BATCH, row_groups=[group]):
        yield first, batch
        first += batch.num_rows


def check_plain(path: Path) -> None:
    """Raises DataError unless the path is a file and no link."""
    if path.is_symlink():
        raise unreadable_table(path, "a symbolic link", "the file itself: links in a run folder are not followed")
    if not path.is_file():
        raise unreadable_table(path, "no such file", "a file of a finished run")


def is_json(field: pa.Field) -> bool:
    """Whether a column of texts holds JSON: its description says so."""
    return bytes((field.metadata or {}).get(b"description", b"")).startswith(b"JSON ")
