"""The lowest cases of `records.parquet`, selected without loading the table."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ragpipe.core.digest import sha256
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.store.run.run_tables import open_table, rows_at

_NO_SCORE = 2.0  # sorts after every overall score


def lowest_cases(records: Path, count: int) -> list[dict[str, Any]]:
    """The rows of the `count` lowest cases: lowest overall score first, then most failed scores, then data order.

    Only cases that failed something are included; those without an overall score come last.
    """
    if count == 0:
        return []
    with open_table(records) as file:
        lowest = [row for *_, row in heapq.nsmallest(count, _ranked(file))]
    rows = rows_at(records, lowest)
    return [rows[row] for row in lowest]


def select_cases(records: Path, count: int) -> tuple[list[int], list[int]]:
    """The places of at most `count` cases to look at: the lowest ones, then a sample of the others.

    The lowest are at most three quarters of them (all, when no other case is left), so that passed cases are seen too. The
    sample is drawn by the hash of the cases' keys, in data order: the same cases always give the same sample.
    """
    with open_table(records) as file:
        total = file.metadata.num_rows
        lowest = [row for *_, row in heapq.nsmallest(count, _ranked(file))]
        kept = lowest[: count - min(total - len(lowest), count // 4)] if total > count else lowest
        if len(kept) == count:
            return kept, []
        taken = set(kept)
        sampled = heapq.nsmallest(count - len(kept), ((key, row) for row, key in _keys(file) if row not in taken))
    return kept, sorted(row for _, row in sampled)


def _keys(file: pq.ParquetFile) -> Iterator[tuple[int, str]]:
    """The place of every case and the hash of its key."""
    row = 0
    for batch in file.iter_batches(batch_size=8192, columns=list(OUTPUT_KEY)):
        for key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield row, sha256(list(key))
            row += 1


def _ranked(file: pq.ParquetFile) -> Iterator[tuple[float, int, int]]:
    """What failed cases are sorted by: overall score, failed scores (negated), place."""
    row = 0
    for batch in file.iter_batches(batch_size=8192, columns=["overall_score", "overall_passed", "failed_by"]):
        values = (batch[name].to_pylist() for name in ("overall_score", "overall_passed", "failed_by"))
        for score, passed, failed in zip(*values, strict=True):
            if failed or passed is False:
                yield (_NO_SCORE if score is None else score, -len(failed or ()), row)
            row += 1
