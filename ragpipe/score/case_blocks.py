"""The cases of a run with their samples and scores, a block at a time, in the order of `outputs.parquet`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.core.errors import RagpipeError
from ragpipe.core.sample import OUTPUT_KEY, CaseKey
from ragpipe.store.run_tables import batches, batches_in, open_parquet_file, open_table, reading_table, schema_in
from ragpipe.store.table_rows import OUTPUTS, SAMPLES

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
        """What was retrieved for the cases."""
        return RetrievedChunks(self.outputs["chunks"])


def case_blocks(samples: Path, outputs: Path, scores: Path, *, size: int = BLOCK) -> Iterator[CaseBlock]:
    """All cases in blocks of at most `size`, each with its scores; none for a case that was not judged yet.

    Raises RagpipeError when `scores` holds a case that is not in `outputs`, or cases in another order.
    """
    score_rows = ScoreRows(scores, (*SCORE_COLUMNS, "details"))
    for table, labels in aligned(samples, outputs, size):
        rows, cases = score_rows.take(keys_of(table))
        yield CaseBlock(table, labels, rows, cases)
    score_rows.close()


def aligned(
    samples: Path,
    outputs: Path,
    size: int = BLOCK,
    *,
    of_samples: Sequence[str] = SAMPLES.names,
    of_outputs: Sequence[str] = OUTPUTS.names,
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """All cases: rows of the outputs (at most `size`, with the columns `of_outputs`, `sample_row` among them) with the rows of
    the samples that they belong to, in the same order."""
    with open_parquet_file(samples, of_samples) as labels, open_table(outputs, of_outputs) as file:
        schema = schema_in(labels, of_samples)
        for group in range(file.num_row_groups):
            row_group = file.metadata.row_group(group)
            fitting = max(1, row_group.num_rows * BLOCK_BYTES // max(1, row_group.total_byte_size))
            for batch in file.iter_batches(min(size, fitting), row_groups=[group], columns=list(of_outputs)):
                different, places = np.unique(batch["sample_row"].to_numpy(), return_inverse=True)
                with reading_table(samples):
                    rows = pa.Table.from_batches(batches_in(labels, different, of_samples), schema).combine_chunks()
                if len(rows) < len(different):
                    raise RagpipeError(f"outputs.parquet names sample row {different[-1]}, samples.parquet lacks it")
                yield pa.Table.from_batches([batch]), rows.take(pa.array(places))


class ScoreRows:
    """A forward reader of `columns` (those of a case's name among them) of a table in which the rows of one case are adjacent."""

    def __init__(self, path: Path, columns: Sequence[str] = SCORE_COLUMNS):
        self._path = path
        self._batches = batches(path, columns, size=_BATCH)
        with open_table(path, columns) as file:
            self._held: pa.Table = schema_in(file, columns).empty_table()
        self._keys, self._starts = list[Key](), case_starts(self._held)  # of the cases in the rows held

    def take(self, keys: Sequence[Key]) -> tuple[pa.Table, Whole]:
        """The rows of these cases (in this order, consecutive in the file) and the place of each row's case in `keys`."""
        while len(self._keys) <= len(keys) and self._hold_more():  # of the last case held there may be more rows
            pass
        places = list[int]()
        for place, key in enumerate(keys):
            if len(places) < len(self._keys) and self._keys[len(places)] == key:
                places.append(place)
        taken, end = len(places), int(self._starts[len(places)])
        counts, rows = np.diff(self._starts[: taken + 1]), self._held.slice(0, end).combine_chunks()
        self._held, self._keys, self._starts = self._held.slice(end), self._keys[taken:], self._starts[taken:] - end
        return rows, np.repeat(np.array(places, dtype=np.int64), counts)

    def _hold_more(self) -> bool:
        """Read another batch; False at the end of the table."""
        if (batch := next(self._batches, None)) is None:
            return False
        table = pa.Table.from_batches([batch])
        starts = case_starts(table)
        keys, end = keys_of(table.take(pa.array(starts[:-1]))), len(self._held)
        if keys and self._keys[-1:] == keys[:1]:  # the case goes on
            starts, keys = starts[1:], keys[1:]
        self._held = pa.concat_tables([self._held, table])
        self._keys, self._starts = self._keys + keys, np.concatenate([self._starts[:-1], starts + end])
        return True

    def close(self) -> None:
        """Check that every row found its case."""
        if self._keys or (self._hold_more() and self._keys):
            raise RagpipeError(
                f"{self._path}: found scores of case {CaseKey(*self._keys[0])} where outputs.parquet has no such case; "
                "expected the same cases in the same order. To fix: evaluate again, the stored replies are used."
            )


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


class RetrievedChunks:
    """The column `chunks` of consecutive rows of `outputs.parquet`: `lengths` of each case (null: not recorded), and of each
    chunk the number of its case (`cases`)."""

    def __init__(self, column: pa.ChunkedArray):
        lists = column.combine_chunks()
        self.lengths: pa.Array = pc.list_value_length(lists).cast(pa.int64())
        self.cases: Whole = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        self._chunks: pa.StructArray = lists.flatten()

    def column(self, name: str) -> pa.Array:
        """A field of every chunk by its name in `outputs.parquet`; null where it has none."""
        return self._chunks.field(name)

    @cached_property
    def with_text(self) -> NDArray[np.bool_]:
        """The chunks that hold a text."""
        flags: NDArray[np.bool_] = pc.greater(pc.binary_length(self.column("text")), 0).to_numpy(zero_copy_only=False)
        return flags

    @property
    def recorded(self) -> NDArray[np.bool_]:
        """The cases whose chunks are recorded, be they none."""
        flags: NDArray[np.bool_] = self.lengths.is_valid().to_numpy(zero_copy_only=False)
        return flags

    @cached_property
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


_Kind = TypeVar("_Kind", bound=np.generic)


class GrowingArray(Generic[_Kind]):
    """Numbers of one type, in one piece of memory that grows."""

    def __init__(self, kind: type[_Kind]):
        self._kind = kind
        self._bytes = bytearray()

    def add(self, values: NDArray[Any]) -> None:
        """Numbers that the type holds exactly come behind those that are there."""
        self._bytes += np.ascontiguousarray(values, dtype=self._kind).tobytes()

    def array(self) -> NDArray[_Kind]:
        """All of them, not copied: nothing may be added any more."""
        return np.frombuffer(self._bytes, dtype=self._kind)
