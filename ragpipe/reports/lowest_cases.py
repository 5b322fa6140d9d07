"""The lowest cases of `records.parquet`, selected without loading the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ragpipe.store.run.run_tables import open_table, rows_at

_NO_SCORE = 2.0  # sorts after every overall score
_BATCH = 8192  # rows


def lowest_cases(records: Path, count: int) -> list[dict[str, Any]]:
    """The rows of the `count` lowest cases: lowest overall score first, then most failed scores, then data order.

    Only cases that failed something are included; those without an overall score come last.
    """
    if count == 0:
        return []
    with open_table(records) as file:
        lowest = _lowest(file, count)
    rows = rows_at(records, lowest)
    return [rows[row] for row in lowest]


def _lowest(file: pq.ParquetFile, count: int) -> list[int]:
    """The places of the `count` lowest of the cases that failed something: by overall score, failed scores (most first),
    place."""
    lowest, start = np.empty((3, 0)), 0
    for batch in file.iter_batches(batch_size=_BATCH, columns=["overall_score", "overall_passed", "failed_by"]):
        score = batch["overall_score"].fill_null(_NO_SCORE).to_numpy()
        failed = pc.fill_null(pc.list_value_length(batch["failed_by"]), 0).to_numpy()
        not_passed = pc.equal(batch["overall_passed"], False).fill_null(False).to_numpy(zero_copy_only=False)
        ranked = np.stack([score, -failed, np.arange(start, start + batch.num_rows)])[:, (failed > 0) | not_passed]
        lowest = np.concatenate([lowest, ranked], axis=1)
        lowest = lowest[:, np.lexsort(lowest[::-1])[:count]]
        start += batch.num_rows
    places: list[int] = lowest[2].astype(np.int64).tolist()
    return places
