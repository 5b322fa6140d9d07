"""The share of answers that people would pass, where the labels of a calibration are of other answers: by how often the judge
was right there (Rogan and Gladen). No gate goes by it: that the judge errs here as often as there is an assumption."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.scoring.calibration_file import CalibrationLabel, ScoreCalibration
from ragpipe.scoring.estimates import interval_of
from ragpipe.stats.intervals import Estimate
from ragpipe.stats.rogan_gladen import rogan_gladen

Floats = NDArray[np.float64]
NOT_BOUND = "not_bound"


def rate_by_other_labels(
    rates: Floats, questions: NDArray[np.int64], score: ScoreCalibration, *, holds: bool, level: float
) -> dict[str, Any]:
    """The share of passed cases of the judge, `raw`, and the one corrected by the labels of other answers, `mean`, 0 to 1, with
    intervals; `mean` is null with a `reason`: `not_bound` or one of `rogan_gladen`.

    Args:
        rates: of each case the share of the iterations in which it passed, NaN without a verdict. A case passes as most of
            them say, as in a calibration; a tie is left out.
        questions: the number of each case's question.
        score: the calibration of the score. Its labels of the random part of a draw, or of the data set, that have both
            verdicts count.
        holds: whether what the calibration is bound to is the same here.
        level: the level of the intervals.
    """
    labels = [label for label in score.labels if _counts(label)]
    if not holds:
        return {"labels": len(labels), "mean": None, "reason": NOT_BOUND}
    chosen = np.flatnonzero(~np.isnan(rates) & (rates != 0.5))
    names = {sample_id: place for place, sample_id in enumerate(dict.fromkeys(label.sample_id for label in labels))}
    estimate = rogan_gladen(
        (rates[chosen] > 0.5).astype(np.float64),
        np.array([label.passed for label in labels], dtype=np.float64),
        np.array([label.judge_passed for label in labels], dtype=np.float64),
        questions[chosen],
        label_questions=np.array([names[label.sample_id] for label in labels], dtype=np.int64),
        level=level,
    )
    corrected = Estimate(estimate.n, estimate.judge.clusters, estimate.value, estimate.interval, estimate.reason)
    return {
        "labels": estimate.labels,
        "n": estimate.n,
        "raw": estimate.judge.mean,
        "raw_interval": interval_of("interval", estimate.judge)["interval"],
        "mean": estimate.value,
        **interval_of("interval", corrected),
        "sensitivity": estimate.sensitivity.mean,
        "specificity": estimate.specificity.mean,
        **({"reason": estimate.reason} if estimate.reason else {}),
    }


def _counts(label: CalibrationLabel) -> bool:
    return label.part in ("random", "recorded") and label.passed is not None and label.judge_passed is not None
