"""Agreement with people's labels, with intervals clustered by question: kappa and correlations.

Kappa is 1 - (1 - A) / E: A the mean agreement of the rows (0 or 1, or 1 less a squared distance), E the disagreement that
chance alone gives. Two intervals are made, and the outer bounds of both hold:

- by the jackknife over questions after Fisher's z, which shrinks to nothing near perfect agreement;
- from the interval of A on 0..1 (`estimate_mean`), brought through 1 - (1 - A) / E, which takes E as known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement_coefficients import (
    Coefficient,
    check_pairs,
    cohen_kappa,
    equal_by_chance,
    quadratic_kappa,
    squared_by_chance,
)
from ragpipe.stats.intervals import FEW, Interval, check_scale, estimate_mean
from ragpipe.stats.jackknife import EstimatedStatistic, Kept, fisher_bounds, jackknife_error, questions_of
from ragpipe.stats.student_t import t_quantile

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def estimate_kappa(
    labels: Floats, verdicts: Floats, questions: Whole | None = None, *, level: float = 0.95
) -> EstimatedStatistic:
    """Cohen's kappa of people's labels and a judge's verdicts, -1 to 1, with its interval, method `jackknife_wilson`.

    Classes are unordered. Not defined where both only ever use one and the same class (`one_class`). No interval for one
    question, and where kappa is not defined without one of them (`rests_on_one_question`).
    """
    check_pairs(labels, verdicts)
    codes, groups = questions_of(len(labels), questions)
    kappa = cohen_kappa(labels, verdicts)
    if kappa.value is None:
        return EstimatedStatistic(kappa.n, groups, reason=kappa.reason)
    by_agreement = mapped_bounds(*agreement_of_rows(labels, verdicts), codes, level)
    return outer_interval(
        kappa, lambda kept: cohen_kappa(labels[kept], verdicts[kept]), by_agreement, codes, groups, level
    )


def estimate_quadratic_kappa(
    labels: Floats, verdicts: Floats, questions: Whole | None = None, *, low: float, high: float, level: float = 0.95
) -> EstimatedStatistic:
    """Quadratically weighted kappa of people's grades and a judge's, -1 to 1, with its interval, method `jackknife_wilson`.

    Args:
        labels: the grades by people, one per row.
        verdicts: the judge's grades of the same rows.
        questions: the number of each row's question; None where all rows are independent.
        low, high: the ends of the scale. They matter to the interval alone: the agreement of a row is
            1 - (difference / (high - low))^2.
        level: the level of the interval.

    Not defined where both gave one and the same grade to everything (`one_class`). No interval as for `estimate_kappa`.
    A grade off the scale is a ValueError.
    """
    check_pairs(labels, verdicts)
    check_scale(np.concatenate([labels, verdicts]), low, high)
    codes, groups = questions_of(len(labels), questions)
    kappa = quadratic_kappa(labels, verdicts)
    if kappa.value is None:
        return EstimatedStatistic(kappa.n, groups, reason=kappa.reason)
    by_agreement = mapped_bounds(*agreement_of_rows(labels, verdicts, high - low), codes, level)
    return outer_interval(
        kappa, lambda kept: quadratic_kappa(labels[kept], verdicts[kept]), by_agreement, codes, groups, level
    )


def estimate_correlation(
    correlation: Callable[[Floats, Floats], Coefficient],
    labels: Floats,
    scores: Floats,
    questions: Whole | None = None,
    *,
    level: float = 0.95,
) -> EstimatedStatistic:
    """A correlation of people's labels and a judge's scores, -1 to 1, with its interval by the jackknife, method `jackknife_z`.

    Args:
        correlation: `pearson`, `spearman` or `kendall`.
        labels: the labels by people, one per row.
        scores: the judge's scores of the same rows.
        questions: the number of each row's question; None where all rows are independent.
        level: the level of the interval.

    Not defined for no pair or one, and where a series never varies (`no_spread`). No interval for one question, where the
    correlation is not defined without one of them (`rests_on_one_question`), and where leaving out questions changes
    nothing, as at -1 and 1 (`no_spread`).
    """
    codes, groups = questions_of(len(labels), questions)
    estimated = correlation(labels, scores)
    if estimated.value is None:
        return EstimatedStatistic(estimated.n, groups, reason=estimated.reason)
    return outer_interval(estimated, lambda kept: correlation(labels[kept], scores[kept]), None, codes, groups, level)


def agreement_of_rows(labels: Floats, verdicts: Floats, span: float | None = None) -> tuple[Floats, float]:
    """How far both raters agree on each row, 0 to 1, and the disagreement E that chance alone gives, 0 to 1.

    Without a `span` a row agrees or not; with one, its agreement is 1 - (difference / span)^2.
    """
    if span is None:
        return np.where(labels == verdicts, 1.0, 0.0), 1 - equal_by_chance(labels, verdicts)
    return 1 - ((labels - verdicts) / span) ** 2, squared_by_chance(labels, verdicts) / span**2


def outer_interval(
    estimated: Coefficient,
    without: Callable[[Kept], Coefficient],
    by_agreement: tuple[float, float] | None,
    codes: Whole,
    groups: int,
    level: float,
) -> EstimatedStatistic:
    """A coefficient with the outer bounds of its interval by the jackknife and of that by its agreement.

    Args:
        estimated: the coefficient; it has a value.
        without: the coefficient of the kept rows.
        by_agreement: the bounds of `mapped_bounds`; None for the jackknife alone.
        codes: the question of each row, from 0.
        groups: how many questions there are.
        level: the level of the interval.
    """
    value = estimated.value
    assert value is not None
    error, reason = jackknife_error(lambda kept: without(kept).value, codes, groups)
    if reason == "no_spread" and by_agreement is not None:
        reason = None  # the bounds by agreement never shrink to nothing
    if error is None or reason is not None:
        return EstimatedStatistic(estimated.n, groups, value, reason=reason, error=error)
    low, high = fisher_bounds(value, error, t_quantile(level, groups - 1))
    if by_agreement is None and high <= low:
        return EstimatedStatistic(estimated.n, groups, value, reason="no_spread", error=error)
    if by_agreement is not None:
        low, high = min(low, by_agreement[0]), max(high, by_agreement[1])
    method = "jackknife_z" if by_agreement is None else "jackknife_wilson"
    interval = Interval(level, min(low, value), max(high, value), method, too_few=groups < FEW)
    return EstimatedStatistic(estimated.n, groups, value, interval, error=error)


def mapped_bounds(agreement: Floats, disagreement: float, codes: Whole, level: float) -> tuple[float, float] | None:
    """The bounds of the mean agreement A of rows on 0..1, brought through 1 - (1 - A) / E with the expected `disagreement`
    E above 0; cut at -1. None for a single question."""
    interval = estimate_mean(agreement, codes, low=0.0, high=1.0, level=level).interval
    if interval is None:
        return None
    return max(-1.0, 1 - (1 - interval.low) / disagreement), 1 - (1 - interval.high) / disagreement
