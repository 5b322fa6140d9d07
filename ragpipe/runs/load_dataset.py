"""Stage `load`: the data set becomes `samples.parquet` and `outputs.parquet`, in data order, before anything is spent."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.core.digest import name_digest
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import Corpus, Output, Sample, distinct_references
from ragpipe.data.dataset import Record
from ragpipe.store.files import atomic_open
from ragpipe.store.parquet_parts import parquet_writer
from ragpipe.store.run_tables import batches
from ragpipe.store.table_rows import (
    OUTPUTS,
    PASSAGE,
    SAMPLES,
    Cells,
    output_row,
    sample_from,
    sample_json,
    sample_row,
    table_of_cells,
)

BLOCK = 1000
"""Cases in a row group of `outputs.parquet`, at most: the unit that a resume skips and that metrics compute over."""
BLOCK_BYTES = 16 << 20
"""Bytes of the cases' own text at which a block is closed before that: see `text_bytes`."""
_PLACE = struct.Struct(">QQ")


def block_limits() -> dict[str, int]:
    """The limits at which a block of cases is closed, whichever comes first, as they are in the manifest."""
    return {"cases": BLOCK, "text_bytes": BLOCK_BYTES}


class _BlockWriter:
    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema):
        self._writer, self._schema = writer, schema
        self._rows: list[Cells] = []
        self._bytes = self.count = 0

    def add(self, row: Cells, size: int) -> None:
        self._rows.append(row)
        self._bytes += size
        self.count += 1
        if len(self._rows) >= BLOCK or self._bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._writer.write_table(table_of_cells(self._rows, self._schema))
            self._rows, self._bytes = [], 0


@contextmanager
def _open(path: Path, schema: pa.Schema) -> Iterator[_BlockWriter]:
    """A table that is at `path` once the `with` block has ended without an error."""
    with atomic_open(path) as file, parquet_writer(file, schema, compression="zstd") as writer:
        table = _BlockWriter(writer, schema)
        yield table
        table.flush()


def load_dataset(records: Iterable[Record], *, samples: Path, outputs: Path, schema: pa.Schema = OUTPUTS) -> list[str]:
    """Write both tables from a data set that records its outputs, streaming; either both are complete or neither exists. `schema` is
    that of the outputs.

    Returns the methods in the order of their first output. Raises DataError when a record has no output.
    """
    known: dict[bytes, bytes] = {}  # a sample's row, and its bytes
    methods: dict[str, None] = {}
    with _open(samples, SAMPLES) as sample_table, _open(outputs, schema) as output_table:
        for record in records:
            if record.output is None:
                raise _no_output(record)
            name = name_digest(record.sample.id)
            if (place := known.get(name)) is None:
                row = sample_row(record.sample)
                size = text_bytes(row)
                place = known[name] = _PLACE.pack(sample_table.count, size)
                sample_table.add(row, size)
            number, of_sample = _PLACE.unpack(place)
            row = output_row(record.output, number)
            output_table.add(row, of_sample + text_bytes(row))
            methods[record.output.method] = None
        return list(methods)


def load_samples(records: Iterable[Record], *, samples: Path) -> int:
    """Write `samples.parquet` alone, for a system that is still to be asked. Returns the number of samples."""
    seen: set[bytes] = set()
    with _open(samples, SAMPLES) as table:
        for record in records:
            if (name := name_digest(record.sample.id)) not in seen:
                seen.add(name)
                row = sample_row(record.sample)
                table.add(row, text_bytes(row))
    return table.count


def load_outputs(pairs: Iterable[tuple[Sample, Iterable[Output]]], *, outputs: Path) -> int:
    """Write `outputs.parquet` from each sample with its outputs, in the order of `samples.parquet`. Returns the number of outputs."""
    with _open(outputs, OUTPUTS) as table:
        for place, (sample, its) in enumerate(pairs):
            of_sample = text_bytes(sample_row(sample))
            for output in its:
                row = output_row(output, place)
                table.add(row, of_sample + text_bytes(row))
    return table.count


def text_bytes(row: Cells) -> int:
    """Bytes of all texts of a row, in UTF-8, of its chunks those of their passages. A case counts those of both its rows, so blocks
    follow from the frozen cases alone, whatever is asked about them."""
    texts: list[str] = []
    for cell in row:
        if type(cell) is str:
            texts.append(cell)
        elif type(cell) is list:
            texts += [part if type(part) is str else part[PASSAGE] for part in cell]
    text = "".join(texts)
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


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


def _no_output(record: Record) -> DataError:
    problem = Problem(
        record.where,
        "output",
        "neither an answer nor retrieved chunks",
        "an output for every sample: system=recorded evaluates what is recorded in the data",
        "map `answer` or `chunks` under dataset.fields, or ask a live system: system=python, system=http",
    )
    return DataError("the data set has questions without outputs", [problem])
