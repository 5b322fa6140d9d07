"""The mean difference of two series on the same rows: interval, exact test, wins and losses, and what could have been found. And
that of the means of two independent samples, such as the questions of two days.

Rows are matched before: a row is the same sample, method and iteration in both. Rows of one question are not independent,
so all that follows goes by questions. A difference within rounding of the scale is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement import HAIR, check_pairs, questions_of
from ragpipe.stats.intervals import FEW, POWER, Estimate, Interval, check_scale, clustered_variance, t_quantile, two_sided_tail

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

FEWEST_CHANGED = 6
"""With fewer changed questions no test can reach .05 (2 of 2^5 signs are .0625): the result is inconclusive."""
EXACT_UP_TO = 12
"""Up to so many changed questions all their signs are tried."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """`difference` is the mean of candidate less base over `n` rows of `clusters` questions.

    `changed` counts questions whose differences do not add up to 0. `wins`, `losses` and `ties` count rows in which the
    candidate is higher, lower, equal. The interval decides; `p_value` goes beside it. `detectable` is the true difference
    that such a comparison finds in 8 of 10 samples, `standardized` the mean difference over the standard deviation of
    the rows' differences (Cohen's d_z), `error` the standard error behind the interval. `lean` is the sum of the cubes of the
    questions' deviations over n times that of their squares: above 0 where a few questions rise far.

    `reason` says why there is no difference (`no_pairs`) or no interval: `one_sample` (all rows are of one question);
    without a scale also `few_changed` (fewer than 6 questions changed) and `no_spread` (all questions changed alike).
    """

    n: int
    clusters: int
    changed: int = 0
    difference: float | None = None
    interval: Interval | None = None
    p_value: float | None = None
    wins: int = 0
    losses: int = 0
    ties: int = 0
    detectable: float | None = None
    standardized: float | None = None
    reason: str | None = None
    error: float | None = None
    lean: float = 0.0

    @property
    def can_decide(self) -> bool:
        """False: so few questions changed that the result is inconclusive, whatever the interval."""
        return self.interval is not None and self.changed >= FEWEST_CHANGED

    @property
    def net_wins(self) -> float | None:
        """(wins - losses) / rows, -1 to 1; None without rows."""
        return (self.wins - self.losses) / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class _Rows:
    """The differences of the rows, with 0 for what is only rounding, and their questions."""

    differences: Floats
    codes: Whole
    groups: int
    mean: float
    error: float
    changed: Floats  # the sums of the questions whose differences do not add up to 0
    lean: float


def paired_difference(
    base: Floats,
    candidate: Floats,
    questions: Whole | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
    level: float = 0.95,
) -> PairedDifference:
    """The mean difference of two series on the same rows, with its interval and its p-value.

    Args:
        base: the values of the base, one per row.
        candidate: the values of the candidate on the same rows.
        questions: the number of each row's question; None where all rows are independent.
        low, high: the ends of the scale; None for no scale, as for a latency. A value off the scale is a ValueError.
        level: the level of the interval.

    Interval: d +- t(G-1) * sqrt(V) with the clustered variance V of `estimate_mean` and G questions, method `t` or
    `clustered_t`; where fewer than 6 questions changed or all changed alike, `added_questions`, which needs a scale.
    P-value: exact by signs up to 12 changed questions, else by Student's t.
    Detectable difference: (t.975 + t.80)(G-1) * the standard error that the interval uses.
    """
    check_pairs(base, candidate)
    codes, groups = questions_of(len(base), questions)
    if len(base) == 0:
        return PairedDifference(0, 0, reason="no_pairs")
    span = None
    if low is not None and high is not None:
        check_scale(np.concatenate([base, candidate]), low, high)
        span = high - low
    rows = _rows(base, candidate, codes, groups, span)
    interval, error, reason = _interval(rows, span, level)
    deviation = float(np.std(rows.differences, ddof=1)) if len(base) > 1 else 0.0
    return PairedDifference(
        len(base),
        groups,
        len(rows.changed),
        rows.mean,
        interval,
        _p_value(rows),
        wins=int(np.sum(rows.differences > 0)),
        losses=int(np.sum(rows.differences < 0)),
        ties=int(np.sum(rows.differences == 0)),
        detectable=None if error is None else (t_quantile(level, groups - 1) + t_quantile(2 * POWER - 1, groups - 1)) * error,
        standardized=rows.mean / deviation if deviation > HAIR * abs(rows.mean) else None,
        reason=reason,
        error=error,
        lean=rows.lean,
    )


def _rows(base: Floats, candidate: Floats, codes: Whole, groups: int, span: float | None) -> _Rows:
    unit = span or float(max(np.max(np.abs(base)), np.max(np.abs(candidate))))
    differences = candidate - base
    differences[np.abs(differences) <= HAIR * unit] = 0.0
    sums: Floats = np.bincount(codes, weights=differences, minlength=groups).astype(np.float64)
    mean = math.fsum(differences.tolist()) / len(differences)
    error = math.sqrt(clustered_variance(differences, mean, codes, groups)) if groups > 1 else 0.0
    if error <= HAIR * unit:
        error = 0.0
    deviations = np.bincount(codes, weights=differences - mean, minlength=groups)
    squares = math.fsum((deviations**2).tolist())
    lean = math.fsum((deviations**3).tolist()) / (len(differences) * squares) if error else 0.0
    return _Rows(differences, codes, groups, mean, error, sums[np.abs(sums) > HAIR * unit], lean)


def _interval(rows: _Rows, span: float | None, level: float) -> tuple[Interval | None, float | None, str | None]:
    """The interval, its standard error, and why there is neither."""
    if rows.groups < 2:
        return None, None, "one_sample"
    centre, error = rows.mean, rows.error
    method = "t" if rows.groups == len(rows.differences) else "clustered_t"
    if error == 0 or len(rows.changed) < FEWEST_CHANGED:
        if span is None:
            return None, None, "no_spread" if error == 0 else "few_changed"
        centre, error = _with_added_questions(rows, span)
        method = "added_questions"
    half = t_quantile(level, rows.groups - 1) * error
    low, high = centre - half, centre + half
    if span is not None:
        low, high = max(-span, low), min(span, high)
    return Interval(level, low, high, method, too_few=rows.groups < FEW), error, None


def _with_added_questions(rows: _Rows, span: float) -> tuple[float, float]:
    """Mean difference and standard error with two questions added, one up and one down, each with the weight `added` (d' and V' of
    docs/statistics.md): where almost nothing changed, the rows know almost nothing of what may happen (after Agresti and Min 2005)."""
    # with half of that weight 30 rows in which nothing changed would exclude a drop of .05, which 21 % of such samples do not show
    differences = rows.differences / span
    n, sizes = len(differences), np.bincount(rows.codes, minlength=rows.groups)
    added = float(np.sum(sizes * sizes)) / n
    total = n + 2 * added
    mean = math.fsum(differences.tolist()) / total
    sums = np.bincount(rows.codes, weights=differences - mean, minlength=rows.groups)
    changed = len(rows.changed)
    size = float(np.max(np.abs(differences))) ** (changed / FEWEST_CHANGED) if changed < FEWEST_CHANGED else 1.0
    squares = math.fsum((sums * sums).tolist()) + added**2 * ((size - mean) ** 2 + (size + mean) ** 2)
    return mean * span, math.sqrt((rows.groups + 2) / (rows.groups + 1) * squares) / total * span


def _p_value(rows: _Rows) -> float:
    """How often chance alone gives a mean difference at least so far from 0: the exact sign-flip test (Fisher 1935), or Student's t."""
    changed = len(rows.changed)
    if changed <= EXACT_UP_TO:
        signs = 1 - 2 * ((np.arange(2**changed)[:, None] >> np.arange(changed)) & 1)
        slack = 1e-9 * float(np.sum(np.abs(rows.changed)))
        return float(np.mean(np.abs(signs @ rows.changed) >= abs(float(np.sum(rows.changed))) - slack))
    if rows.error == 0:  # all questions changed alike: only the signs as they are, and all turned, are so far from 0
        return 2.0 ** (1 - changed)
    return two_sided_tail(abs(rows.mean) / rows.error, rows.groups - 1)


