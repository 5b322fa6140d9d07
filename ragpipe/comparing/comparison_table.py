"""`comparison.parquet`: a row per comparison, shared case and score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.comparing.comparison import Comparison
from ragpipe.comparing.score_differences import PairedScore

_COLUMNS = (
    ("comparison", pa.int64(), "number of the candidate, from 0, as in comparison.json"),
    ("sample_id", pa.string(), "the sample's id"),
    ("method", pa.string(), "the method, as the candidate names it"),
    ("repeat", pa.int64(), "which output of this method for this sample, from 1"),
    ("score", pa.string(), "the score's name"),
    ("base", pa.float64(), "value of the base in the native scale, mean over its iterations; null = none"),
    ("candidate", pa.float64(), "value of the candidate"),
    ("difference", pa.float64(), "candidate - base; null where one of them has no value"),
    ("base_passed", pa.bool_(), "whether more than half of the base's verdicts passed; null = no verdict, or half"),
    ("candidate_passed", pa.bool_(), "the same of the candidate"),
)
COMPARED_CASES_SCHEMA = pa.schema(
    [pa.field(name, kind, metadata={"description": text}) for name, kind, text in _COLUMNS]
)  # of comparison.parquet


def compared_cases(comparisons: Sequence[Comparison]) -> Iterator[pa.Table]:
    """The rows, one score of one comparison at a time. A case without a value on either side has no row."""
    for number, comparison in enumerate(comparisons):
        for score in comparison.scores:
            yield _rows(number, comparison, score)


def _rows(number: int, comparison: Comparison, score: PairedScore) -> pa.Table:
    places = np.flatnonzero(np.isfinite(score.base) | np.isfinite(score.candidate))
    keys = comparison.pairs.cases.take(pa.array(places))
    before, after = (verdicts[places] for verdicts in score.passed())
    columns = {
        "comparison": pa.array(np.full(len(places), number)),
        **{name: keys[name] for name in keys.column_names},
        "score": pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(places), dtype=np.int32)), pa.array([score.name])
        ).cast(pa.string()),
        "base": _numbers(score.base[places]),
        "candidate": _numbers(score.candidate[places]),
        "difference": _numbers((score.candidate - score.base)[places]),
        "base_passed": _flags(before),
        "candidate_passed": _flags(after),
    }
    return pa.table([columns[name] for name in COMPARED_CASES_SCHEMA.names], schema=COMPARED_CASES_SCHEMA)


def _numbers(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, mask=~np.isfinite(values))


def _flags(verdicts: NDArray[np.float64]) -> pa.Array:
    return pa.array(verdicts == 1, mask=~np.isfinite(verdicts))
