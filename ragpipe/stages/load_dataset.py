"""Stage `load`: the data set becomes `samples.parquet` and `outputs.parquet`, in data order, before anything is spent."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.core.digest_table import DigestTable, name_digest
from ragpipe.schema.sample import Corpus, Output, Sample, distinct_references
from ragpipe.schema.table_schemas import OUTPUTS, SAMPLES, output_row, sample_from, sample_json, sample_row, table_of
from ragpipe.stages.case_batches import CaseBatch, Loaded, Sizes, case_batches, text_bytes
from ragpipe.store.files.atomic import atomic_open
from ragpipe.store.files.parquet_parts import parquet_writer
from ragpipe.store.run.run_tables import batches

BLOCK = 1000
"""Cases in a row group of `outputs.parquet`, at most: the unit that a resume skips and that metrics compute over."""
BLOCK_BYTES = 16 << 20
"""Bytes of the cases' own text at which a block is closed before that: see `text_bytes`."""
_AT_ONCE = 100  # samples
_PLACE = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True)
class DatasetCounts:
    """What was loaded. `methods` in order of first appearance."""

    samples: int
    cases: int
    methods: tuple[str, ...]


def block_limits() -> dict[str, int]:
    """The limits at which a block of cases is closed, whichever comes first, as they are in the manifest."""
    return {"cases": BLOCK, "text_bytes": BLOCK_BYTES}


class _BlockWriter:
    """Writes rows into a Parquet file, one row group per block."""

    def __init__(self, writer: pq.ParquetWriter):
        self._writer = writer
        self._pending: list[pa.Table] = []
        self._rows = self._bytes = 0
        self.count = 0

    def add(self, table: pa.Table, sizes: Sizes) -> None:
        """Add rows that count as `sizes` bytes."""
        start = 0
        for stop, size in enumerate(sizes.tolist(), 1):
            self._rows += 1
            self._bytes += size
            if self._rows >= BLOCK or self._bytes >= BLOCK_BYTES:
                self._pending.append(table.slice(start, stop - start))
                self.flush()
                start = stop
        if start < table.num_rows:
            self._pending.append(table.slice(start))
        self.count += table.num_rows

    def flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.concat_tables(self._pending).combine_chunks())
            self._pending = []
            self._rows = self._bytes = 0


@contextmanager
def _open(path: Path, schema: pa.Schema) -> Iterator[_BlockWriter]:
    """A table that is at `path` once the `with` block has ended without an error."""
    with atomic_open(path) as file, parquet_writer(file, schema, compression="zstd") as writer:
        table = _BlockWriter(writer)
        yield table
        table.flush()


def load_dataset(records: Iterable[Loaded], *, samples: Path, outputs: Path) -> DatasetCounts:
    """Write both tables from a data set that records its outputs, streaming; either both are complete or neither exists.

    Raises DataError when a record has no output.
    """
    known = DigestTable(_PLACE.size)  # a sample's row, and its bytes
    methods: dict[str, None] = {}
    with _open(samples, SAMPLES) as sample_table, _open(outputs, OUTPUTS) as output_table:
        for batch in case_batches(records):
            rows, of_samples = _add_samples(batch, known, sample_table)
            methods |= dict.fromkeys(batch.outputs["method"].unique().to_pylist())
            places = batch.outputs["sample_row"].to_numpy()
            column = OUTPUTS.get_field_index("sample_row")
            table = batch.outputs.set_column(column, OUTPUTS.field(column), pa.array(rows[places]))
            output_table.add(table, of_samples[places] + text_bytes(table))
        return DatasetCounts(sample_table.count, output_table.count, tuple(methods))


def _add_samples(batch: CaseBatch, known: DigestTable, table: _BlockWriter) -> tuple[Sizes, Sizes]:
    """Add the samples of a batch that are new. Returns the row and the bytes of each of its samples."""
    sizes = text_bytes(batch.samples)
    rows = np.empty(len(sizes), np.int64)
    new: list[int] = []
    for place, (name, size) in enumerate(zip(batch.names, sizes.tolist(), strict=True)):
        row = table.count + len(new)
        if (before := known.setdefault(name, _PLACE.pack(row, size))) is None:
            new.append(place)
        else:
            row, sizes[place] = _PLACE.unpack(before)
        rows[place] = row
    is_new = len(new) == len(sizes)
    places = pa.array(new, pa.int64())  # the type is said: a batch may bring no new sample
    table.add(batch.samples if is_new else batch.samples.take(places), sizes if is_new else sizes[new])
    return rows, sizes


def load_samples(records: Iterable[Loaded], *, samples: Path) -> int:
    """Write `samples.parquet` alone, for a system that is still to be asked. Returns the number of samples."""
    seen = DigestTable()
    new = (record.sample for record in records if seen.setdefault(name_digest(record.sample.id)) is None)
    with _open(samples, SAMPLES) as table:
        while rows := list(map(sample_row, islice(new, _AT_ONCE))):
            cells = table_of(rows, SAMPLES)
            table.add(cells, text_bytes(cells))
    return table.count


def load_outputs(pairs: Iterable[tuple[Sample, Iterable[Output]]], *, outputs: Path) -> int:
    """Write `outputs.parquet` from each sample with its outputs, in the order of `samples.parquet`. Returns the number of outputs."""
    numbered = enumerate(pairs)
    with _open(outputs, OUTPUTS) as table:
        while some := [(place, sample, list(its)) for place, (sample, its) in islice(numbered, _AT_ONCE)]:
            sizes = text_bytes(table_of([sample_row(sample) for _, sample, _ in some], SAMPLES))
            cells = table_of([output_row(output, place) for place, _, its in some for output in its], OUTPUTS)
            table.add(cells, np.repeat(sizes, [len(its) for _, _, its in some]) + text_bytes(cells))
    return table.count


def read_samples(samples: Path) -> Iterator[Sample]:
    """The samples of a run folder, in order, block by block."""
    for batch in batches(samples, size=BLOCK):
        yield from (sample_from(sample_json(row)) for row in batch.to_pylist())


def references_of(samples: Path) -> Corpus:
    """The references of a run's data set: of all its samples, whichever cases are measured now."""

    def texts() -> Iterator[str]:
        for batch in batches(samples, ["references"], size=BLOCK):
            for references in batch["references"].to_pylist():
                yield from distinct_references(references or ())

    return Corpus(texts)
