"""How improbable a mean is if the true one were at a limit: the p-values behind intervals that lie beyond a limit."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.intervals import clustered_variance, clustering, design_effect
from ragpipe.stats.student_t import two_sided_tail

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def p_below(
    values: Floats,
    clusters: Whole | None,
    limit: float,
    *,
    low: float | None = None,
    high: float | None = None,
    binary: bool = False,
) -> float | None:
    """The probability of a mean as low as that of `values`, or lower, if the true mean were `limit`.

    Args:
        values: the values, one per row.
        clusters: the number of each row's cluster; None where all rows are independent.
        limit: the true mean to hold against them.
        low, high: the ends of the scale; None for no scale.
        binary: whether the values are shares of hits, as for `estimate_rate`.

    0 to 1, one-sided; `1 - p_below` is that of a mean as high. It is below (1 - level) / 2 where the interval of
    `estimate_mean` or `estimate_rate` of that level ends below the limit: the same variance, design effect and degrees of
    freedom (Wilson 1927: the score test). None for fewer than two clusters, for a limit at an end of the scale, and without a
    scale for values that are all equal.
    """
    codes, groups = clustering(len(values), clusters)
    if groups < 2:
        return None
    mean = math.fsum(values.tolist()) / len(values)
    if low is None or high is None:
        variance = clustered_variance(values, mean, codes, groups)
        return lower_tail((mean - limit) / math.sqrt(variance), groups - 1) if variance > 0 else None
    unit = (values - low) / (high - low)
    place, centre = (limit - low) / (high - low), min(max((mean - low) / (high - low), 0.0), 1.0)
    if binary and codes is None and np.all((unit == 0) | (unit == 1)):
        return p_of_share(centre, place, len(values), None)
    return p_of_share(centre, place, len(values) / design_effect(unit, codes, groups), groups - 1)


def p_of_share(share: float, limit: float, rows: float, degrees: int | None) -> float | None:
    """The same for a share of `rows` independent rows (Wilson's score test), with Student's t of so many degrees of freedom, or
    normal for None. None for a limit that is not between 0 and 1."""
    if not 0 < limit < 1:
        return None
    return lower_tail((share - limit) / math.sqrt(limit * (1 - limit) / rows), degrees)


def lower_tail(t: float, degrees: int | None) -> float:
    """P(T <= t) for Student's T; for the standard normal where `degrees` is None."""
    tail = math.erfc(abs(t) / math.sqrt(2)) if degrees is None else two_sided_tail(abs(t), degrees)
    return tail / 2 if t <= 0 else 1 - tail / 2
