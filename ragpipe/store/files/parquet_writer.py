"""Parquet files that are written piece by piece.

A writer keeps of every column of every row group what goes into the footer, 800 bytes: of a wide table of a million rows in row groups
of a thousand that is 140 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

GROUP_ROWS = 8192
GROUP_BYTES = 16 << 20


class RowGroups:
    """Gathers consecutive tables and writes them as one row group, as soon as they have `GROUP_ROWS` rows or `GROUP_BYTES`. A table
    is never divided."""

    def __init__(self, writer: pq.ParquetWriter):
        self._writer = writer
        self._tables: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> None:
        """Rows behind those that are there."""
        self._tables.append(table)
        self._rows += table.num_rows
        # without what a buffer holds beside the rows, so that it does not matter who made the table
        self._bytes += sum(map(pa.ipc.get_record_batch_size, table.to_batches()))
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """Write what was gathered: to be called after the last table."""
        if self._rows:
            self._writer.write_table(pa.concat_tables(self._tables).combine_chunks(), row_group_size=self._rows)
        self._tables, self._rows, self._bytes = [], 0, 0


@contextmanager
def parquet_writer(file: BinaryIO, schema: pa.Schema, **options: Any) -> Iterator[pq.ParquetWriter]:
    """A writer that is closed for good when its block ends, however it ends.

    pyarrow's own, left open by an error or unable to close on a full disk, tries again when it is collected, and prints
    a traceback behind our message.
    """
    writer = pq.ParquetWriter(file, schema, **options)
    try:
        yield writer
        writer.close()
    finally:
        if writer.is_open:
            with suppress(Exception):  # what went wrong before is on its way up
                writer.close()
            writer.is_open = False
