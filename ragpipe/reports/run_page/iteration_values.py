"""The values of a case in every iteration of its run, where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.store.run.run_tables import read_columns, schema_of

_DIGITS = 7
"""Digits of a value: those of the single precision in which the page has the others."""


class IterationValues:
    """The values of all cases in several iterations.

    Args:
        records: `records.parquet` of each iteration, in their order.
        shown: `records.parquet` whose order of cases counts: that of the page.
        scores: names of scores; one that an iteration lacks is missing there.

    Raises DataError for a table that cannot be read.
    """

    def __init__(self, records: Sequence[Path], shown: Path, scores: Sequence[str]) -> None:
        places = {case: place for place, case in enumerate(_cases(shown))}
        per_iteration = [_values(path, places, scores) for path in records]
        self._values = {name: np.stack([values[name] for values in per_iteration]) for name in scores}

    def differing(self, place: int) -> dict[str, list[float | None]]:
        """Per score that has different values in the iterations a value for each; None is missing."""
        columns = ((name, values[:, place]) for name, values in self._values.items())
        return {name: [_number(value) for value in column] for name, column in columns if _is_varied(column)}


def _cases(records: Path) -> list[tuple[Any, ...]]:
    columns = read_columns(records, OUTPUT_KEY)
    return list(zip(*(columns[name].to_pylist() for name in OUTPUT_KEY), strict=True))


def _values(records: Path, places: dict[tuple[Any, ...], int], scores: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Per score an array as long as `places`; NaN where the iteration has no value."""
    order = np.array([places.get(case, -1) for case in _cases(records)], dtype=np.int64)
    known = order >= 0
    here = [name for name in scores if name in schema_of(records).names]
    table = read_columns(records, here) if here else None
    values = {}
    for name in scores:
        column = np.full(len(places), np.nan)
        if table is not None and name in here:
            column[order[known]] = table[name].cast(pa.float64()).to_numpy()[known]
        values[name] = column
    return values


def _is_varied(column: NDArray[np.float64]) -> bool:
    return not np.array_equal(column, np.broadcast_to(column[:1], column.shape), equal_nan=True)


def _number(value: np.float64) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
