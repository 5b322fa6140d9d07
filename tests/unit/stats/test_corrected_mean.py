"""Corrected means: worked examples, ppi-python and statsmodels, and what always holds."""

import math

import numpy as np
import pytest
from scipy import stats

from ragpipe.stats.corrected_mean import corrected_mean
from ragpipe.stats.intervals import Interval, estimate_mean

NONE = math.nan


def repeated(*rows: tuple[float, float, int]) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of (score, label, how many cases)."""
    return tuple(np.array([row[i] for row in rows for _ in range(row[2])]) for i in (0, 1))  # type: ignore[return-value]


def wilson(mean: float, rows: float, df: int) -> tuple[float, float]:
    """The roots of (mean - p)^2 = t^2 p (1 - p) / rows."""
    square = float(stats.t.ppf(0.975, df)) ** 2 / rows
    roots = np.roots([1 + square, -(2 * mean + square), mean * mean])
    return float(min(roots)), float(max(roots))


def bounds(interval: Interval | None) -> tuple[float, float]:
    return interval.low, interval.high


JUDGED, LABELS = repeated((1, 1, 10), (1, 0, 5), (0, 1, 5), (0, 0, 10), (1, NONE, 24), (0, NONE, 6))
"""30 of 60 cases have a label. Slope (10 - 5 - 5 + 10) / 30 = 1/3; means of the labelled cases 1/2, of all scores 39/60."""


def test_half_of_the_cases_labelled_by_hand() -> None:
    """Value 1/3 * .65 + (1/2 - 1/3 * 1/2) = .55. Residuals 1/3, -2/3, 2/3, -1/3; leverage 1/30 + (1/4) / (30/4) = 1/15."""
    result = corrected_mean(JUDGED, LABELS, low=0, high=1)
    assert (result.n, result.clusters, result.labels, result.labelled_questions) == (60, 60, 30, 30)
    assert (result.value, result.slope) == (pytest.approx(0.55), pytest.approx(1 / 3))
    assert result.judge.value == pytest.approx(0.65)
    left_out = 15 / 14 * math.sqrt(29 / 30)
    shifts = [
        ((score - 0.65) / 3 + weight * residual * left_out) / 60
        for score, weight, residual, count in (
            (1, 2, 1 / 3, 10), (1, 2, -2 / 3, 5), (0, 2, 2 / 3, 5), (0, 2, -1 / 3, 10), (1, 0, 0, 24), (0, 0, 0, 6),
        )
        for _ in range(count)
    ]  # fmt: skip
    variance = 60 / 59 * sum(shift**2 for shift in shifts)
    # 20 squares of 1/9 and 10 of 4/9 carry it: (60/9)^2 / (180/81) = 20 questions, more than 6
    assert result.error == pytest.approx(math.sqrt(variance))
    assert (result.effective_rows, result.degrees) == (pytest.approx(0.55 * 0.45 / variance), 28)
    assert bounds(result.interval) == pytest.approx(wilson(0.55, 0.55 * 0.45 / variance, 28))


def test_cases_of_a_question_count_together_labelled_or_not() -> None:
    """Two cases per question: the labelled with each other, in order, and so the others."""
    questions = np.arange(60) // 2
    result = corrected_mean(JUDGED, LABELS, questions, low=0, high=1)
    assert (result.clusters, result.labelled_questions, result.reason) == (30, 15, "few_labelled_questions")
    mixed = np.array([*range(30), *range(30)])  # each labelled case with another without
    result = corrected_mean(JUDGED, LABELS, mixed, low=0, high=1)
    left_out = 15 / 14 * math.sqrt(29 / 30)
    sums = np.zeros(30)
    for question, score, label in zip(mixed, JUDGED, LABELS, strict=True):
        residual = 0.0 if math.isnan(label) else 2 * ((label - score / 3) - 1 / 3) * left_out
        sums[question] += ((score - 0.65) / 3 + residual) / 60
    assert result.value == pytest.approx(0.55)
    assert result.error == pytest.approx(math.sqrt(30 / 29 * float(np.sum(sums**2))))


def test_few_or_no_residuals_are_no_certainty() -> None:
    """A judge that is wrong once in 40 labels. One residual carries nearly all: K is near 1, and c = 1 - K/6."""
    judged, labels = repeated((1, 1, 19), (1, 0, 1), (0, 0, 20), (1, NONE, 20), (0, NONE, 20))
    result = corrected_mean(judged, labels, low=0, high=1)
    slope = 0.95  # of 20 labels at 1, whose mean is .95, less 0
    residuals = np.array([1 - 0.95] * 19 + [-0.95] + [0.0] * 20)
    carrying = np.sum(residuals**2) ** 2 / np.sum(residuals**4)
    widening = 1 - carrying / 6
    assert result.slope == pytest.approx(slope)
    widened = (40**2 * result.error**2 + widening) / (40 + widening) ** 2
    assert bounds(result.interval) == pytest.approx(wilson(0.475, 0.475 * 0.525 / widened, 38))
    # the value is the judge's mean, and the interval is wider than that of as many labels.
    judged, labels = repeated((1, 1, 45), (0, 0, 15), (1, NONE, 705), (0, NONE, 235))
    result = corrected_mean(judged, labels, low=0, high=1)
    assert (result.value, result.slope) == pytest.approx((0.75, 1))
    low, high = bounds(result.interval)
    # no residual: Var is that of the scores, and one label in 61 could have been wrong
    variance = 1000 / 999 * 0.75 * 0.25 / 1000
    assert (low, high) == pytest.approx(wilson(0.75, 0.75 * 0.25 / ((60**2 * variance + 1) / 61**2), 58))
    alone = bounds(estimate_mean(labels[:60], low=0, high=1).interval)
    assert high - low < 0.45 * (alone[1] - alone[0])


@pytest.mark.parametrize("constant", [0.0, 0.4, 1.0])
def test_a_judge_that_never_varies_leaves_the_labels(constant: float) -> None:
    _, labels = repeated((1, 1, 30), (1, 0, 10), (1, NONE, 60))
    result = corrected_mean(np.full(100, constant), labels, low=0, high=1)
    assert (result.value, result.slope, result.judge.value) == (pytest.approx(0.75), 0.0, constant)
    # every label as if left out: residuals times 40/39 * sqrt(39/40), so the usual variance of a mean
    assert result.error == pytest.approx(math.sqrt(0.75 * 0.25 / 39 * 100 / 99))


def test_strata_by_hand() -> None:
    """A judge that says nothing. 20 of 80 cases of one stratum, 15 right; 20 of 20 of the other, 5 right: .8 * .75 + .2 * .25."""
    strata = np.repeat([3, 9], [80, 20])
    labels = np.concatenate([[1.0] * 15, [0.0] * 5, [NONE] * 60, [1.0] * 5, [0.0] * 15])
    result = corrected_mean(np.full(100, 0.5), labels, strata=strata, low=0, high=1)
    assert result.value == pytest.approx(0.65)
    # sum of w is 100, so the leverage is 4/100 and 1/100
    of_first, of_second = (4 / 0.96 * math.sqrt(39 / 40), 1 / 0.99 * math.sqrt(39 / 40))
    shifts = [
        *[(0.1 + of_first * residual) for residual in [0.25] * 15 + [-0.75] * 5],
        *[0.1] * 60,
        *[(-0.4 + of_second * residual) for residual in [0.75] * 5 + [-0.25] * 15],
    ]
    assert result.error == pytest.approx(math.sqrt(100 / 99 * sum(shift**2 for shift in shifts)) / 100)


@pytest.mark.slow
def test_the_slope_is_that_of_weighted_least_squares() -> None:
    from statsmodels.api import WLS, add_constant

    rng = np.random.default_rng(4)
    scores = rng.random(300)
    labels = np.clip(0.6 * scores + 0.4 * rng.random(300), 0, 1)
    strata = (scores > 0.3).astype(np.int64)
    is_labelled = rng.random(300) < np.where(strata, 0.2, 0.6)
    counts = np.bincount(strata) / np.bincount(strata[is_labelled])
    fit = WLS(labels[is_labelled], add_constant(scores[is_labelled]), weights=counts[strata[is_labelled]]).fit()
    result = corrected_mean(scores, np.where(is_labelled, labels, NONE), strata=strata, low=0, high=1)
    assert result.slope == pytest.approx(fit.params[1])


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_value_is_that_of_ppi_python(seed: int) -> None:
    """Their prediction-powered mean takes the labelled and the other cases apart: its lambda is ours times (N - n) / N."""
    ppi = pytest.importorskip("ppi_py")
    rng = np.random.default_rng(seed)
    labels = (rng.random(400) < 0.8).astype(float)
    scores = np.clip(0.5 * labels + 0.5 * rng.random(400), 0, 1)
    is_labelled = np.zeros(400, dtype=bool)
    is_labelled[rng.choice(400, 60, replace=False)] = True
    result = corrected_mean(scores, np.where(is_labelled, labels, NONE), low=0, high=1)
    theirs = ppi.ppi_mean_pointestimate(labels[is_labelled], scores[is_labelled], scores[~is_labelled], lam=result.slope * 340 / 400)
    assert result.value == pytest.approx(theirs.item(), abs=1e-12)


def test_only_these_cases() -> None:
    """The residuals of the first example, 30 of 60 labelled: (1 - 30/60) / (30 * 29) * their squares, and one label more, half seen."""
    result = corrected_mean(JUDGED, LABELS, np.arange(60) // 3 * 3, low=0, high=1, only_these=True)
    assert result.reason == "few_labelled_questions"
    result = corrected_mean(JUDGED, LABELS, low=0, high=1, only_these=True)
    squares = (20 / 9 + 40 / 9) * (15 / 14) ** 2 * 29 / 30
    variance = 0.5 * squares / (30 * 29)
    assert result.error == pytest.approx(math.sqrt(variance))
    widened = (30**2 * variance + 0.5) / 31**2
    assert bounds(result.interval) == pytest.approx(wilson(0.55, 0.55 * 0.45 / widened, 28))
    every = corrected_mean(JUDGED[:30], LABELS[:30], low=0, high=1, only_these=True)
    assert every.value == pytest.approx(0.5)
    assert bounds(every.interval) == pytest.approx((0.5, 0.5), abs=1e-5)


@pytest.mark.parametrize(("labelled", "per_question", "strata", "reason"), [
    (29, 1, None, "few_labels"), (30, 1, None, None), (38, 2, None, "few_labelled_questions"), (39, 2, None, None),
    (0, 1, None, "few_labels"), (40, 1, [0] * 50 + [1] * 50, "stratum_without_labels"),
    (51, 1, [0] * 50 + [1] * 50, "stratum_with_one_label"), (51, 1, [0] * 50 + [1] + [0] * 49, None),
])  # fmt: skip
def test_refusals(labelled: int, per_question: int, strata: list[int] | None, reason: str | None) -> None:
    labels = np.array(([1.0, 0.0, 1.0] * 34)[:labelled] + [NONE] * (100 - labelled))
    result = corrected_mean(
        np.tile([1.0, 0.0], 50), labels, np.arange(100) // per_question, strata=None if strata is None else np.array(strata), low=0, high=1
    )
    assert result.reason == reason
    assert (result.value is None, result.interval is None) == (reason is not None, reason is not None)
    assert result.judge.value == 0.5


def test_what_is_no_case_is_refused() -> None:
    scores, labels = JUDGED.astype(float), LABELS.copy()
    with pytest.raises(ValueError, match="60 scores against 59 labels"):
        corrected_mean(scores, labels[1:], low=0, high=1)
    with pytest.raises(ValueError, match="off the scale 0 to 1"):
        corrected_mean(scores, labels * 2, low=0, high=1)
    scores[3] = NONE
    with pytest.raises(ValueError, match="finite score"):
        corrected_mean(scores, labels, low=0, high=1)
