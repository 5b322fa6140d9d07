"""Parquet files that are written piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq


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
