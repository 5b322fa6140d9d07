"""The mean of a judge's scores, corrected by people's labels of some of the same cases.

A judge that is too lenient moves every mean, and no interval of its scores shows it. Labels of a random part of the cases
measure how far it is off, and its scores of all cases make the labels go further: the prediction-powered, weighted
regression estimator (Angelopoulos, Duchi and Zrnic 2023, "PPI++"; Cochran 1977, chapter 7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement import HAIR, questions_of
from ragpipe.stats.intervals import Estimate, Interval, check_scale, estimate_mean, t_quantile, wilson_bounds

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

FEWEST_LABELS = 30
FEWEST_LABELLED_QUESTIONS = 20
_MOST_LEVERAGE = 0.9
_ENOUGH_QUESTIONS = 6  # questions that carry the residuals: with fewer, the variance is widened


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedMean(Estimate):
    """The corrected mean of `n` cases of `clusters` questions; `labels` of them, of `labelled_questions`, have a label.

    `judge` is the raw mean of the judge's scores of all cases with its interval. `slope` is by how much a label rises with the judge's score, 0 to 1: 0 where the
    judge says nothing about the labels. `error` is the standard error on the native scale, before it is widened.
    `effective_rows` and `degrees` are the rows and the degrees of freedom that went into Wilson's formula.

    `reason` says why there is no `value`: `few_labels` (under 30), `few_labelled_questions` (under 20),
    `stratum_without_labels` or `stratum_with_one_label` (of several cases).
    """

    labels: int
    labelled_questions: int
    judge: Estimate
    slope: float | None = None
    effective_rows: float | None = None
    degrees: int | None = None


@dataclass(frozen=True, slots=True)
class _Cases:
    """Scores and labels on 0..1, questions and strata from 0; `labelled` are the places of the cases with a label."""

    scores: Floats
    codes: Whole
    groups: int
    strata: Whole
    labelled: Whole
    labels: Floats

    @property
    def labelled_questions(self) -> int:
        return len(np.unique(self.codes[self.labelled]))

    @property
    def weights(self) -> Floats:
        """How many cases of its stratum each label stands for."""
        of_all, of_labels = self.counts
        weights: Floats = (of_all / np.maximum(of_labels, 1))[self.strata[self.labelled]]
        return weights

    @property
    def counts(self) -> tuple[Whole, Whole]:
        of_all = np.bincount(self.strata)
        return of_all, np.bincount(self.strata[self.labelled], minlength=len(of_all))


@dataclass(frozen=True, slots=True)
class _Fit:
    """What the estimator gives on 0..1."""

    value: float
    slope: float
    variance: float
    interval: Interval
    rows: float
    degrees: int


def corrected_mean(
    judged: Floats,
    labels: Floats,
    questions: Whole | None = None,
    *,
    strata: Whole | None = None,
    low: float,
    high: float,
    level: float = 0.95,
    only_these: bool = False,
) -> CorrectedMean:
    """The mean that people's labels of all cases would have, from a judge's scores of all and labels of some.

    Args:
        judged: the judge's scores, one per case.
        labels: people's labels on the same scale, one per case; NaN where a case has none. Which cases have one must be
            random within a stratum.
        questions: the number of each case's question; None where all cases are independent.
        strata: the number of each case's stratum, where labels were drawn with different probabilities; None for one.
        low, high: the ends of the scale. A score or a label off it is a ValueError.
        level: the level of the interval.
        only_these: whether the mean of just these cases is meant, not that of all cases like them. Questions do not
            matter to the interval then.

    With values on 0..1, n labels of N cases, w = cases / labels of a label's stratum:
    slope L of the labels on the scores, weighted by w, cut at 0 and 1; e = label - L * score;
    value = L * mean score of all + sum over strata of (its share of the cases) * (its mean e), cut at 0 and 1.
    Its variance goes by questions over all cases, labelled or not, with residuals as if each label were left out of the
    fit; few questions that carry them widen it, so it never shrinks to nothing. Interval: Wilson's with
    value * (1 - value) / variance rows and t(labelled questions - 2), method `corrected_wilson`.
    Under 30 labels or 20 labelled questions there is no value, only a `reason`.
    """
    cases = _cases(judged, labels, questions, strata, low, high)
    raw = estimate_mean(judged, cases.codes, low=low, high=high, level=level)
    n, reason = len(cases.labelled), _refusal(cases)
    refused = CorrectedMean(
        len(judged), cases.groups, reason=reason, labels=n, labelled_questions=cases.labelled_questions, judge=raw
    )
    if reason is not None:
        return refused
    fit, span = _fit(cases, level, only_these=only_these), high - low
    return replace(
        refused,
        value=low + fit.value * span,
        interval=replace(fit.interval, low=low + fit.interval.low * span, high=low + fit.interval.high * span),
        slope=fit.slope,
        error=math.sqrt(fit.variance) * span,
        effective_rows=fit.rows,
        degrees=fit.degrees,
    )


def _cases(judged: Floats, labels: Floats, questions: Whole | None, strata: Whole | None, low: float, high: float) -> _Cases:
    if len(judged) != len(labels):
        raise ValueError(f"{len(judged)} scores against {len(labels)} labels: they must be of the same cases")
    if not np.isfinite(judged).all():
        raise ValueError("a case without a finite score cannot be corrected: leave it out")
    labelled = np.flatnonzero(~np.isnan(labels))
    check_scale(judged, low, high)
    check_scale(labels[labelled], low, high)
    codes, groups = questions_of(len(judged), questions)
    numbers = np.zeros(len(judged), dtype=np.int64) if strata is None else questions_of(len(judged), strata)[0]
    span = high - low
    return _Cases((judged - low) / span, codes, groups, numbers, labelled, (labels[labelled] - low) / span)


def _refusal(cases: _Cases) -> str | None:
    if len(cases.labelled) < FEWEST_LABELS:
        return "few_labels"
    if cases.labelled_questions < FEWEST_LABELLED_QUESTIONS:
        return "few_labelled_questions"
    of_all, of_labels = cases.counts
    if np.any(of_labels == 0):
        return "stratum_without_labels"
    return "stratum_with_one_label" if np.any((of_labels == 1) & (of_all > 1)) else None


def _fit(cases: _Cases, level: float, *, only_these: bool) -> _Fit:
    """The estimator on 0..1: theta, Var and the interval of docs/statistics.md."""
    n, strata = len(cases.labelled), cases.strata[cases.labelled]
    slope, leverage = _regression(cases)
    errors = cases.labels - slope * cases.scores[cases.labelled]
    of_all, of_labels = cases.counts
    means = np.bincount(strata, weights=errors, minlength=len(of_all)) / np.maximum(of_labels, 1)
    total = len(cases.scores)
    mean_error, mean_score = _sum(of_all / total * means), _sum(cases.scores) / total
    value = min(max(slope * mean_score + mean_error, 0.0), 1.0)
    residuals = errors - means[strata]
    left_out = residuals / (1 - leverage) * math.sqrt((n - 1) / n)
    if only_these:
        variance, widening, degrees = _variance_of_these(cases, left_out), 1.0, n - 2
        unseen = 1 - n / total
    else:
        shifts = (slope * (cases.scores - mean_score) + means[cases.strata] - mean_error) / total
        shifts[cases.labelled] += cases.weights * left_out / total
        sums: Floats = np.bincount(cases.codes, weights=shifts, minlength=cases.groups).astype(np.float64)
        variance = cases.groups / (cases.groups - 1) * _sum(sums * sums)
        widening = max(0.0, 1 - _carrying_questions(cases, residuals) / _ENOUGH_QUESTIONS)
        degrees, unseen = cases.labelled_questions - 2, 1.0
    widened = (n * n * variance + widening * unseen) / (n + widening) ** 2
    spread = value * (1 - value)
    rows = spread / widened if min(spread, widened) > HAIR else float(n)
    if widened <= HAIR:  # every case has a label, and no others are meant: nothing is left to chance
        rows = 1 / HAIR
    bottom, top = wilson_bounds(value, rows, t_quantile(level, degrees))
    interval = Interval(level, min(bottom, value), max(top, value), "corrected_wilson", too_few=False)
    return _Fit(value, slope, variance, interval, rows, degrees)


def _regression(cases: _Cases) -> tuple[float, Floats]:
    """The weighted slope of the labels on the judge's scores, cut at 0 and 1 (0 where the scores never vary), and the
    leverage q of each label, at most .9: a residual over 1 - q is the one from a fit without that label."""
    weights, scores = cases.weights, cases.scores[cases.labelled]
    total = _sum(weights)
    from_mean = scores - _sum(weights * scores) / total
    squares = _sum(weights * from_mean**2)
    if squares <= HAIR:
        return 0.0, np.minimum(weights / total, _MOST_LEVERAGE)
    slope = _sum(weights * from_mean * (cases.labels - _sum(weights * cases.labels) / total)) / squares
    return min(max(slope, 0.0), 1.0), np.minimum(weights / total + weights * from_mean**2 / squares, _MOST_LEVERAGE)


def _variance_of_these(cases: _Cases, left_out: Floats) -> float:
    """Variance where the cases are all there are: a case that has a label adds none. Without strata
    (1 - n/N) * sum of squared residuals / (n (n-1)); with strata the sum over them (Cochran 1977, 5.6)."""
    of_labels = cases.counts[1][cases.strata[cases.labelled]]
    weights = cases.weights
    correction = of_labels / np.maximum(of_labels - 1, 1)
    return _sum(weights * (weights - 1) * correction * left_out**2) / len(cases.scores) ** 2


def _carrying_questions(cases: _Cases, residuals: Floats) -> float:
    """How many questions carry the residuals: (sum of a^2)^2 / sum of a^4 over their sums a; 0 without a residual."""
    sums = np.bincount(cases.codes[cases.labelled], weights=cases.weights * residuals, minlength=cases.groups)
    squares = (sums / len(cases.scores)) ** 2
    return _sum(squares) ** 2 / _sum(squares * squares) if _sum(squares) > HAIR**2 else 0.0


def _sum(values: Floats) -> float:
    # exact, so that the order of the cases and the processor do not matter
    return math.fsum(values.tolist())
