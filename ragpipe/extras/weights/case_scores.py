"""The scores of every case, brought to 0 (worst) .. 1 (best), over the iterations of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.scoring.iterations.per_case_repeats import cases_of
from ragpipe.stats.rank_stability import weighted_means
from ragpipe.store.run.run_tables import numbers_of, open_parquet_file, reading_table

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class CaseScores:
    """A row per case. `keys` has its sample id, method and repeat, `questions` and `methods` their numbers.

    `values[name]` is the mean over the iterations, NaN where none has a value; `failed[name]` says where that is because
    the judgement failed, and not because the score does not apply.
    """

    keys: pa.Table
    questions: Whole
    methods: Whole
    method_names: tuple[str, ...]
    values: Mapping[str, Floats]
    failed: Mapping[str, NDArray[np.bool_]]

    def matrix(self, names: Sequence[str]) -> Floats:
        """One column per score. A case in which one of them failed has none: it has no overall score."""
        scores = np.stack([self.values[name] for name in names], axis=1)
        scores[np.any([self.failed[name] for name in names], axis=0)] = np.nan
        return scores

    def overall(self, weights: Mapping[str, float]) -> Floats:
        """The overall score of each case under these weights, as the run computes it; NaN where it has none."""
        names = [name for name, weight in weights.items() if weight > 0]
        return weighted_means(self.matrix(names), np.array([weights[name] for name in names]))


def read_case_scores(records: Sequence[Path], names: Sequence[str]) -> CaseScores:
    """Read these scores of all cases from `records.parquet` of each iteration. Raises DataError for tables that do not fit."""
    cases = cases_of(records)
    methods = cases.names["method"].combine_chunks().dictionary_encode()
    values, failed = dict[str, Floats](), dict[str, NDArray[np.bool_]]()
    for name in names:
        sums, counts, errors = np.zeros(len(cases)), np.zeros(len(cases)), np.zeros(len(cases), dtype=np.bool_)
        for path in records:
            with open_parquet_file(path) as file, reading_table(path):
                scores = numbers_of(file, f"{name}.score")
                status = file.read(columns=[f"{name}.status"])[0].combine_chunks()
            is_there = ~np.isnan(scores)
            sums[is_there] += scores[is_there]
            counts += is_there
            errors |= status.fill_null("error").to_numpy(zero_copy_only=False) == "error"
        with np.errstate(invalid="ignore"):
            values[name] = sums / counts
        failed[name] = errors & (counts == 0)
    return CaseScores(
        cases.names,
        cases.samples,
        methods.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        tuple(methods.dictionary.to_pylist()),
        values,
        failed,
    )
