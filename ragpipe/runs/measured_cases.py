"""The frozen cases of a run, read block by block; and those of them that the plan has measured, kept for the run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.core.sample import OUTPUT_KEY, Case, CaseKey, Sample
from ragpipe.runs.table_rows import Measurement, PackedInputs, packed_inputs
from ragpipe.store.run_tables import group_starts, open_parquet_file, reading_table
from ragpipe.store.table_rows import filled_columns, has_plain_chunks, output_from, rows_with_cells, sample_from, sample_json

KEPT_BYTES = 64 << 20
"""Bytes of measurements, questions and replies that are kept: some 25,000 calls with five contexts each."""
_ROW_BYTES = 2 << 10  # beside the compressed texts: the cells of a question and its share of the scores, as measured


@dataclass(frozen=True, slots=True)
class ReplayedCase:
    """The measurements of one case by the metrics that ask, in their order, without their calls; and the rows of these."""

    measured: list[Measurement]
    asked: PackedInputs


class ReplayedCases:
    """The cases by key. `keep_messages` says whether the run keeps messages and replies in `judge_inputs.parquet`."""

    def __init__(self, *, keep_messages: bool):
        self._keep_messages, self._left = keep_messages, KEPT_BYTES
        self._cases: dict[CaseKey, ReplayedCase] = {}

    def add(self, case: CaseKey, measured: Sequence[Measurement]) -> None:
        """Keep a case, unless one of its judgements failed (the run may ask again) or the room is used up."""
        if self._left <= 0 or any(score.status == "error" for m in measured for score in m.scores):
            return
        asked = packed_inputs(case, measured, keep_messages=self._keep_messages)
        for measurement in measured:
            measurement.free()
        self._left -= len(asked.texts) + len(asked.cells) * _ROW_BYTES
        self._cases[case] = ReplayedCase(list(measured), asked)

    def take(self, case: CaseKey) -> ReplayedCase | None:
        """The case, which is not kept any longer; None where it was not measured by the plan."""
        return self._cases.pop(case, None)


_KEPT_BYTES = 32 << 20
"""Uncompressed bytes of row groups of samples that are kept, but at least two groups. Data in method order needs each
sample again only much later."""
_INVALID = (ValueError, KeyError, TypeError)  # what the decoding of a malformed row raises


class CaseReader:
    """The cases of `samples.parquet` and `outputs.parquet` for one iteration. `blocks` are row groups of the outputs;
    `samples` is the path of the first. Every method raises DataError for a table that cannot be read."""

    def __init__(self, samples: Path, outputs: Path, iteration: int = 1):
        self.samples, self._path = samples, outputs
        self._samples = open_parquet_file(samples)
        self._outputs = open_parquet_file(outputs)
        self.iteration = iteration
        metadata = self._samples.metadata
        sizes = [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]
        self._samples_of = lru_cache(maxsize=max(2, _KEPT_BYTES // max([1, *sizes])))(self._read_samples)
        self._last: tuple[int, Any] = (-1, None)
        self._starts, self._block_starts = group_starts(self._samples), group_starts(self._outputs)

    @property
    def blocks(self) -> int:
        return int(self._outputs.metadata.num_row_groups)

    @property
    def count(self) -> int:
        return int(self._outputs.metadata.num_rows)

    def size(self, block: int) -> int:
        return int(self._outputs.metadata.row_group(block).num_rows)

    def block(self, index: int, start: int = 0, stop: int | None = None, *, cells: bool = False) -> Iterator[Case]:
        """The cases of one block, or of its rows from `start` to `stop` (not included), decoded one by one as they are asked for; with
        `cells` their chunks may be `ChunkCells`."""
        with reading_table(self._path, *_INVALID):
            table = filled_columns(self._rows(index, start, self.size(index) if stop is None else stop))
            cells = cells and has_plain_chunks(table)
            rows = rows_with_cells(table) if cells else table.to_pylist()
            rows.reverse()
            while rows:
                yield self._decode(rows.pop(), cells)  # what was decoded is kept no longer

    def case_at(self, row: int) -> Case:
        """The case of one row of the outputs, counted from 0. Only its block is read."""
        if not 0 <= row < self.count:
            raise IndexError(f"no row {row} in {self.count} outputs")
        index = bisect_right(self._block_starts, row) - 1
        return next(self.block(index, row - self._block_starts[index], row - self._block_starts[index] + 1))

    def spread(self, blocks: Sequence[int], most: int) -> list[int]:
        """So many of these blocks, at even distances, that they have about `most` cases; all where they have no more."""
        cases = self.cases_in(blocks)
        if cases <= most:
            return list(blocks)
        count = max(1, len(blocks) * most // cases)
        return [blocks[(2 * place + 1) * len(blocks) // (2 * count)] for place in range(count)]

    def cases_in(self, blocks: Iterable[int]) -> int:
        """The number of cases in these blocks."""
        return sum(map(self.size, blocks))

    def keys(self, index: int) -> list[CaseKey]:
        """What names the cases of one block, without reading more of them."""
        with reading_table(self._path, *_INVALID):
            columns = self._outputs.read_row_group(index, columns=list(OUTPUT_KEY))
            keys = zip(*(columns[name].to_pylist() for name in OUTPUT_KEY), strict=True)
            return [CaseKey(sample_id, method, repeat, self.iteration) for sample_id, method, repeat in keys]

    def of(self, iteration: int, blocks: Iterable[int], *, cells: bool = False) -> Iterator[Case]:
        """The cases of some blocks, as those of another iteration."""
        return (replace(case, iteration=iteration) for index in blocks for case in self.block(index, cells=cells))

    def __iter__(self) -> Iterator[Case]:
        for index in range(self.blocks):
            yield from self.block(index)

    def close(self) -> None:
        self._samples.close()
        self._outputs.close()

    def _rows(self, index: int, start: int, stop: int) -> pa.Table:
        """Some rows of one block. The block is kept while its rows are read piece by piece."""
        index_of_last, table = self._last
        if index_of_last != index:
            table = self._outputs.read_row_group(index)
        self._last = (-1, None) if stop >= table.num_rows else (index, table)
        return table.slice(start, stop - start)

    def _decode(self, row: dict[str, Any], cells: bool) -> Case:
        """The case of a row. Raises `_INVALID` where the row is damaged, DataError where its sample is."""
        output = output_from(row, cells=cells)
        return Case(self._sample(row["sample_row"]), output, self.iteration)

    def _sample(self, row: int) -> Sample:
        with reading_table(self.samples, *_INVALID):
            group = bisect_right(self._starts, row) - 1
            if not 0 <= group < len(self._starts) - 1:
                raise ValueError(f"no row {row}, which outputs.parquet names")
            return sample_from(self._samples_of(group)[row - self._starts[group]])

    def _read_samples(self, group: int) -> list[bytes]:
        """The samples of a row group as JSON, which is what they are made of when a case needs them."""
        return [sample_json(row) for row in filled_columns(self._samples.read_row_group(group)).to_pylist()]
