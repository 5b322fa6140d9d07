"""A mean or a rate with its confidence interval, honest about repeated questions.

Several methods or iterations on one question are not independent: rows that share a sample form a cluster, and the
interval widens accordingly (Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640, section 2.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.student import normal_quantile, t_quantile

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds that cover the true value in `level` of all repetitions; `method` names the formula."""

    level: float
    low: float
    high: float
    method: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `n` values in `clusters` clusters. `reason` says why there is no mean or no interval."""

    n: int
    clusters: int
    mean: float | None = None
    interval: Interval | None = None
    reason: str | None = None


def estimate_mean(
    values: Floats,
    clusters: Codes | None = None,
    *,
    level: float = 0.95,
    low: float | None = None,
    high: float | None = None,
) -> Estimate:
    """Mean with a t interval, clustered by `clusters` (a number per row; None: all rows independent).

    Variance of the mean = G/(G-1) * sum over clusters of (sum of residuals)^2 / n^2, t with G - 1 degrees of freedom.
    With one row a cluster that is the plain s^2/n with n - 1. The bounds are clipped to [low, high].
    No interval for fewer than two values, for a single cluster, and where all values are equal: a width of zero
    would claim a certainty that nobody has.
    """
    n = len(values)
    if n == 0:
        return Estimate(0, 0, reason="no_values")
    mean = _mean(values)
    codes, groups = _clustering(n, clusters)
    if n < 2 or groups < 2:
        return Estimate(n, groups, mean, reason="one_value" if n < 2 else "one_sample")
    if not np.any(values != values[0]):
        return Estimate(n, groups, float(values[0]), reason="no_spread")
    half = t_quantile(level, groups - 1) * math.sqrt(_variance(values, mean, codes, groups))
    bottom = mean - half if low is None else max(low, mean - half)
    top = mean + half if high is None else min(high, mean + half)
    method = "t" if groups == n else "clustered_t"
    return Estimate(n, groups, mean, Interval(level, bottom, top, method))


def estimate_rate(hits: Floats, clusters: Codes | None = None, *, level: float = 0.95) -> Estimate:
    """Share of ones among values of 0 and 1 with Wilson's score interval (Wilson 1927).

    Where rows share a cluster: Wilson's formula with the effective sample size n / design effect and the t quantile
    with G - 1 degrees of freedom in the normal one's place (Dean and Pagano 2015; TYPE=WILSON of SAS SURVEYFREQ). The
    design effect is never below 1; where all values are equal it cannot be estimated and the clusters are counted.
    """
    n = len(hits)
    if n == 0:
        return Estimate(0, 0, reason="no_values")
    mean = _mean(hits)
    codes, groups = _clustering(n, clusters)
    if n < 2 or groups < 2:
        return Estimate(n, groups, mean, reason="one_value" if n < 2 else "one_sample")
    if groups == n:
        bottom, top = _wilson(mean, n, normal_quantile(level))
        return Estimate(n, groups, mean, Interval(level, bottom, top, "wilson"))
    plain = mean * (1 - mean) / (n - 1)
    effect = max(1.0, _variance(hits, mean, codes, groups) / plain) if plain > 0 else n / groups
    bottom, top = _wilson(mean, n / effect, t_quantile(level, groups - 1))
    return Estimate(n, groups, mean, Interval(level, bottom, top, "clustered_wilson"))


def _wilson(rate: float, n: float, z: float) -> tuple[float, float]:
    square = z * z / n
    centre = (rate + square / 2) / (1 + square)
    half = z * math.sqrt(rate * (1 - rate) / n + square / (4 * n)) / (1 + square)
    # at the ends the formula gives the rate itself; rounding must not put the bound a hair inside or outside
    bottom = 0.0 if rate == 0 else max(0.0, centre - half)
    top = 1.0 if rate == 1 else min(1.0, centre + half)
    return bottom, top


def _mean(values: Floats) -> float:
    # fsum is exact: the same values give the same bits on every machine and in every order
    return math.fsum(values.tolist()) / len(values)


def _clustering(n: int, clusters: Codes | None) -> tuple[Codes | None, int]:
    """Cluster numbers from 0 without gaps and how many there are; None when every row stands alone."""
    if clusters is None:
        return None, n
    if len(clusters) != n:
        raise ValueError(f"{n} values but {len(clusters)} cluster numbers")
    names, codes = np.unique(clusters, return_inverse=True)
    return (None, n) if len(names) == n else (codes.astype(np.int64), len(names))


def _variance(values: Floats, mean: float, codes: Codes | None, groups: int) -> float:
    residuals = values - mean
    # bincount adds one row after another (no vectorised order), so the sums do not depend on the processor
    sums = residuals if codes is None else np.bincount(codes, weights=residuals, minlength=groups)
    return groups / (groups - 1) * math.fsum((sums * sums).tolist()) / len(values) ** 2
