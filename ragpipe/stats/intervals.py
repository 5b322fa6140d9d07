"""A mean or a rate with its confidence interval, honest about repeated questions and about the ends of a scale.

Several methods or iterations on one question are not independent: rows that share a sample form a cluster, and the
interval widens accordingly (Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640, section 2.2). On a declared
scale every interval is one of Wilson's (docs/statistics.md has the rule and what it covers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.clusters import cluster_codes
from ragpipe.stats.student_t import normal_quantile, t_quantile

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

FEW = 5
"""An interval over fewer questions is given, but says `too_few`."""
_HAIR = 1e-12  # of the scale: values no farther apart are equal but for rounding


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds that cover the true value in `level` of all repetitions; `method` names the formula.

    `too_few`: it is of fewer than 5 questions. The bounds hold, but such an interval says next to nothing.
    """

    level: float
    low: float
    high: float
    method: str
    too_few: bool


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
    """Mean with its interval, for rows that may be clustered.

    Args:
        values: the values, one per row.
        clusters: the number of each row's cluster; None where all rows are independent.
        level: the level of the interval.
        low, high: the ends of the scale; None for no scale.

    Variance of the mean: V = G/(G-1) * sum over clusters of (sum of residuals)^2 / n^2 for G clusters.

    On the scale `low` to `high`: Wilson's interval with an effective sample size, method `wilson_n_eff`. With values
    brought to 0..1, the design effect V*n / (mean * (1 - mean)) is drawn towards that of clusters whose rows are all
    equal, Dmax = sum of squared cluster sizes / n, with the weight of one cluster in G: D = ((G-1) * V*n /
    (mean * (1 - mean)) + Dmax) / G, or Dmax where all values are equal; n / D rows and t(G-1) go into Wilson's formula
    (after Dean and Pagano 2015). The interval is never empty and never leaves the scale.

    Without a scale: mean +- t(G-1) * sqrt(V), method `t` or `clustered_t`; none where all values are equal, for a width
    of zero would claim a certainty that does not exist. No interval for one value, and for one cluster.
    """
    codes, groups = clustering(len(values), clusters)
    if low is not None and high is not None:
        return _on_a_scale(values, codes, groups, level, low, high)
    if (short := _too_short(values, groups)) is not None:
        return short
    n, mean = len(values), _mean(values)
    if not np.any(values != values[0]):
        return Estimate(n, groups, float(values[0]), reason="no_spread")
    half = t_quantile(level, groups - 1) * math.sqrt(clustered_variance(values, mean, codes, groups))
    method = "t" if groups == n else "clustered_t"
    return Estimate(n, groups, mean, _interval(level, mean - half, mean + half, method, groups))


def estimate_rate(hits: Floats, clusters: Codes | None = None, *, level: float = 0.95) -> Estimate:
    """A rate with its interval; `hits` are 0 and 1, or each case's share of hits over its repeats.

    Zeros and ones with one row per cluster get Wilson's score interval (Wilson 1927), method `wilson`: the binomial
    variance is known there, so the normal quantile is enough. All others get the rule of `estimate_mean` on 0 to 1.
    """
    codes, groups = clustering(len(hits), clusters)
    if codes is not None or not np.all((hits == 0) | (hits == 1)):
        return _on_a_scale(hits, codes, groups, level, 0.0, 1.0)
    if (short := _too_short(hits, groups)) is not None:
        return short
    mean = _mean(hits)
    bottom, top = wilson_bounds(mean, len(hits), normal_quantile(level))
    return Estimate(len(hits), groups, mean, _interval(level, bottom, top, "wilson", groups))


def _too_short(values: Floats, groups: int) -> Estimate | None:
    """What there is to say without an interval: no values, one value, or one question."""
    n = len(values)
    if n == 0:
        return Estimate(0, 0, reason="no_values")
    if groups < 2:
        return Estimate(n, groups, _mean(values), reason="one_value" if n < 2 else "one_sample")
    return None


def _interval(level: float, low: float, high: float, method: str, groups: int) -> Interval:
    return Interval(level, low, high, method, too_few=groups < FEW)


def _on_a_scale(values: Floats, codes: Codes | None, groups: int, level: float, low: float, high: float) -> Estimate:
    """The estimate of a mean on the scale `low` to `high`, by the rule of `estimate_mean`."""
    if (short := _too_short(values, groups)) is not None:
        return short
    n, mean = len(values), _mean(values)
    span = high - low
    scores = values if (low, span) == (0.0, 1.0) else (values - low) / span
    rows = n / design_effect(scores, codes, groups, mean if scores is values else _mean(scores))
    bottom, top = wilson_bounds(min(max((mean - low) / span, 0.0), 1.0), rows, t_quantile(level, groups - 1))
    # a hair of rounding must not leave the mean outside
    bounds = min(low + bottom * span, mean), max(low + top * span, mean)
    return Estimate(n, groups, mean, _interval(level, *bounds, "wilson_n_eff", groups))


def check_scale(values: Floats, low: float, high: float) -> None:
    """ValueError where the ends are no scale, or a value is off it."""
    if not low < high:
        raise ValueError(f"a scale runs from low to high, found {low:g} to {high:g}")
    if len(values) and (np.min(values) < low or np.max(values) > high):
        raise ValueError(f"values from {np.min(values):g} to {np.max(values):g} are off the scale {low:g} to {high:g}")


def design_effect(scores: Floats, codes: Codes | None, groups: int, mean: float | None = None) -> float:
    """How many rows weigh as much as one independent draw of 0 or 1 with the same mean; `scores` are on 0..1. `mean` is theirs where it is
    known.

    The rule of `estimate_mean`, above 0; `codes` and `groups` are those of `clustering`, at least two groups.
    """
    n = len(scores)
    mean = _mean(scores) if mean is None else mean
    sizes = np.ones(n) if codes is None else np.bincount(codes, minlength=groups)
    widest = float(np.sum(sizes * sizes)) / n
    if np.ptp(scores) <= _HAIR or not 0 < mean < 1:
        return widest
    measured = clustered_variance(scores, mean, codes, groups) * n / (mean * (1 - mean))
    return ((groups - 1) * measured + widest) / groups


def wilson_bounds(rate: float, n: float, z: float) -> tuple[float, float]:
    """Bounds of a rate of `n` draws (effective ones where `n` is no whole number), `z` standard errors to each side (Wilson 1927)."""
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


def clustering(n: int, clusters: Codes | None) -> tuple[Codes | None, int]:
    """Cluster numbers from 0 without gaps and how many there are; None when every row is its own cluster. Raises
    ValueError where there are not `n` cluster numbers."""
    if clusters is None:
        return None, n
    if len(clusters) != n:
        raise ValueError(f"{n} values but {len(clusters)} cluster numbers")
    codes, groups = cluster_codes(clusters)
    return (None, n) if groups == n else (codes, groups)


def clustered_variance(values: Floats, mean: float, codes: Codes | None, groups: int) -> float:
    """Variance of the mean of rows in `groups` clusters, at least two: V of `estimate_mean`."""
    residuals = values - mean
    # bincount adds one row after another (no vectorised order), so the sums do not depend on the processor
    sums = residuals if codes is None else np.bincount(codes, weights=residuals, minlength=groups)
    return groups / (groups - 1) * math.fsum((sums * sums).tolist()) / len(values) ** 2
