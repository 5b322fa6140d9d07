"""The digests of one row group of a table, taken by a worker for its driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.engine.workers.plain_messages import packed_message
from ragpipe.store.run.seals import CellDigests, group_digests


def open_sealing(start: dict[str, Any]) -> Callable[[Any], bytes]:
    """What answers each row group of a table with its digests, or with nothing where it cannot be read. Raises pyarrow's errors for an
    unreadable file."""
    return partial(_answer, pq.ParquetFile(start["path"]))


def _answer(file: pq.ParquetFile, values: Any) -> bytes:
    try:
        return digests_message(list(group_digests(file, values["group"])))
    except (OSError, pa.ArrowException):  # the driver meets it too, and says what it is
        return packed_message({})


def digests_message(parts: list[CellDigests]) -> bytes:
    """The digests of a row group: those of its rows, then those of each column."""
    columns = [b"".join(cells) for cells in zip(*(part.columns for part in parts), strict=True)]
    return packed_message({"columns": len(columns)}, *(part.rows.tobytes() for part in parts), *columns)


def digests_of(values: dict[str, Any], content: bytes) -> list[CellDigests] | None:
    """The digests that a message tells of; None where the row group could not be read."""
    if "columns" not in values:
        return None
    if not content:  # it has no rows
        return []
    size = len(content) // (1 + values["columns"])
    rows, *columns = (memoryview(content)[start : start + size] for start in range(0, len(content), size))
    return [CellDigests(np.frombuffer(rows, np.uint64), columns)]
