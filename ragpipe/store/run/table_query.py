"""A few rows of a table by what stands in some of its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.core.errors import DataError, Problem

_TABLE = "the table that ragpipe wrote"


def query_rows(path: Path, **cells: Any) -> list[dict[str, Any]]:
    """The rows whose columns hold exactly these values, in the table's order. Raises DataError for a broken table."""
    if path.is_symlink() or not path.is_file():
        raise unreadable_table(path, "no such file", _TABLE)
    found: list[dict[str, Any]] = []
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.metadata.num_row_groups):
                named = file.read_row_group(group, columns=list(cells)).to_pylist()
                places = [place for place, row in enumerate(named) if row == cells]
                if places:
                    found += file.read_row_group(group).take(pa.array(places)).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise unreadable_table(path, f"no readable Parquet file ({error})", _TABLE) from None
    return found


def unreadable_table(path: Path, found: str, expected: str) -> DataError:
    """The DataError for a file of a run folder that cannot be read."""
    fix = "remove it and start the run's own command again: it is made again of what is stored"
    return DataError("cannot read this run", [Problem(str(path), "file", found, expected, fix)])
