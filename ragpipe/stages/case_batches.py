"""Cases on their way from the data to the frozen tables: some at once, as Arrow tables, with what tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.core.digest_table import name_digest
from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.sample import Output, Sample
from ragpipe.schema.table_schemas import OUTPUTS, SAMPLES, output_row, sample_row, table_of

BATCH = 1000
"""Cases of a batch, at most."""
BATCH_TEXT = 4 << 20
"""Characters of answers and chunks at which a batch ends before that."""

Sizes = npt.NDArray[np.int64]


class Loaded(Protocol):
    """One record of a data set: a sample, the output for it (None: a question only), and where it is in the data."""

    @property
    def sample(self) -> Sample: ...
    @property
    def output(self) -> Output | None: ...
    @property
    def where(self) -> str: ...


@dataclass(frozen=True, slots=True)
class CaseBatch:
    """Some consecutive cases.

    Attributes:
        samples: the samples of these cases, each once, in the order in which they appear.
        names: the digest of each sample's id.
        outputs: the output of each case; `sample_row` is the row of its sample in `samples`.
    """

    samples: pa.Table
    names: list[bytes]
    outputs: pa.Table


def case_batches(records: Iterable[Loaded]) -> Iterator[CaseBatch]:
    """The cases of the records, in their order. Raises DataError where a record has no output."""
    gathered = _Gathered()
    for record in records:
        if record.output is None:
            raise _no_output(record)
        gathered.add(record.sample, record.output)
        if gathered.is_full:
            yield gathered.batch()
            gathered = _Gathered()
    if gathered.outputs:
        yield gathered.batch()


class _Gathered:
    """The rows of the cases of a batch."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self._samples: list[dict[str, Any]] = []
        self._rows: dict[str, int] = {}
        self._characters = 0

    def add(self, sample: Sample, output: Output) -> None:
        row = self._rows.get(sample.id)
        if row is None:
            row = self._rows[sample.id] = len(self._samples)
            self._samples.append(sample_row(sample))
        cells = output_row(output, row)
        self.outputs.append(cells)
        self._characters += len(cells["answer"] or "") + len(cells["chunks"] or "")

    @property
    def is_full(self) -> bool:
        return len(self.outputs) >= BATCH or self._characters >= BATCH_TEXT

    def batch(self) -> CaseBatch:
        names = [name_digest(sample_id) for sample_id in self._rows]
        return CaseBatch(table_of(self._samples, SAMPLES), names, table_of(self.outputs, OUTPUTS))


def text_bytes(table: pa.Table) -> Sizes:
    """Bytes of all texts of each row of a table, in UTF-8. A case counts those of both its rows, so blocks follow from the frozen
    cases alone, whatever is asked about them."""
    total = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        if pa.types.is_string(column.type):
            total += _lengths(column)
        elif pa.types.is_list(column.type):
            total += _list_lengths(column.combine_chunks())
    return total


def _lengths(texts: pa.ChunkedArray | pa.Array) -> Sizes:
    lengths: Sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64)
    return lengths


def _list_lengths(lists: pa.ListArray) -> Sizes:
    """Bytes of the texts of each list."""
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    sums = np.concatenate([[0], np.cumsum(_lengths(lists.flatten()))])
    ends = np.cumsum(counts)
    lengths: Sizes = sums[ends] - sums[ends - counts]
    return lengths


def _no_output(record: Loaded) -> DataError:
    problem = Problem(
        record.where,
        "output",
        "neither an answer nor retrieved chunks",
        "an output for every sample: system=recorded evaluates what is recorded in the data",
        "map `answer` or `chunks` under dataset.fields, or ask a live system: system=python, system=http",
    )
    return DataError("the data set has questions without outputs", [problem])
