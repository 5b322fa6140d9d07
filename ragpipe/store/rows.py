"""A few rows of a table by what stands in some of its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.errors import DataError, Problem


def rows_where(path: Path, **cells: Any) -> list[dict[str, Any]]:
    """The rows whose columns hold exactly these values, in the table's order. Raises DataError for a broken table."""
    if path.is_symlink() or not path.is_file():
        raise _refused(path, "no such file")
    found: list[dict[str, Any]] = []
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.metadata.num_row_groups):
                named = file.read_row_group(group, columns=list(cells)).to_pylist()
                places = [place for place, row in enumerate(named) if row == cells]
                if places:
                    found += file.read_row_group(group).take(pa.array(places)).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise _refused(path, f"no readable Parquet file ({error})") from None
    return found


def _refused(path: Path, found: str) -> DataError:
    return DataError("cannot read this run", [Problem(str(path), "file", found, "the table that ragpipe wrote")])
