"""The share of answers that people would pass, from a judge's verdicts and labels of other data.

Where the labels are a random part of the same cases, `corrected_mean` is narrower and does not need what is needed here: that
the judge errs on these cases as often as it did on the labelled ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.detection import estimate_sensitivity, estimate_specificity
from ragpipe.stats.intervals import FEW, Estimate, Interval, clustering, design_effect, estimate_rate
from ragpipe.stats.jackknife import questions_of
from ragpipe.stats.student_t import normal_quantile

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

LEAST_SUM_OF_BOUNDS = 1.3
"""What the lower bounds of sensitivity and specificity must add up to; a judge that guesses has 1."""


@dataclass(frozen=True, slots=True)
class RoganGladen:
    """The corrected share of `n` verdicts, by the sensitivity and specificity that `labels` labels of other data show.

    `judge` is the raw share of positive verdicts. `reason` says why there is no `value`: `no_values`, `one_class` (the labels
    are of one class), or `weak_judge` (the lower bounds of sensitivity and specificity add up to less than 1.3).
    """

    n: int
    labels: int
    judge: Estimate
    sensitivity: Estimate
    specificity: Estimate
    value: float | None = None
    interval: Interval | None = None
    reason: str | None = None


def rogan_gladen(
    verdicts: Floats,
    labels: Floats,
    label_verdicts: Floats,
    questions: Whole | None = None,
    *,
    label_questions: Whole | None = None,
    level: float = 0.95,
) -> RoganGladen:
    """The share of positive answers among the judged, corrected by how often the judge is right on other, labelled data.

    Args:
        verdicts: the judge's verdicts, 0 or 1, of the cases whose share is asked for.
        labels: people's labels, 0 or 1, of other data.
        label_verdicts: the judge's verdicts of the labelled data.
        questions: the number of each judged case's question; None where all are independent.
        label_questions: the number of each labelled case's question.
        level: the level of the interval.

    value = (share of positive verdicts + specificity - 1) / (sensitivity + specificity - 1), cut at 0 and 1 (Rogan and Gladen
    1978), with the interval of Lang and Reiczigel 2014, "Confidence limits for prevalence of disease adjusted for
    estimated diagnostic sensitivity and specificity", method `lang_reiczigel`. Where questions repeat, each of the three
    rates counts as many rows as its design effect leaves, at most as many as there are.
    """
    share = estimate_rate(verdicts, questions, level=level)
    rates = (
        estimate_sensitivity(labels, label_verdicts, label_questions, level=level),
        estimate_specificity(labels, label_verdicts, label_questions, level=level),
    )
    reason = _refusal(share, *rates)
    refused = RoganGladen(len(verdicts), len(labels), share, *rates, reason=reason)
    if reason is not None or share.mean is None or rates[0].mean is None or rates[1].mean is None:
        return refused
    codes, _ = questions_of(len(labels), label_questions)
    right, is_positive = (label_verdicts == labels).astype(np.float64), labels == 1
    counts = (
        _rows(verdicts, questions),
        _rows(right[is_positive], codes[is_positive]),
        _rows(right[~is_positive], codes[~is_positive]),
    )
    value = (share.mean + rates[1].mean - 1) / (rates[0].mean + rates[1].mean - 1)
    value = min(max(value, 0.0), 1.0)
    low, high = _bounds((share.mean, rates[0].mean, rates[1].mean), counts, normal_quantile(level))
    interval = Interval(level, min(low, value), max(high, value), "lang_reiczigel", too_few=share.clusters < FEW)
    return RoganGladen(len(verdicts), len(labels), share, *rates, value, interval)


def _refusal(share: Estimate, sensitivity: Estimate, specificity: Estimate) -> str | None:
    if share.mean is None:
        return "no_values"
    if sensitivity.mean is None or specificity.mean is None:
        return "one_class"
    bounds = [rate.interval.low if rate.interval else 0.0 for rate in (sensitivity, specificity)]
    return "weak_judge" if sum(bounds) < LEAST_SUM_OF_BOUNDS else None


def _rows(hits: Floats, questions: Whole | None) -> float:
    """Rows of a rate: all of them, or as many as its questions are worth."""
    codes, groups = clustering(len(hits), questions)
    if codes is None or groups < 2:
        return float(len(hits))
    return len(hits) / max(1.0, design_effect(hits, codes, groups))


def _bounds(rates: tuple[float, float, float], counts: tuple[float, float, float], z: float) -> tuple[float, float]:
    """The bounds of Lang and Reiczigel from the share of positive verdicts, sensitivity and specificity, and their rows.

    The share gets z^2/2 rows of each kind more, the two others one of each kind: p~, s~, t~ of n~, n_s~, n_t~ rows. With
    J = s~ + t~ - 1 and P~ = (p~ + t~ - 1) / J: P~ + 2 z^2 (P~ s~(1-s~)/n_s~ - (1-P~) t~(1-t~)/n_t~) +- z/J * root of
    p~(1-p~)/n~ + P~^2 s~(1-s~)/n_s~ + (1-P~)^2 t~(1-t~)/n_t~, cut at 0 and 1.
    """
    all_rows, of_positive, of_negative = counts[0] + z * z, counts[1] + 2, counts[2] + 2
    share = (counts[0] * rates[0] + z * z / 2) / all_rows
    right = (counts[1] * rates[1] + 1) / of_positive, (counts[2] * rates[2] + 1) / of_negative
    youden = right[0] + right[1] - 1
    centre = (share + right[1] - 1) / youden
    spreads = right[0] * (1 - right[0]) / of_positive, right[1] * (1 - right[1]) / of_negative
    shift = 2 * z * z * (centre * spreads[0] - (1 - centre) * spreads[1])
    error = math.sqrt(share * (1 - share) / all_rows + centre**2 * spreads[0] + (1 - centre) ** 2 * spreads[1]) / youden
    return max(0.0, centre + shift - z * error), min(1.0, centre + shift + z * error)
