"""How long the judge took for each case: the sum over the calls behind its scores."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.scoring.case_blocks import Key, ScoreRows

Floats = NDArray[np.float64]


class JudgeTimes:
    """The times of `judge_inputs.parquet`, read forward beside the cases, whose order the table has.

    `measured` are those of all cases so far that have one, in milliseconds.
    """

    def __init__(self, judge_inputs: Path):
        self._rows = ScoreRows(judge_inputs, (*OUTPUT_KEY, "latency_ms"))
        self.measured = array("d")

    def take(self, keys: Sequence[Key]) -> Floats:
        """Milliseconds for each of the next cases, a call that several cases share counted with each; NaN for a case
        without a measured call (none was asked, or what answered keeps no time)."""
        n = len(keys)
        rows, cases = self._rows.take(keys)
        times = rows["latency_ms"].to_numpy().astype(np.float64)
        timed = ~np.isnan(times)
        sums = np.bincount(cases[timed], weights=times[timed], minlength=n)
        durations = np.where(np.bincount(cases[timed], minlength=n) > 0, sums, np.nan)
        self.measured.frombytes(durations[~np.isnan(durations)].tobytes())
        return durations
