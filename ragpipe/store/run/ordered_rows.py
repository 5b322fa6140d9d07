"""Reading tables of a run from their beginning to their end, where a page or an export needs every case: each row group once."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.store.run.run_tables import (
    BATCH,
    batches_at,
    group_starts,
    open_parquet_file,
    reading_table,
    run_file_error,
)

Row = dict[str, Any]
OutputKey = tuple[str, str, int]


def rows_in_order(path: Path, columns: Sequence[str], places: NDArray[np.int64]) -> Iterator[Row]:
    """The rows at these places (from 0, rising), these columns of them. Raises DataError."""
    for batch in batches_at(path, places, columns):
        for start in range(0, batch.num_rows, BATCH):
            yield from batch.slice(start, BATCH).to_pylist()


class PlacedRows:
    """The rows of a table by their places, from 0. The two row groups that were used last stay in memory. Raises
    DataError."""

    def __init__(self, path: Path):
        self._path, self._file = path, open_parquet_file(path)
        self._groups = RowGroupCache([self._file], _rows_of_group, max_groups=2)
        self._starts = group_starts(self._file)

    def get(self, place: int) -> Row | None:
        """The row at a place; None where there is none."""
        if not 0 <= place < self._starts[-1]:
            return None
        group = bisect_right(self._starts, place) - 1
        with reading_table(self._path):
            return self._groups.group(group)[place - self._starts[group]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class CaseOrderedRows:
    """The rows of cases in a table of one iteration, whose rows are in the order in which the cases are asked for, as all tables
    of an iteration are. A case is named by its sample, method and repeat. Each row group is read once.

    Args:
        path: the table.
        columns: the columns to read, beside those that name the case.
        wide: columns that only some cases need; a row group without such a case is read without them.
        among: the cases that are asked for at some time, where not all are: rows of others are passed over.

    Raises DataError.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        wide: Sequence[str] = (),
        *,
        among: Collection[OutputKey] | None = None,
    ):
        self._path, self._columns, self._wide, self._among = path, list(columns), list(wide), among
        self._file = open_parquet_file(path, [*OUTPUT_KEY, *columns, *wide])
        self._number = self._taken = 0
        self._runs: list[tuple[OutputKey, int, int]] | None = None

    def take(self, cases: Collection[OutputKey], wide: Collection[OutputKey] = ()) -> dict[OutputKey, list[Row]]:
        """The rows of the next cases; those of `wide` with its columns too. Every case, or every one of `among`, is asked for
        at some time."""
        rows: dict[OutputKey, list[Row]] = {case: [] for case in cases}
        with reading_table(self._path):
            while self._number < self._file.num_row_groups:
                if self._runs is None:
                    self._runs = self._asked_for(self._number)
                self._read_group(self._runs, rows, wide)
                if self._runs and self._runs[-1][0] not in rows:
                    break  # this row group has rows of later cases
                self._number, self._runs = self._number + 1, None
        return rows

    def _asked_for(self, number: int) -> list[tuple[OutputKey, int, int]]:
        """The stretches of rows of a row group, one per case that is asked for."""
        runs = _runs(self._file.read_row_group(number, columns=list(OUTPUT_KEY)))
        if self._among is None:
            return runs
        asked_for = [run for run in runs if run[0] in self._among]
        self._taken += sum(stop - start for case, start, stop in runs if case not in self._among)
        return asked_for

    def _read_group(
        self, runs: Sequence[tuple[OutputKey, int, int]], rows: dict[OutputKey, list[Row]], wide: Collection[OutputKey]
    ) -> None:
        """Add what this row group has of these cases."""
        matches = [run for run in runs if run[0] in rows]
        if not matches:
            return
        first, last = matches[0][1], matches[-1][2]
        content = self._content(self._columns, first, last)
        wider = {case for case, *_ in matches if case in wide}
        more = self._content(self._wide, first, last) if wider else {}
        for case, start, stop in matches:
            columns = {**content, **more} if case in wider else content
            cells = zip(*(column[start - first : stop - first] for column in columns.values()), strict=True)
            rows[case] += [dict(zip(columns, row, strict=True)) for row in cells]
            self._taken += stop - start

    def _content(self, columns: list[str], first: int, last: int) -> Mapping[str, list[Any]]:
        table: pa.Table = self._file.read_row_group(self._number, columns=columns).slice(first, last - first)
        return {name: table[name].to_pylist() for name in columns}

    def check_end(self) -> None:
        """Once all cases were asked for: raises DataError where rows were left."""
        if self._taken != self._file.metadata.num_rows:
            content = f"{self._file.metadata.num_rows - self._taken:,} rows of other cases, or in another order"
            raise run_file_error(self._path, content, "the rows of the cases of records.parquet, in its order")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _rows_of_group(file: pq.ParquetFile, group: int) -> list[Row]:
    rows: list[Row] = file.read_row_group(group).to_pylist()
    return rows


def _runs(keys: pa.Table) -> list[tuple[OutputKey, int, int]]:
    """The stretches of rows of one case: the case, its first row, and the row after its last one."""
    if not keys.num_rows:
        return []
    changes = np.zeros(keys.num_rows - 1, bool)
    for name in OUTPUT_KEY:
        column = keys[name].combine_chunks()
        changes |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), keys.num_rows]
    firsts = keys.take(pa.array(bounds[:-1]))
    names = zip(*(firsts[name].to_pylist() for name in OUTPUT_KEY), strict=True)
    return [(name, start, stop) for name, (start, stop) in zip(names, pairwise(bounds), strict=True)]


Content = TypeVar("Content")


class RowGroupCache(Generic[Content]):
    """Least recently used row groups of some files are dropped first.

    Args:
        files: open Parquet files; the cache does not close them.
        read: reads one row group of a file, in the form that is kept.
        max_groups: how many groups are kept.
        max_bytes: with it, groups are kept up to this sum of uncompressed bytes, but always `max_groups` of them.
    """

    def __init__(
        self,
        files: Sequence[pq.ParquetFile],
        read: Callable[[pq.ParquetFile, int], Content],
        *,
        max_groups: int,
        max_bytes: int = 0,
    ):
        self._files, self._read = files, read
        self._max_groups, self._max_bytes = max_groups, max_bytes
        self._groups: OrderedDict[tuple[int, int], Content] = OrderedDict()

    def group(self, group: int, file: int = 0) -> Content:
        """One row group of the file with this number, from memory where it is kept. Raises the errors of `read`."""
        key = (file, group)
        if key not in self._groups:
            self._make_room(self._bytes_of(key))
            self._groups[key] = self._read(self._files[file], group)
        self._groups.move_to_end(key)
        return self._groups[key]

    def clear(self) -> None:
        """Drop all groups."""
        self._groups.clear()

    def _make_room(self, size: int) -> None:
        """Drop groups until one more of `size` bytes may be kept."""
        while len(self._groups) >= self._max_groups and size + sum(map(self._bytes_of, self._groups)) > self._max_bytes:
            self._groups.popitem(last=False)

    def _bytes_of(self, key: tuple[int, int]) -> int:
        file, group = key
        return int(self._files[file].metadata.row_group(group).total_byte_size)
