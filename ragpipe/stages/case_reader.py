"""Reading the frozen cases of a run folder, block by block, in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.sample import OUTPUT_KEY, Case, CaseKey, Sample
from ragpipe.schema.table_schemas import outputs_from, samples_from

_KEPT_BYTES = 32 << 20
"""Bytes of row groups of samples that are held, uncompressed; two of them anyway. Data in method order touches each sample
again only much later."""


class CaseReader:
    """The cases of `samples.parquet` and `outputs.parquet` for one iteration. `blocks` are row groups of the outputs;
    `samples` is the path of the first. Every method raises DataError for a table that cannot be read."""

    def __init__(self, samples: Path, outputs: Path, iteration: int = 1):
        self.samples, self._path = samples, outputs
        with reading_frozen_tables(samples):
            self._samples = pq.ParquetFile(samples)
        with reading_frozen_tables(outputs):
            self._outputs = pq.ParquetFile(outputs)
        self.iteration = iteration
        self._groups: OrderedDict[int, list[dict[str, Any]]] = OrderedDict()
        sizes = [self._samples.metadata.row_group(group) for group in range(self._samples.metadata.num_row_groups)]
        self._starts = [0, *accumulate(group.num_rows for group in sizes)]
        self._bytes = [group.total_byte_size for group in sizes]

    @property
    def blocks(self) -> int:
        return int(self._outputs.metadata.num_row_groups)

    @property
    def count(self) -> int:
        return int(self._outputs.metadata.num_rows)

    def size(self, block: int) -> int:
        return int(self._outputs.metadata.row_group(block).num_rows)

    def block(self, index: int) -> Iterator[Case]:
        """The cases of one block, decoded one by one as they are asked for."""
        with reading_frozen_tables(self._path):
            rows = self._outputs.read_row_group(index).to_pylist()
        rows.reverse()
        while rows:
            row = rows.pop()  # what was decoded is held no longer
            place = row.pop("sample_row")
            with reading_frozen_tables(self._path):
                output = next(outputs_from([row]))
            yield Case(self._sample(place), output, self.iteration)

    def keys(self, index: int) -> list[CaseKey]:
        """What names the cases of one block, without reading more of them."""
        with reading_frozen_tables(self._path):
            rows = self._outputs.read_row_group(index, columns=list(OUTPUT_KEY)).to_pylist()
            return [CaseKey.of({**row, "iteration": self.iteration}) for row in rows]

    def of(self, iteration: int) -> Iterator[Case]:
        """All cases, as those of another iteration."""
        return (replace(case, iteration=iteration) for case in self)

    def __iter__(self) -> Iterator[Case]:
        for index in range(self.blocks):
            yield from self.block(index)

    def close(self) -> None:
        self._samples.close()
        self._outputs.close()

    def _sample(self, row: int) -> Sample:
        with reading_frozen_tables(self.samples):
            group = bisect_right(self._starts, row) - 1
            if not 0 <= group < len(self._bytes):
                raise ValueError(f"no row {row}, which outputs.parquet names")
            if group not in self._groups:
                self._make_room(self._bytes[group])
                self._groups[group] = self._samples.read_row_group(group).to_pylist()
            self._groups.move_to_end(group)
            return next(samples_from([self._groups[group][row - self._starts[group]]]))

    def _make_room(self, size: int) -> None:
        while len(self._groups) > 1 and size + sum(self._bytes[held] for held in self._groups) > _KEPT_BYTES:
            self._groups.popitem(last=False)


@contextmanager
def reading_frozen_tables(path: Path) -> Iterator[None]:
    """Inside, what cannot be read of a table of frozen cases is a DataError that names it."""
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            "the frozen cases of a run cannot be read",
            [
                Problem(
                    str(path),
                    "file",
                    " ".join(str(error).split())[:200] or type(error).__name__,
                    "the table that ragpipe wrote",
                    "start the run's command again: it freezes the cases anew from the same data; or copy the whole run folder",
                )
            ],
        ) from error
