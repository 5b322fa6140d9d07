"""Two judges: how far the second lies from the first on the answers that both judged, and the difference without it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.comparing.score_differences import PairedScore, interval_document
from ragpipe.stats.clusters import cluster_codes
from ragpipe.stats.intervals import FEW, Interval
from ragpipe.stats.student_t import t_quantile

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def judge_bridge(score: PairedScore, same: Flags, level: float) -> dict[str, Any] | None:
    """`bridge` of a score of `comparison.json`: the judges' shift, and the difference less the shift.

    Args:
        score: the score of the shared cases.
        same: the pairs whose answers are the same on both sides.
        level: the level of the intervals.

    The shift is the mean of candidate - base over the cases with the same answer, where the judge (and whatever else was
    accepted) is all that differs; it carries over to the other cases as far as those are like them. Figures are in the
    native scale. None where no such case has both values.
    """
    bridged = np.flatnonzero(score.measured & same)
    if not len(bridged):
        return None
    shift = score.difference(bridged, level)
    difference, interval = _without_shift(score, same, level)
    return {
        "n": shift.n,
        "questions": shift.clusters,
        "changed": shift.changed,
        "shift": shift.difference,
        "interval": interval_document(shift.interval),
        "without_shift": {"difference": difference, "interval": interval_document(interval)},
    }


def _without_shift(score: PairedScore, same: Flags, level: float) -> tuple[float, Interval | None]:
    """The mean difference over all cases less that over the bridged ones, with its interval.

    Both means share rows and questions, so each row's part in their difference is u = (d - mean) / n - same (d - shift) / m
    for n rows of which m are bridged; V = G/(G-1) * sum over questions of (sum of u)^2, t(G-1). No interval for one
    question, and where V is 0: with nothing but bridged cases all of the difference is shift.
    """
    places = np.flatnonzero(score.measured)
    differences = score.candidate[places] - score.base[places]
    bridged = same[places]
    mean, shift = float(np.mean(differences)), float(np.mean(differences[bridged]))
    parts: Floats = (differences - mean) / len(places)
    parts[bridged] -= (differences[bridged] - shift) / np.count_nonzero(bridged)
    codes, groups = cluster_codes(score.questions[places])
    value = mean - shift
    sums = np.bincount(codes, weights=parts, minlength=groups)
    if groups < 2 or (error := math.sqrt(groups / (groups - 1) * float(np.sum(sums * sums)))) < 1e-12:
        return value, None
    half = t_quantile(level, groups - 1) * error
    return value, Interval(level, value - half, value + half, "clustered_t", too_few=groups < FEW)
