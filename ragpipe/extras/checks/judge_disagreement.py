"""How often two judges of the same cases disagree, score by score: `judge_reliability` of a spot check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.case_records import verdict_column
from ragpipe.stats.agreement_coefficients import cohen_kappa
from ragpipe.stats.intervals import estimate_rate
from ragpipe.store.run.run_tables import read_columns

Floats = NDArray[np.float64]
_Key = tuple[str, str, int]

APART = 0.1
"""Share of a score's range by which two values without a verdict may differ and still agree."""


def judge_reliability(first: Path, second: Path, specs: Sequence[ScoreSpec]) -> dict[str, Any]:
    """What a spot check says of the judge of a run.

    Two judgements disagree where one passes and the other does not; a score without a threshold, where the values are more than a tenth of
    its range apart (without a range: where they differ). Compared are the cases with a value in both.

    Args:
        first: `records.parquet` of the run.
        second: that of the spot check, over some of its cases.
        specs: the scores.

    Returns `spot_check_n` (cases), `disagreement_rate` (share of all compared judgements, None without one), `scores` (by score: `n`,
    `disagreement_rate` with its `interval` of 95 %, `kappa` of the verdicts, `rule`, the mean `difference` second less first, and
    `one_sided`, the cases with a value from one judge alone) and `cases`, those that disagree.
    """
    names = [spec.name for spec in specs]
    first_rows, second_rows = _rows(first, names), _rows(second, names)
    keys = [key for key in second_rows if key in first_rows]
    questions = np.unique([key[0] for key in keys], return_inverse=True)[1].astype(np.int64)
    scores, cases = dict[str, Any](), list[dict[str, Any]]()
    for spec in specs:
        before, after = (_pairs(rows, keys, spec) for rows in (first_rows, second_rows))
        has_both = ~np.isnan(before.values) & ~np.isnan(after.values)
        if not has_both.any():
            continue
        by_verdict = not (np.isnan(before.verdicts[has_both]).any() or np.isnan(after.verdicts[has_both]).any())
        disagree = _disagreements(before, after, spec, by_verdict=by_verdict)
        rate = estimate_rate(disagree[has_both].astype(np.float64), questions[has_both])
        kappa = cohen_kappa(before.verdicts[has_both], after.verdicts[has_both]).value if by_verdict else None
        scores[spec.name] = {
            "n": int(has_both.sum()),
            "disagreement_rate": rate.mean,
            "interval": None if rate.interval is None else {"low": rate.interval.low, "high": rate.interval.high},
            "kappa": kappa,
            "rule": "verdict" if by_verdict else "distance",
            "difference": float(np.mean(after.values[has_both] - before.values[has_both])),
            "one_sided": int(np.sum(np.isnan(before.values) != np.isnan(after.values))),
        }
        for place in np.flatnonzero(disagree & has_both).tolist():
            sample, method, repeat = keys[place]
            values = {"first": before.values[place].item(), "second": after.values[place].item()}
            cases.append({"sample_id": sample, "method": method, "repeat": repeat, "score": spec.name, **values})
    judged = sum(score["n"] for score in scores.values())
    rate_of_all = len(cases) / judged if judged else None
    return {"spot_check_n": len(keys), "disagreement_rate": rate_of_all, "scores": scores, "cases": cases}


class _Judged:
    """The values and verdicts (1, 0) of one judge, NaN where there is none."""

    def __init__(self, values: Floats, verdicts: Floats):
        self.values, self.verdicts = values, verdicts


def _rows(records: Path, names: Sequence[str]) -> dict[_Key, Mapping[str, Any]]:
    columns = [*OUTPUT_KEY, *(column for name in names for column in (name, verdict_column(name)))]
    return {tuple(row[name] for name in OUTPUT_KEY): row for row in read_columns(records, columns).to_pylist()}


def _pairs(rows: Mapping[_Key, Mapping[str, Any]], keys: Sequence[_Key], spec: ScoreSpec) -> _Judged:
    def column(name: str) -> Floats:
        cells = (rows[key][name] for key in keys)
        return np.array([np.nan if cell is None else float(cell) for cell in cells], dtype=np.float64)

    return _Judged(column(spec.name), column(verdict_column(spec.name)))


def _disagreements(before: _Judged, after: _Judged, spec: ScoreSpec, *, by_verdict: bool) -> NDArray[np.bool_]:
    if by_verdict:
        return np.asarray(before.verdicts != after.verdicts)
    apart = np.abs(before.values - after.values)
    span = 0.0 if spec.low is None or spec.high is None else spec.high - spec.low
    return np.asarray(apart > APART * span + 1e-9)
