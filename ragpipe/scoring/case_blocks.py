"""The cases of a run with their samples and scores, a block at a time, in the order of `outputs.parquet`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.core.errors import RagpipeError
from ragpipe.schema.sample import OUTPUT_KEY, CaseKey
from ragpipe.store.run.ordered_rows import RowGroupCache
from ragpipe.store.run.run_tables import open_parquet_file, open_table, reading_table

SAMPLE_COLUMNS = (
    "id",
    "question",
    "history",
    "references",
    "answerable",
    "category",
    "subcategory",
    "difficulty",
    "question_type",
    "vault",
    "tags",
    "meta",
    "expected",
    "relevant_docs",
    "relevant_chunks",
    "gains",
    "anchors",
    "required_support_groups",
)
OUTPUT_COLUMNS = (
    *OUTPUT_KEY,
    "sample_row",
    "answer",
    "chunks",
    "citations",
    "version",
    "abstained",
    "timings",
    "usage",
    "error",
    "retrieves",
    "attempts",
)
DETAILS = "details"
SCORE_COLUMNS = (*OUTPUT_KEY, "iteration", "metric", "score_name", "value", "status", "reason")

BLOCK = 2048  # cases; with ten 1 kB chunks each that is 20 MB of text held at once
BLOCK_BYTES = 4 << 20  # of their outputs: scoring makes several copies of a block
_BATCH = 32768  # rows of scores read at once

Whole = NDArray[np.int64]
Key = tuple[str, str, int]


@dataclass(frozen=True)
class CaseBlock:
    """Consecutive cases. `samples` is aligned with `outputs`; `cases` says for each row of `scores` which case it is of."""

    outputs: pa.Table
    samples: pa.Table
    scores: pa.Table
    cases: Whole

    def __len__(self) -> int:
        return int(self.outputs.num_rows)

    @cached_property
    def chunks(self) -> RetrievedChunks:
        """What was retrieved for the cases: most of a run's text, parsed once per block."""
        return RetrievedChunks(self.outputs["chunks"])


def case_blocks(samples: Path, outputs: Path, scores: Path, *, size: int = BLOCK) -> Iterator[CaseBlock]:
    """All cases in blocks, each with its scores; none for a case that was not judged yet.

    Args:
        samples, outputs, scores: the tables of the run.
        size: cases per block.

    Raises RagpipeError when `scores` holds a case that is not in `outputs`, or cases in another order.
    """
    score_rows = ScoreRows(scores, (*SCORE_COLUMNS, DETAILS))
    for table, labels in aligned(samples, outputs, size):
        rows, cases = score_rows.take(keys_of(table))
        yield CaseBlock(table, labels, rows, cases)
    score_rows.close()


