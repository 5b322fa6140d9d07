"""How well scores or verdicts tell two classes of answers apart, compared with labels: AUROC, sensitivity, specificity,
balanced accuracy. Arrays in, numbers out.

Labels are 1 for the positive class (say, the answer is faithful) and 0 for the negative one; verdicts likewise. A higher
score must speak for the positive class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement import (
    HAIR,
    Coefficient,
    agreement_of_rows,
    check_pairs,
    estimate_kappa,
    jackknife_error,
    questions_of,
    ranks,
)
from ragpipe.stats.intervals import (
    FEW,
    POWER,
    Estimate,
    Interval,
    clustering,
    design_effect,
    estimate_mean,
    estimate_rate,
    normal_quantile,
    t_quantile,
    wilson_bounds,
)

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def auroc(labels: Floats, scores: Floats) -> Coefficient:
    """Probability, 0 to 1, that a positive row scores higher than a negative one, equal scores counting one half.

    The area under the receiver operating characteristic curve, Mann and Whitney's U over the number of pairs (Hanley and
    McNeil 1982). Not defined where the labels are of one class (`one_class`).
    """
    n = len(labels)
    check_pairs(labels, scores)
    _check_binary(labels, "label")
    if not n or np.all(labels == labels[0]):
        return Coefficient(n, reason="one_class" if n else "no_pairs")
    return Coefficient(n, float(np.mean(_placements(labels, scores)[labels == 1])))


def balanced_accuracy(labels: Floats, verdicts: Floats) -> Coefficient:
    """Mean of sensitivity and specificity, 0 to 1; a judge that always says the same has 1/2 (Brodersen et al. 2010).

    Not defined where the labels are of one class (`one_class`).
    """
    right = [_right(labels, verdicts, of_class) for of_class in (1.0, 0.0)]
    if not all(map(len, right)):
        return Coefficient(len(labels), reason="one_class" if len(labels) else "no_pairs")
    return Coefficient(len(labels), (float(np.mean(right[0])) + float(np.mean(right[1]))) / 2)


def estimate_auroc(labels: Floats, scores: Floats, questions: Whole | None = None, *, level: float = 0.95) -> Estimate:
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
        return Estimate(area.n, groups, reason=area.reason)
    value, n = area.value, area.n
    positive = int(np.sum(labels))
    smaller = min(positive, n - positive)
    if groups < 2 or smaller < 2:
        return Estimate(n, groups, value, reason="one_sample" if groups < 2 else "one_of_a_class")
    sizes = np.where(labels == 1, positive, n - positive)
    sums = np.bincount(codes, weights=(_placements(labels, scores) - value) / sizes, minlength=groups)
    variance = groups / (groups - 1) * math.fsum((sums * sums).tolist())
    rows = min(value * (1 - value) / variance, n) if variance > HAIR and 0 < value < 1 else smaller
    t = t_quantile(level, max(2, min(groups, smaller) - 1))
    low, high = wilson_bounds(value, rows, t)
    interval = Interval(level, min(low, value), max(high, value), "wilson_obuchowski", too_few=groups < FEW)
    return Estimate(n, groups, value, interval, error=math.sqrt(variance))


def estimate_sensitivity(labels: Floats, verdicts: Floats, questions: Whole | None = None, *, level: float = 0.95) -> Estimate:
    """Share of the positive rows whose verdict is positive, 0 to 1 (recall), with the interval of `estimate_rate`. None without a
    positive row (`no_values`)."""
    codes, _ = questions_of(len(labels), questions)
    return estimate_rate(_right(labels, verdicts, 1.0), codes[labels == 1], level=level)


def estimate_specificity(labels: Floats, verdicts: Floats, questions: Whole | None = None, *, level: float = 0.95) -> Estimate:
    """Share of the negative rows whose verdict is negative, 0 to 1, with the interval of `estimate_rate`. None without a negative row
    (`no_values`)."""
    codes, _ = questions_of(len(labels), questions)
    return estimate_rate(_right(labels, verdicts, 0.0), codes[labels == 0], level=level)


def estimate_balanced_accuracy(
    labels: Floats, verdicts: Floats, questions: Whole | None = None, *, level: float = 0.95
) -> Estimate:
    """Balanced accuracy with its interval, the outer bounds of two, cut at 0 and 1, method `jackknife_wilson`.

    One is value +- t(G-1) * the jackknife's standard error over G questions. It shrinks where a class is small or hardly an
    error is in the sample; so the bounds of sensitivity and specificity (`estimate_mean` on 0 to 1) are put together
    beside it: half the root of the sum of their squared distances from the rates (Zou and Donner 2008).

    No interval for one question, and where all rows of a class are of one question (`rests_on_one_question`).
    """
    codes, groups = questions_of(len(labels), questions)
    accuracy = balanced_accuracy(labels, verdicts)
    if accuracy.value is None:
        return Estimate(accuracy.n, groups, reason=accuracy.reason)
    error, reason = jackknife_error(lambda kept: balanced_accuracy(labels[kept], verdicts[kept]).value, codes, groups)
    if error is None:
        return Estimate(accuracy.n, groups, accuracy.value, reason=reason)
    half = t_quantile(level, groups - 1) * error
    of_classes = [_mean_right(labels, verdicts, codes, of_class, level) for of_class in (1.0, 0.0)]
    below = max(half, math.hypot(*(rate - low for rate, low, _ in of_classes)) / 2)
    above = max(half, math.hypot(*(high - rate for rate, _, high in of_classes)) / 2)
    bounds = max(0.0, accuracy.value - below), min(1.0, accuracy.value + above)
    interval = Interval(level, *bounds, "jackknife_wilson", too_few=groups < FEW)
    return Estimate(accuracy.n, groups, accuracy.value, interval, error=error)


def _mean_right(labels: Floats, verdicts: Floats, codes: Whole, of_class: float, level: float) -> tuple[float, float, float]:
    """Share of right verdicts of a class with the bounds of the rule on a scale; 0 to 1 where all its rows are of one question."""
    right = estimate_mean(_right(labels, verdicts, of_class), codes[labels == of_class], low=0.0, high=1.0, level=level)
    rate = right.value or 0.0
    return (rate, right.interval.low, right.interval.high) if right.interval else (rate, 0.0, 1.0)


def _placements(labels: Floats, scores: Floats) -> Floats:
    """The share of the rows of the other class that a row beats, equal scores counting one half."""
    is_positive = labels == 1
    positive = int(np.sum(is_positive))
    among_all = ranks(scores)
    placements = np.empty(len(labels))
    placements[is_positive] = (among_all[is_positive] - ranks(scores[is_positive])) / (len(labels) - positive)
    placements[~is_positive] = 1 - (among_all[~is_positive] - ranks(scores[~is_positive])) / positive
    return placements


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


TARGET = 0.8
"""Above it agreement counts as almost perfect (Landis and Koch 1977)."""
FEWEST_OUTSIDE = 5
"""With fewer labels outside the largest class kappa says next to nothing."""


@dataclass(frozen=True, slots=True)
class KappaVerdict:
    """Whether kappa lies above a target.

    `passed`: its whole interval does. `failed`: its whole interval lies below. `not_enough_labels`: neither.
    `labels_needed`: with about so many rows of this kind a true kappa of this value would pass in 8 of 10 samples; None
    where nothing is needed, where kappa is not above the target (more labels would not help) and where `reason` says why
    there is nothing to decide by: `few_outside_largest_class` (report the mean agreement and AC1 instead), or what
    `Estimate` names.
    """

    state: Literal["passed", "failed", "not_enough_labels"]
    kappa: Estimate
    labels_needed: int | None = None
    reason: str | None = None


def decide_kappa(
    labels: Floats,
    verdicts: Floats,
    questions: Whole | None = None,
    *,
    scale: tuple[float, float] | None = None,
    target: float = TARGET,
    level: float = 0.95,
) -> KappaVerdict:
    """Whether kappa of people's labels and a judge's verdicts lies above `target`.

    Args:
        labels: the labels by people, one per row.
        verdicts: the judge's verdicts of the same rows.
        questions: the number of each row's question; None where all rows are independent.
        scale: the ends of the scale of grades, for quadratically weighted kappa; None for unordered classes.
        target: what kappa has to exceed, between 0 and 1.
        level: the level of the interval.

    Raises ValueError for a target that is not between 0 and 1, and for rows that `estimate_kappa` refuses.
    """
    if not 0 < target < 1:
        raise ValueError(f"a target of kappa lies between 0 and 1, found {target:g}")
    kappa = estimate_kappa(labels, verdicts, questions, scale=scale, level=level)
    outside = len(labels) - max(np.unique(labels, return_counts=True)[1], default=0)
    reason = kappa.reason or ("few_outside_largest_class" if outside < FEWEST_OUTSIDE else None)
    if kappa.interval is None or reason is not None:
        return KappaVerdict("not_enough_labels", kappa, reason=reason)
    if kappa.interval.low > target:
        return KappaVerdict("passed", kappa)
    if kappa.interval.high < target:
        return KappaVerdict("failed", kappa)
    agreement, by_chance = agreement_of_rows(labels, verdicts, None if scale is None else scale[1] - scale[0])
    effect = design_effect(agreement, *clustering(len(labels), questions))
    needed = _labels_needed(kappa, float(np.mean(agreement)), by_chance, effect, target, level)
    return KappaVerdict("not_enough_labels", kappa, needed)


def _labels_needed(
    kappa: Estimate, agreement: float, by_chance: float, effect: float, target: float, level: float
) -> int | None:
    """The larger of what both intervals of kappa need: after Fisher's z by the jackknife, and with the design effect by the mean agreement,
    whose limit at the target is 1 - (1 - target) * E. None where kappa is not above the target."""
    value, error = kappa.value, kappa.error
    limit = 1 - (1 - target) * by_chance
    if value is None or error is None or value <= target or agreement <= limit:
        return None
    z, of_power = normal_quantile(level), normal_quantile(2 * POWER - 1)
    room = 1 - value * value
    by_jackknife = 0.0
    if room > 0 and error > 0:
        by_jackknife = kappa.n * ((z + of_power) * error / room / (math.atanh(value) - math.atanh(target))) ** 2
    spreads = z * math.sqrt(limit * (1 - limit)), of_power * math.sqrt(agreement * (1 - agreement))
    by_mean = effect * (sum(spreads) / (agreement - limit)) ** 2
    return max(kappa.n + 1, math.ceil(max(by_jackknife, by_mean)))
