"""Reading the frozen cases of a run folder, block by block, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ragpipe.schema.sample import Case, Sample
from ragpipe.schema.tables import outputs_from, samples_from

_KEPT = 8  # row groups of samples held; data in method order touches each sample again only much later


class CaseReader:
    """The cases of `samples.parquet` and `outputs.parquet` for one iteration. `blocks` are row groups of the outputs;
    `samples` is the path of the first."""

    def __init__(self, samples: Path, outputs: Path, iteration: int = 1):
        self.samples = samples
        self._samples, self._outputs = pq.ParquetFile(samples), pq.ParquetFile(outputs)
        self.iteration = iteration
        self._groups: OrderedDict[int, list[dict[str, Any]]] = OrderedDict()
        sizes = self._samples.metadata
        self._starts = [0]
        for group in range(sizes.num_row_groups):
            self._starts.append(self._starts[-1] + sizes.row_group(group).num_rows)

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
        rows = self._outputs.read_row_group(index).to_pylist()
        places = [row.pop("sample_row") for row in rows]
        for place, output in zip(places, outputs_from(rows), strict=True):
            yield Case(self._sample(place), output, self.iteration)

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
        group = next(i for i in range(len(self._starts) - 1) if row < self._starts[i + 1])
        if group not in self._groups:
            if len(self._groups) == _KEPT:
                self._groups.popitem(last=False)
            self._groups[group] = self._samples.read_row_group(group).to_pylist()
        self._groups.move_to_end(group)
        return next(samples_from([self._groups[group][row - self._starts[group]]]))