def aligned(
    samples: Path,
    outputs: Path,
    size: int = BLOCK,
    *,
    of_samples: Sequence[str] = SAMPLE_COLUMNS,
    of_outputs: Sequence[str] = OUTPUT_COLUMNS,
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """All cases: rows of the outputs with the rows of the samples that they belong to, in the same order.

    Args:
        samples, outputs: the tables of the run.
        size: cases per block.
        of_samples: the columns of the samples.
        of_outputs: the columns of the outputs, `sample_row` among them.
    """
    with open_table(samples, of_samples) as sample_file, open_table(outputs, of_outputs) as output_file:
        reader = _SampleRows(sample_file, of_samples)
        for group in range(output_file.num_row_groups):
            row_group = output_file.metadata.row_group(group)
            fitting = max(1, row_group.num_rows * BLOCK_BYTES // max(1, row_group.total_byte_size))
            batches = output_file.iter_batches(min(size, fitting), row_groups=[group], columns=list(of_outputs))
            for table in (pa.Table.from_batches([batch]) for batch in batches):
                yield table, reader.take(table["sample_row"].to_numpy())


class ScoreRows:
    """A forward reader of `scores.parquet`, where the rows of one case are adjacent.

    Args:
        path: the table.
        columns: the columns to read.
    """

    def __init__(self, path: Path, columns: Sequence[str] = SCORE_COLUMNS):
        self._path = path
        self._file = open_parquet_file(path, columns)
        self._batches = self._file.iter_batches(batch_size=_BATCH, columns=list(columns))
        self._schema = pa.schema([self._file.schema_arrow.field(name) for name in columns])
        self._carried: pa.Table = self._schema.empty_table()
        self._table: pa.Table = self._carried
        self._starts: Whole = np.zeros(1, dtype=np.int64)
        self._keys: list[Key] = []
        self._group = 0

    def take(self, keys: Sequence[Key]) -> tuple[pa.Table, Whole]:
        """The rows of these cases (in this order, consecutive in the file) and the place of each row's case in `keys`."""
        tables: list[pa.Table] = [self._schema.empty_table()]
        cases: list[Whole] = []
        place = 0
        while place < len(keys) and (self._group < len(self._keys) or self._fill()):
            fitting = self._fitting(keys, place)
            if fitting:
                starts = self._starts[self._group : self._group + fitting + 1]
                tables.append(self._table.slice(int(starts[0]), int(starts[-1] - starts[0])))
                cases.append(np.repeat(np.arange(place, place + fitting), np.diff(starts)))
                self._group += fitting
            place += max(fitting, 1)  # a case without rows is passed over
        return pa.concat_tables(tables).combine_chunks(), np.concatenate([np.empty(0, dtype=np.int64), *cases])

    def _fitting(self, keys: Sequence[Key], place: int) -> int:
        """How many of the cases at hand are those from `place` on, one after the other."""
        at_hand = self._keys[self._group : self._group + len(keys) - place]
        if at_hand == keys[place : place + len(at_hand)]:
            return len(at_hand)
        return next(number for number, key in enumerate(at_hand) if key != keys[place + number])

    def close(self) -> None:
        """Check that every row found its case, and close the table."""
        try:
            if self._group < len(self._keys) or self._fill():
                raise RagpipeError(
                    f"{self._path}: found scores of case {CaseKey(*self._keys[self._group])} where outputs.parquet has no such case; expected "
                    "the same cases in the same order. To fix: evaluate again, the stored replies are used."
                )
        finally:
            self._file.close()

    def _fill(self) -> bool:
        """Read on until a complete case is there; False at the end of the table."""
        self._group, self._keys = 0, []
        at_end = False
        while not self._keys and not at_end:
            with reading_table(self._path):
                batch = next(self._batches, None)
            at_end = batch is None
            if batch is None:
                self._hold_last()
            else:
                self._hold(pa.Table.from_batches([batch], self._schema))
        return bool(self._keys)

    def _hold(self, batch: pa.Table) -> None:
        """Take the complete cases of a batch. Its last case is carried over: the next batch may continue it."""
        table = pa.concat_tables([self._carried, batch]).combine_chunks()
        starts = case_starts(table)
        if len(starts) > 1:
            self._carried = table.slice(int(starts[-2]))
            starts = starts[:-1]
        self._set(table, starts)

    def _hold_last(self) -> None:
        """Take the case that was carried over: there is no further batch."""
        table, self._carried = self._carried, self._schema.empty_table()
        self._set(table, case_starts(table))

    def _set(self, table: pa.Table, starts: Whole) -> None:
        self._table, self._starts = table, starts
        self._keys = keys_of(table.select(OUTPUT_KEY).take(pa.array(starts[:-1])))


def keys_of(table: pa.Table | pa.RecordBatch) -> list[Key]:
    """The key of the case of each row: sample id, method, repeat."""
    return list(zip(*(table[name].to_pylist() for name in OUTPUT_KEY), strict=True))


def case_starts(table: pa.Table) -> Whole:
    """Row numbers where a new case begins, and the number of rows at the end."""
    if table.num_rows == 0:
        return np.zeros(1, dtype=np.int64)
    changed = np.zeros(table.num_rows, dtype=bool)
    changed[0] = True
    for name in OUTPUT_KEY:
        column = table[name].combine_chunks()
        changed[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.append(np.flatnonzero(changed), table.num_rows).astype(np.int64)


class _SampleRows:
    """Rows of `samples.parquet` by number. Each row group that a block needs is read once for it."""

    def __init__(self, file: pq.ParquetFile, columns: Sequence[str]):
        self._file, self._columns = file, list(columns)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._groups = RowGroupCache([file], self._read, max_groups=2)

    def take(self, rows: Whole) -> pa.Table:
        if len(rows) and (rows.min() < 0 or rows.max() >= self._starts[-1]):
            raise RagpipeError(
                f"outputs.parquet names sample row {rows.max()}, samples.parquet has {self._starts[-1]} rows"
            )
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        if (
            len(rows) and groups[0] == groups[-1] and np.all(np.diff(rows) == 1)
        ):  # one method: each sample once, in order
            return self._groups.group(int(groups[0])).slice(int(rows[0] - self._starts[groups[0]]), len(rows))
        pieces, order = [], []
        for group in np.unique(groups):
            places = np.flatnonzero(groups == group)
            pieces.append(self._groups.group(int(group)).take(pa.array(rows[places] - self._starts[group])))
            order.append(places)
        if not pieces:
            return self._file.schema_arrow.empty_table().select(self._columns)
        back = np.argsort(np.concatenate(order), kind="stable")
        return pa.concat_tables(pieces).take(pa.array(back)).combine_chunks()

    def _read(self, file: pq.ParquetFile, group: int) -> pa.Table:
        return file.read_row_group(group, columns=self._columns)


_CHUNK = pa.struct(
    [
        ("id", pa.string()),
        ("doc_id", pa.string()),
        ("rel_path", pa.string()),
        ("rank", pa.int64()),
        ("doc_type", pa.string()),
        ("text", pa.string()),
    ]
)
_LINE = pj.ParseOptions(explicit_schema=pa.schema([("chunks", pa.list_(_CHUNK))]), unexpected_field_behavior="ignore")


class RetrievedChunks:
    """The column `chunks` of consecutive rows of `outputs.parquet`, as JSON texts or as `lists` gives them.

    Attributes:
        lengths: of each case the number of its chunks; null where they are not recorded.
        cases: of each chunk the number of its case.

    Raises ValueError for text that is no JSON list of objects.
    """

    def __init__(self, column: pa.ChunkedArray):
        lists = _parsed(column)
        self.lengths: pa.Array = pc.list_value_length(lists).cast(pa.int64())
        self.cases: Whole = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        self._chunks: pa.StructArray = lists.flatten()

    def column(self, name: str) -> pa.Array:
        """A field of every chunk (`id`, `doc_id`, `rel_path`, `rank`, `doc_type` or `text`); null where it has none."""
        return self._chunks.field(name)

    def lists(self, names: Sequence[str]) -> pa.ListArray:
        """The chunks of each case with these fields; null where they are not recorded."""
        offsets = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int32)
        chunks = pa.StructArray.from_arrays([self.column(name) for name in names], names=list(names))
        return pa.ListArray.from_arrays(pa.array(offsets), chunks, mask=pa.array(~self.recorded))

    @property
    def recorded(self) -> NDArray[np.bool_]:
        """The cases whose chunks are recorded, be they none."""
        flags: NDArray[np.bool_] = self.lengths.is_valid().to_numpy(zero_copy_only=False)
        return flags

    @property
    def counts(self) -> Whole:
        """Of each case the number of its chunks; 0 where they are not recorded."""
        counts: Whole = self.lengths.fill_null(0).to_numpy(zero_copy_only=False)
        return counts

    def doc_types(self) -> pa.Array:
        """Of each case the different `doc_type` of its chunks, in rank order."""
        encoded = self.column("doc_type").dictionary_encode()
        typed = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
        codes = encoded.indices.take(pa.array(typed)).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = self.cases[typed] * max(len(encoded.dictionary), 1) + codes
        firsts = np.sort(np.unique(pairs, return_index=True)[1])
        counts = np.bincount(self.cases[typed[firsts]], minlength=len(self.lengths))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), encoded.dictionary.take(pa.array(codes[firsts])))


