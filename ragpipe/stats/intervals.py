"""A mean or a rate with its confidence interval, honest about repeated questions and about the ends of a scale.

Several methods or iterations on one question are not independent: rows that share a sample form a cluster, and the
interval widens accordingly (Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640, section 2.2). On a declared
scale every interval is one of Wilson's (docs/statistics.md has the rule and what it covers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

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
    """A mean, or another statistic, over `n` rows in `clusters` clusters (questions), with its interval; `error` is its standard
    error by the jackknife, where it has one.

    `reason` says why there is no value (`no_values`, `no_pairs`, `one_pair`, `one_class`, `no_spread`) or, beside a value, why there
    is no interval: `one_value`, `one_sample` (all rows are of one question), `rests_on_one_question` (not defined without one of
    them), `no_spread` (it is the same without any one of them, so its spread is unknown), or what the function names.
    """

    n: int
    clusters: int
    value: float | None = None
    interval: Interval | None = None
    reason: str | None = None
    error: float | None = None


def estimate_mean(
    values: Floats, clusters: Codes | None = None, *, level: float = 0.95, low: float | None = None, high: float | None = None
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
    (mean * (1 - mean)) + Dmax) / G (after Dean and Pagano 2015), and at least Dmax * min(1, 4 * odds / G) / 2^K for K
    clusters with a value unlike the median and the odds of the farther end, max(mean, 1 - mean) / min(mean, 1 - mean):
    what equal values leave open. n / D rows and t(G-1) go into Wilson's formula. The interval is never empty and never
    leaves the scale.

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
    if not 0 < mean < 1:
        return widest
    measured = clustered_variance(scores, mean, codes, groups) * n / (mean * (1 - mean))
    unlike = np.abs(scores - np.median(scores)) > _HAIR
    others = np.count_nonzero(unlike) if codes is None else len(distinct(codes[unlike]))
    near = min(mean, 1 - mean)
    # equal values: a different one in a share of up to t^2 / G of the questions may not have been seen, at the farther end
    unseen = widest * min(1.0, 4 * (1 - near) / (near * groups)) * 2.0**-others
    return max(((groups - 1) * measured + widest) / groups, unseen)


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


POWER = 0.8
"""The share of samples in which a difference is to be found where a size is planned or what can be found is said."""
_TINY = 1e-300


@lru_cache(maxsize=64)
def normal_quantile(level: float) -> float:
    """z with P(-z <= Z <= z) = level for a standard normal Z."""
    return NormalDist().inv_cdf(0.5 + level / 2)


@lru_cache(maxsize=65536)
def t_quantile(level: float, df: int) -> float:
    """t with P(-t <= T <= t) = level for Student's T with `df` >= 1 degrees of freedom.

    From the standard library alone: importing `scipy.special` takes 0.25-1.4 s. It agrees with scipy to 1e-8 (relative).
    Starts from the Cornish-Fisher expansion around the normal quantile (Abramowitz and Stegun 26.7.5) and ends with
    Newton steps on the two-sided tail. Raises ValueError for fewer degrees of freedom, or a level that is not between 0 and 1.
    """
    if df < 1 or not 0 < level < 1:
        raise ValueError(f"expected df >= 1 and 0 < level < 1, found df={df}, level={level}")
    if df == 1:
        return math.tan(math.pi * level / 2)
    if df == 2:
        return level * math.sqrt(2 / (1 - level * level))
    z = normal_quantile(level)
    t = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    log = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    for _ in range(50):
        density = math.exp(log - (df + 1) / 2 * math.log1p(t * t / df))
        step = (two_sided_tail(t, df) - (1 - level)) / (2 * density)
        t += step
        if abs(step) <= 1e-13 * t:
            break
    return t


def two_sided_tail(t: float, df: float) -> float:
    """P(|T| >= t) = I_x(df/2, 1/2) with x = df/(df + t^2) (Abramowitz and Stegun 26.7.1)."""
    square = t * t
    return _incomplete_beta(df / (df + square), square / (df + square), df / 2, 0.5)


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """Regularised incomplete beta I_x(a, b), `rest` = 1 - x; continued fraction of NIST DLMF 8.17.22."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(rest, x, b, a)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    c, d = 1.0, 1.0 / _away(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1.0 / _away(1 + even * d), _away(1 + even / c)
        fraction *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1.0 / _away(1 + odd * d), _away(1 + odd / c)
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return math.exp(log) * fraction / a


def _away(value: float) -> float:
    """The value kept off zero, as Lentz's method wants it."""
    return value if abs(value) > _TINY else _TINY


Whole = NDArray[np.int64]


def distinct(numbers: Whole) -> Whole:
    """The different numbers, rising. They are sorted: `np.unique` alone hashes them, which takes ten times as long."""
    ordered = np.sort(numbers)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def in_all(lists: Sequence[Whole]) -> Whole:
    """The different numbers that every one of the lists has, rising; none of no list."""
    if not lists:
        return np.empty(0, dtype=np.int64)
    return reduce(lambda one, other: np.intersect1d(one, other, assume_unique=True), map(distinct, lists))


def in_any(lists: Sequence[Whole]) -> Whole:
    """The different numbers that one of the lists has, rising."""
    return distinct(np.concatenate([np.empty(0, dtype=np.int64), *lists]))


def cluster_codes(clusters: Whole) -> tuple[Whole, int]:
    """The clusters of some rows, numbered from 0 without gaps in rising order, and how many there are."""
    steps = np.diff(clusters)
    if len(clusters) and np.all(steps >= 0):  # the order of the data: the rows of a cluster follow one another
        codes = np.concatenate([[0], np.cumsum(steps > 0)]).astype(np.int64)
        return codes, int(codes[-1]) + 1
    names, codes = np.unique(clusters, return_inverse=True)
    return codes.astype(np.int64), len(names)
