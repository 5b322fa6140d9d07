"""What is drawn from: the cases of a run that a score has a value for, each with its mean over the iterations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragpipe.core.errors import DataError, Problem
from ragpipe.labelling.draw import CANNOT_DRAW
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.store.run.run_tables import read_columns

Key = tuple[str, str, int]


@dataclass(frozen=True)
class Population:
    """`values` are means over the iterations in the native scale, in the order of `keys`."""

    keys: list[Key]
    values: list[float]

    def names(self) -> list[str]:
        """A text for each case that no other case has."""
        return [json.dumps(key) for key in self.keys]


def read_population(records: Sequence[Path], score: str) -> Population:
    """The cases with a value of this score in at least one iteration, in the order of the run.

    Args:
        records: `records.parquet` of every iteration.
        score: the name of the score.

    Raises DataError where no case has a value, or a table cannot be read.
    """
    values: dict[Key, list[float]] = {}
    for path in records:
        table = read_columns(path, [*OUTPUT_KEY, score])
        for sample_id, method, repeat, value in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if value is not None:
                values.setdefault((sample_id, method, repeat), []).append(value)
    if not values:
        problem = Problem(str(records[0].parent.parent), score, "no case with a value", "a score that was measured")
        raise DataError(CANNOT_DRAW, [problem])
    return Population(list(values), [sum(of_case) / len(of_case) for of_case in values.values()])
