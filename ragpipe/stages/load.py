"""Stage `load`: the data set becomes `samples.parquet` and `outputs.parquet`, in data order, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.errors import DataError, Problem
from ragpipe.schema.corpus import Corpus
from ragpipe.schema.references import distinct_references
from ragpipe.schema.sample import Output, Sample
from ragpipe.schema.tables import OUTPUTS, SAMPLES, output_row, sample_row, samples_from, table_of
from ragpipe.store.files import atomic_open
from ragpipe.store.parquet import parquet_writer

BLOCK = 1000
"""Cases in a row group of `outputs.parquet`: the unit that a resume skips and that metrics compute over."""


class Loaded(Protocol):
    """One record of a data set: a sample, what a system gave for it (None: questions only), and where it stands."""

    @property
    def sample(self) -> Sample: ...
    @property
    def output(self) -> Output | None: ...
    @property
    def where(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Counts:
    """What was loaded. `methods` in order of first appearance."""

    samples: int
    cases: int
    methods: tuple[str, ...]


class _Table:
    """Rows into a Parquet file, one row group a block."""

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema):
        self._writer = writer
        self._schema, self._rows = schema, list[dict[str, Any]]()
        self.count = 0

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self.count += 1
        if len(self._rows) == BLOCK:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._writer.write_table(table_of(self._rows, self._schema))
            self._rows = []


@contextmanager
def _open(path: Path, schema: pa.Schema) -> Iterator[_Table]:
    """A table that stands at `path` once the block has ended well."""
    with atomic_open(path) as file, parquet_writer(file, schema, compression="zstd") as writer:
        table = _Table(writer, schema)
        yield table
        table.flush()


def run_load(records: Iterable[Loaded], *, samples: Path, outputs: Path) -> Counts:
    """Write both tables from a data set that records its outputs, streaming; either both stand whole or neither does.

    Raises DataError when a record has no output.
    """
    rows: dict[str, int] = {}
    methods: dict[str, None] = {}
    with _open(samples, SAMPLES) as sample_table, _open(outputs, OUTPUTS) as output_table:
        for record in records:
            if record.output is None:
                raise DataError("the data set has questions without outputs", [Problem(
                    record.where, "output", "neither an answer nor retrieved chunks",
                    "an output for every sample: system=recorded evaluates what is recorded in the data",
                    "map `answer` or `chunks` under dataset.fields, or ask a live system: system=python, system=http",
                )])  # fmt: skip
            if record.sample.id not in rows:
                rows[record.sample.id] = sample_table.count
                sample_table.add(sample_row(record.sample))
            methods[record.output.method] = None
            output_table.add(output_row(record.output, rows[record.sample.id]))
    return Counts(sample_table.count, output_table.count, tuple(methods))


def load_samples(records: Iterable[Loaded], *, samples: Path) -> int:
    """Write `samples.parquet` alone, for a system that is still to be asked. Returns the number of samples."""
    seen: set[str] = set()
    with _open(samples, SAMPLES) as table:
        for record in records:
            if record.sample.id not in seen:
                seen.add(record.sample.id)
                table.add(sample_row(record.sample))
    return table.count


def load_outputs(found: Iterable[Iterable[Output]], *, outputs: Path) -> int:
    """Write `outputs.parquet` from the outputs of each sample, in the order of `samples.parquet`."""
    with _open(outputs, OUTPUTS) as table:
        for row, of_sample in enumerate(found):
            for output in of_sample:
                table.add(output_row(output, row))
    return table.count


def read_samples(samples: Path) -> Iterator[Sample]:
    """The samples of a run folder, in order, block by block."""
    with pq.ParquetFile(samples) as file:
        for batch in file.iter_batches(BLOCK):
            yield from samples_from(batch.to_pylist())


def references_of(samples: Path) -> Corpus:
    """The references of a run's data set: of all its samples, whichever cases are measured now."""

    def texts() -> Iterator[str]:
        with pq.ParquetFile(samples) as file:
            for batch in file.iter_batches(BLOCK, columns=["references"]):
                for references in batch["references"].to_pylist():
                    yield from distinct_references(references or ())

    return Corpus(texts)


def count_of(table: Path) -> int:
    """Rows of a Parquet file, from its footer."""
    return int(pq.read_metadata(table).num_rows)