def _parsed(column: pa.ChunkedArray) -> pa.ListArray:
    """JSON lists of chunks as an array of lists; null stays null."""
    if not len(column):
        return pa.array([], type=pa.list_(_CHUNK))
    if pa.types.is_list(column.type):
        return column.combine_chunks()
    lines = _json_lines(column)
    # one block for all lines, because a line must not straddle two
    options = pj.ReadOptions(use_threads=False, block_size=lines.size + 1)
    table = pj.read_json(pa.BufferReader(lines), read_options=options, parse_options=_LINE)
    if table.num_rows != len(column):
        raise ValueError(f"{len(column)} lists of chunks are {table.num_rows} lines of JSON")
    return table["chunks"].combine_chunks()


def _json_lines(column: pa.ChunkedArray) -> pa.Buffer:
    """Each text as a line with a JSON object, `{"chunks":...}`. Arrow joins them: they are most of a run's text."""
    texts = column.combine_chunks().fill_null("null")
    lines = pc.binary_join_element_wise(pa.scalar('{"chunks":'), texts, pa.scalar("}\n"), pa.scalar(""))
    offsets, content = lines.buffers()[1:]  # of a new array, which begins at the beginning of its buffers
    return content.slice(0, int(np.frombuffer(offsets, dtype=np.int32)[len(lines)]))
