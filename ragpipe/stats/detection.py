"""How well scores or verdicts tell two classes of answers apart, compared with labels: AUROC, sensitivity, specificity,
balanced accuracy. Arrays in, numbers out.

Labels are 1 for the positive class (say, the answer is faithful) and 0 for the negative one; verdicts likewise. A higher
score must speak for the positive class.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement_coefficients import Coefficient, check_pairs, ranks
from ragpipe.stats.intervals import FEW, Estimate, Interval, estimate_mean, estimate_rate, wilson_bounds
from ragpipe.stats.jackknife import HAIR, EstimatedStatistic, jackknife_error, questions_of
from ragpipe.stats.student_t import t_quantile

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def auroc(labels: Floats, scores: Floats) -> Coefficient:
    """Probability, 0 to 1, that a positive row scores higher than a negative one, equal scores counting one half.

    The area under the receiver operating characteristic curve, Mann and Whitney's U over the number of pairs (Hanley and
    McNeil 1982). Not defined where the labels are of one class (`one_class`).
    """
    n = len(labels)
    if (reason := _undefined(labels, scores)) is not None:
        return Coefficient(n, reason=reason)
    return Coefficient(n, float(np.mean(_placements(labels, scores)[labels == 1])))


def sensitivity(labels: Floats, verdicts: Floats) -> Coefficient:
    """Share of the positive rows whose verdict is positive, 0 to 1 (recall). Without a positive row: `one_class`."""
    return _share_right(labels, verdicts, 1.0)


def specificity(labels: Floats, verdicts: Floats) -> Coefficient:
    """Share of the negative rows whose verdict is negative, 0 to 1. Without a negative row: `one_class`."""
    return _share_right(labels, verdicts, 0.0)


def balanced_accuracy(labels: Floats, verdicts: Floats) -> Coefficient:
    """Mean of sensitivity and specificity, 0 to 1; a judge that always says the same has 1/2 (Brodersen et al. 2010).

    Not defined where the labels are of one class (`one_class`).
    """
    right = sensitivity(labels, verdicts), specificity(labels, verdicts)
    if right[0].value is None or right[1].value is None:
        return Coefficient(len(labels), reason=right[0].reason or right[1].reason)
    return Coefficient(len(labels), (right[0].value + right[1].value) / 2)


def estimate_auroc(
    labels: Floats, scores: Floats, questions: Whole | None = None, *, level: float = 0.95
) -> EstimatedStatistic:
    """AUROC with its interval, for rows that may share a question.

    The placement v of a row is the share of the other class that it beats (equal scores one half), u = (v - AUROC) / rows of
    its class, and Var = G/(G-1) * sum over G questions of (sum of u)^2 (Obuchowski 1997, "Nonparametric analysis of
    clustered ROC curve data"). The interval is Wilson's with min(A(1-A)/Var, n) rows and Student's t, degrees of
    freedom max(2, min(G, rows of either class) - 1), method `wilson_obuchowski`; where Var is 0 it has as many rows
    as the smaller class. It never leaves 0 to 1 and never has a width of zero.

    No interval where a class has one row (`one_of_a_class`) and for one question. `error` is the root of Var.
    """
    codes, groups = questions_of(len(labels), questions)
    area = auroc(labels, scores)
    if area.value is None:
        return EstimatedStatistic(area.n, groups, reason=area.reason)
    value, n = area.value, area.n
    positive = int(np.sum(labels))
    smaller = min(positive, n - positive)
    if groups < 2 or smaller < 2:
        return EstimatedStatistic(n, groups, value, reason="one_sample" if groups < 2 else "one_of_a_class")
    sizes = np.where(labels == 1, positive, n - positive)
    sums = np.bincount(codes, weights=(_placements(labels, scores) - value) / sizes, minlength=groups)
    variance = groups / (groups - 1) * math.fsum((sums * sums).tolist())
    rows = min(value * (1 - value) / variance, n) if variance > HAIR and 0 < value < 1 else smaller
    t = t_quantile(level, max(2, min(groups, smaller) - 1))
    low, high = wilson_bounds(value, rows, t)
    interval = Interval(level, min(low, value), max(high, value), "wilson_obuchowski", too_few=groups < FEW)
    return EstimatedStatistic(n, groups, value, interval, error=math.sqrt(variance))


def estimate_sensitivity(
    labels: Floats, verdicts: Floats, questions: Whole | None = None, *, level: float = 0.95
) -> Estimate:
    """Sensitivity with its interval: `estimate_rate` over the positive rows. None without them (`no_values`)."""
    return _estimate_share_right(labels, verdicts, questions, 1.0, level)


def estimate_specificity(
    labels: Floats, verdicts: Floats, questions: Whole | None = None, *, level: float = 0.95
) -> Estimate:
    """Specificity with its interval: `estimate_rate` over the negative rows. None without them (`no_values`)."""
    return _estimate_share_right(labels, verdicts, questions, 0.0, level)


def estimate_balanced_accuracy(
    labels: Floats, verdicts: Floats, questions: Whole | None = None, *, level: float = 0.95
) -> EstimatedStatistic:
    """Balanced accuracy with its interval, the outer bounds of two, cut at 0 and 1, method `jackknife_wilson`.

    One is value +- t(G-1) * the jackknife's standard error over G questions. It shrinks where a class is small or hardly an
    error is in the sample; so the bounds of sensitivity and specificity (`estimate_mean` on 0 to 1) are put together
    beside it: half the root of the sum of their squared distances from the rates (Zou and Donner 2008).

    No interval for one question, and where all rows of a class are of one question (`rests_on_one_question`).
    """
    codes, groups = questions_of(len(labels), questions)
    accuracy = balanced_accuracy(labels, verdicts)
    if accuracy.value is None:
        return EstimatedStatistic(accuracy.n, groups, reason=accuracy.reason)
    error, reason = jackknife_error(lambda kept: balanced_accuracy(labels[kept], verdicts[kept]).value, codes, groups)
    if error is None:
        return EstimatedStatistic(accuracy.n, groups, accuracy.value, reason=reason)
    half = t_quantile(level, groups - 1) * error
    of_classes = [_mean_right(labels, verdicts, codes, of_class, level) for of_class in (1.0, 0.0)]
    below = max(half, math.hypot(*(rate - low for rate, low, _ in of_classes)) / 2)
    above = max(half, math.hypot(*(high - rate for rate, _, high in of_classes)) / 2)
    bounds = max(0.0, accuracy.value - below), min(1.0, accuracy.value + above)
    interval = Interval(level, *bounds, "jackknife_wilson", too_few=groups < FEW)
    return EstimatedStatistic(accuracy.n, groups, accuracy.value, interval, error=error)


def _mean_right(
    labels: Floats, verdicts: Floats, codes: Whole, of_class: float, level: float
) -> tuple[float, float, float]:
    """Share of right verdicts of a class with the bounds of the rule on a scale; 0 to 1 where all its rows are of one question."""
    right = estimate_mean(_right(labels, verdicts, of_class), codes[labels == of_class], low=0.0, high=1.0, level=level)
    rate = right.mean or 0.0
    return (rate, right.interval.low, right.interval.high) if right.interval else (rate, 0.0, 1.0)


def _placements(labels: Floats, scores: Floats) -> Floats:
    """The share of the rows of the other class that a row beats, equal scores counting one half: what a positive row
    beats scores lower, what a negative row beats scores higher."""
    is_positive = labels == 1
    positive = int(np.sum(is_positive))
    among_all = ranks(scores)
    placements = np.empty(len(labels))
    placements[is_positive] = (among_all[is_positive] - ranks(scores[is_positive])) / (len(labels) - positive)
    placements[~is_positive] = 1 - (among_all[~is_positive] - ranks(scores[~is_positive])) / positive
    return placements


def _undefined(labels: Floats, scores: Floats) -> str | None:
    check_pairs(labels, scores)
    _check_binary(labels, "label")
    if not len(labels):
        return "no_pairs"
    return "one_class" if np.all(labels == labels[0]) else None


def _share_right(labels: Floats, verdicts: Floats, of_class: float) -> Coefficient:
    n = len(labels)
    right = _right(labels, verdicts, of_class)
    if not len(right):
        return Coefficient(n, reason="one_class" if n else "no_pairs")
    return Coefficient(n, float(np.mean(right)))


def _estimate_share_right(
    labels: Floats, verdicts: Floats, questions: Whole | None, of_class: float, level: float
) -> Estimate:
    right = _right(labels, verdicts, of_class)
    codes, _ = questions_of(len(labels), questions)
    return estimate_rate(right, codes[labels == of_class], level=level)


def _right(labels: Floats, verdicts: Floats, of_class: float) -> Floats:
    """1 where the verdict of a row of the class is right, else 0."""
    check_pairs(labels, verdicts)
    _check_binary(labels, "label")
    _check_binary(verdicts, "verdict")
    right: Floats = np.where(verdicts[labels == of_class] == of_class, 1.0, 0.0)
    return right


def _check_binary(values: Floats, kind: str) -> None:
    if not np.all((values == 0) | (values == 1)):
        odd = float(values[(values != 0) & (values != 1)][0])
        raise ValueError(f"a {kind} is 0 or 1, found {odd:g}")