def independent_difference(base: Estimate, candidate: Estimate) -> Estimate:
    """The difference of two independent means, `candidate` less `base`, by the square-and-add rule. Both have intervals of one level.

    With means b and c and their intervals (b1, b2) and (c1, c2), each by `estimate_mean` or `estimate_rate`, the interval of c - b
    is c - b - sqrt((c - c1)^2 + (b2 - b)^2) to c - b + sqrt((c2 - c)^2 + (b - b1)^2): for rates of independent rows method 10
    of Newcombe (1998, Statistics in Medicine 17, 873-890), in general Zou and Donner (2008, ibid. 27, 1693-1702). It holds rows
    of one question as alike as the intervals do, stays on the scale and is never empty. There is none where one of the two has
    none; `n` and `clusters` are those of both together.
    """
    n, clusters = base.n + candidate.n, base.clusters + candidate.clusters
    if base.value is None or candidate.value is None:
        return Estimate(n, clusters, reason=base.reason or candidate.reason)
    difference = candidate.value - base.value
    if base.interval is None or candidate.interval is None:
        return Estimate(n, clusters, difference, reason=base.reason or candidate.reason)
    down = math.hypot(candidate.value - candidate.interval.low, base.interval.high - base.value)
    up = math.hypot(candidate.interval.high - candidate.value, base.value - base.interval.low)
    too_few = base.interval.too_few or candidate.interval.too_few
    interval = Interval(base.interval.level, difference - down, difference + up, "square_and_add", too_few)
    return Estimate(n, clusters, difference, interval)


def mcnemar_p(gained: int, lost: int) -> float | None:
    """The two-sided p of McNemar's test in its exact form (McNemar 1947): under no difference each of the changed pairs goes
    either way with probability 1/2, so p = min(1, 2 * P(X <= min(gained, lost))) for X binomial(gained + lost, 1/2).

    `gained` pairs changed from wrong to right, `lost` from right to wrong. 0 to 1; None where none changed.
    """
    changed = gained + lost
    if not changed:
        return None
    tail = sum(math.comb(changed, k) for k in range(min(gained, lost) + 1))
    return min(1.0, tail / (1 << (changed - 1)))
