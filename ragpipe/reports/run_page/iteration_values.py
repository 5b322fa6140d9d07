"""The values of a case in every iteration of its run, where they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.store.run.ordered_rows import OutputKey
from ragpipe.store.run.run_tables import batches, read_columns, schema_of

_BATCH = 8192  # cases
_DIGITS = 7
"""Digits of a value: those of the single precision in which the page has the others."""


class IterationValues:
    """The values of all cases in several iterations.

    Args:
        records: `records.parquet` of each iteration, in their order.
        cases: the cases of the page in its order, each by sample, method and repeat.
        scores: names of scores; one that an iteration lacks is missing there.

    Raises DataError for a table that cannot be read.
    """

    def __init__(self, records: Sequence[Path], cases: Iterable[OutputKey], scores: Sequence[str]) -> None:
        places = {case: place for place, case in enumerate(cases)}
        per_iteration = [_values(path, places, scores) for path in records]
        self._values = {name: np.stack([values[name] for values in per_iteration]) for name in scores}

    def differing(self, place: int) -> dict[str, list[float | None]]:
        """Per score that has different values in the iterations a value for each; None is missing."""
        columns = ((name, values[:, place]) for name, values in self._values.items())
        return {name: [_number(value) for value in column] for name, column in columns if _is_varied(column)}


def _cases(records: Path) -> Iterator[OutputKey]:
    for batch in batches(records, OUTPUT_KEY, size=_BATCH):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _values(records: Path, places: dict[OutputKey, int], scores: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Per score an array as long as `places`; NaN where the iteration has no value."""
    order = np.fromiter((places.get(case, -1) for case in _cases(records)), dtype=np.int64)
    known = order >= 0
    columns = schema_of(records).names
    values = {}
    for name in scores:
        values[name] = np.full(len(places), np.nan)
        if name in columns:
            column = read_columns(records, [name])[name].cast(pa.float64()).to_numpy()
            values[name][order[known]] = column[known]
    return values


def _is_varied(column: NDArray[np.float64]) -> bool:
    return not np.array_equal(column, np.broadcast_to(column[:1], column.shape), equal_nan=True)


def _number(value: np.float64) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
