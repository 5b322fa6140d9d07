"""Uncertainty of a statistic of labelled rows: it is computed again without each question in turn (the jackknife).

A statistic such as kappa is no mean of rows, so `intervals.py` does not fit it. Leaving out whole questions keeps the rows
of one question together, as they are not independent. Needed is one pass over the rows for every question: meant for labels by
people, of which there are hundreds or thousands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement_coefficients import Coefficient
from ragpipe.stats.clusters import cluster_codes
from ragpipe.stats.intervals import FEW, Interval
from ragpipe.stats.student_t import t_quantile

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Kept = NDArray[np.bool_]

HAIR = 1e-12
"""A standard error so small is one of rounding: an interval by it would claim a certainty that does not exist."""


@dataclass(frozen=True, slots=True)
class EstimatedStatistic:
    """A statistic over `n` rows of `clusters` questions with its interval and its standard error by the jackknife.

    `reason` says why there is no value (`no_pairs`, `one_pair`, `one_class`, `no_spread`) or, beside a value, why there is
    no interval: `one_sample` (all rows are of one question), `rests_on_one_question` (not defined without one of
    them), `no_spread` (it is the same without any one of them, so its spread is unknown), or what the function names.
    """

    n: int
    clusters: int
    value: float | None = None
    interval: Interval | None = None
    reason: str | None = None
    error: float | None = None


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """What a second version changes in a statistic over the same `n` labelled rows of `clusters` questions.

    `difference` is `candidate` less `base`. `reason` says why one of them, or the interval, does not exist, as in
    `EstimatedStatistic`.
    """

    n: int
    clusters: int
    base: float | None = None
    candidate: float | None = None
    difference: float | None = None
    interval: Interval | None = None
    reason: str | None = None


def difference_of_versions(
    statistic: Callable[[Floats, Floats], Coefficient],
    labels: Floats,
    base: Floats,
    candidate: Floats,
    questions: Whole | None = None,
    *,
    level: float = 0.95,
) -> VersionDifference:
    """What a second version changes in how well scores or verdicts agree with labels, on the same answers.

    Args:
        statistic: of labels and scores, such as `auroc`, `cohen_kappa` or `balanced_accuracy`.
        labels: the labels, one per row.
        base: the first version's scores (or verdicts) of the same rows.
        candidate: the second version's.
        questions: the number of each row's question; None where all rows are independent.
        level: the level of the interval.

    The interval is difference +- t(G-1) * s for G questions, s the jackknife's standard error of the difference itself,
    method `jackknife_t`. Both versions meet the same labels, so this is narrower than two single intervals suggest.
    """
    codes, groups = questions_of(len(labels), questions)
    first, second = statistic(labels, base), statistic(labels, candidate)
    if first.value is None or second.value is None:
        return VersionDifference(len(labels), groups, first.value, second.value, reason=first.reason or second.reason)

    def change(kept: Kept) -> float | None:
        before, after = statistic(labels[kept], base[kept]).value, statistic(labels[kept], candidate[kept]).value
        return None if before is None or after is None else after - before

    difference = second.value - first.value
    error, reason = jackknife_error(change, codes, groups)
    interval = None
    if error is not None and reason is None:
        half = t_quantile(level, groups - 1) * error
        interval = Interval(level, difference - half, difference + half, "jackknife_t", too_few=groups < FEW)
    return VersionDifference(len(labels), groups, first.value, second.value, difference, interval, reason)


def jackknife_error(
    statistic: Callable[[Kept], float | None], codes: Whole, groups: int
) -> tuple[float | None, str | None]:
    """Standard error of a statistic of the kept rows, by leaving out each of the `groups` questions of `codes` in turn.

    s = sqrt((G-1)/G * sum of (value without a question - mean of these values)^2). Beside it stands why it makes no
    interval: `one_sample`, `rests_on_one_question` (no error then) or `no_spread` (it is 0 but for rounding).
    """
    if groups < 2:
        return None, "one_sample"
    without: list[float] = []
    for group in range(groups):
        value = statistic(codes != group)
        if value is None:
            return None, "rests_on_one_question"
        without.append(value)
    centre = math.fsum(without) / groups
    error = math.sqrt((groups - 1) / groups * math.fsum((value - centre) ** 2 for value in without))
    return error, "no_spread" if error <= HAIR else None


def fisher_bounds(value: float, error: float, t: float) -> tuple[float, float]:
    """Bounds of a coefficient in -1..1, symmetric after Fisher's z: tanh(atanh(value) +- t * error / (1 - value^2)).

    The divisor brings the standard error to the scale of z (delta method). At -1 and 1 both bounds are the value.
    """
    room = 1 - value * value
    if room <= HAIR:
        return value, value
    centre, half = math.atanh(value), t * error / room
    return math.tanh(centre - half), math.tanh(centre + half)


def questions_of(n: int, questions: Whole | None) -> tuple[Whole, int]:
    """The questions of `n` rows, numbered from 0 without gaps, and how many there are; None: each row is another question. Raises
    ValueError where there are not `n` question numbers."""
    if questions is None:
        return np.arange(n, dtype=np.int64), n
    if len(questions) != n:
        raise ValueError(f"{n} values but {len(questions)} question numbers")
    return cluster_codes(questions) if n else (np.empty(0, dtype=np.int64), 0)
