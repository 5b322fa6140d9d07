"""The difference of the means of two independent samples, such as the questions of two days: no row of one is a row of the other.

What both have in common makes the interval wider than it has to be, never too narrow: rows that are the same questions are
better compared as pairs (`paired_difference`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.intervals import Estimate, Interval, estimate_mean, estimate_rate

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IndependentRows:
    """The values of a score in one sample, one per row. `questions` is the number of each row's question; None where all rows are
    independent."""

    values: Floats
    questions: Whole | None = None


@dataclass(frozen=True, slots=True)
class IndependentDifference:
    """`difference` is the mean of the candidate less that of the base, with its interval; `base` and `candidate` are the estimates
    behind it. `interval` is None where one of them has none: fewer than two questions, or equal values without a scale."""

    base: Estimate
    candidate: Estimate
    difference: float | None = None
    interval: Interval | None = None


def independent_difference(
    base: IndependentRows,
    candidate: IndependentRows,
    *,
    low: float | None = None,
    high: float | None = None,
    binary: bool = False,
    level: float = 0.95,
) -> IndependentDifference:
    """The difference of two independent means, by the square-and-add rule.

    Args:
        base: the sample that is compared with.
        candidate: the sample that may differ from it.
        low, high: the ends of the scale; None for no scale.
        binary: whether the values are 0 and 1, as for `estimate_rate`.
        level: the level of the interval.

    With means b and c and their intervals (b1, b2) and (c1, c2), each by `estimate_mean` or `estimate_rate`, the interval of c - b
    is c - b - sqrt((c - c1)^2 + (b2 - b)^2) to c - b + sqrt((c2 - c)^2 + (b - b1)^2): for rates of independent rows method 10
    of Newcombe (1998, Statistics in Medicine 17, 873-890), in general Zou and Donner (2008, ibid. 27, 1693-1702). It holds rows
    of one question as alike as the intervals do, stays on the scale and is never empty.
    """
    before, after = (_estimate(sample, low, high, binary, level) for sample in (base, candidate))
    if before.mean is None or after.mean is None:
        return IndependentDifference(before, after)
    difference = after.mean - before.mean
    if before.interval is None or after.interval is None:
        return IndependentDifference(before, after, difference)
    down = math.hypot(after.mean - after.interval.low, before.interval.high - before.mean)
    up = math.hypot(after.interval.high - after.mean, before.mean - before.interval.low)
    too_few = before.interval.too_few or after.interval.too_few
    interval = Interval(level, difference - down, difference + up, "square_and_add", too_few)
    return IndependentDifference(before, after, difference, interval)


def _estimate(sample: IndependentRows, low: float | None, high: float | None, binary: bool, level: float) -> Estimate:
    if binary and (low, high) == (0, 1):
        return estimate_rate(sample.values, sample.questions, level=level)
    return estimate_mean(sample.values, sample.questions, level=level, low=low, high=high)
