"""Kappa with its interval: against statsmodels, by hand, and what always holds."""

import math

import numpy as np
import pytest
from scipy import stats

from ragpipe.stats.agreement import cohen_kappa, estimate_correlation, estimate_kappa, kendall, pearson, spearman
from ragpipe.stats.intervals import Estimate

"""Label, verdict, question."""


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def quadratic(labels: np.ndarray, verdicts: np.ndarray, questions: np.ndarray | None = None) -> Estimate:
    return estimate_kappa(labels, verdicts, questions, scale=(1, 5))


@pytest.mark.parametrize(
    ("scale", "value", "bounds"),
    [(None, 0.582608695652, (0.140719013122, 0.854464126752)), ((1, 5), 0.757575757576, (-0.364714075443, 0.972633652645))],
)
def test_the_interval_of_twelve_rows(scale: tuple[float, float] | None, value: float, bounds: tuple[float, float]) -> None:
    """Two rows a question: the outer bounds of both intervals of docs/statistics.md, pair by pair and question by question with
    scipy's quantile. Of classes the high end is by the agreement, of grades the low one."""
    labels, verdicts = array(1, 5, 2, 4, 3, 3, 5, 1, 2, 4, 4, 5), array(1, 5, 2, 3, 3, 4, 5, 2, 2, 4, 1, 5)
    result = estimate_kappa(labels, verdicts, np.repeat(np.arange(6), 2), scale=scale)
    assert (result.n, result.clusters, result.value, result.reason) == (12, 6, pytest.approx(value, abs=1e-11), None)
    assert (result.interval.low, result.interval.high) == pytest.approx(bounds, abs=1e-11)
    assert result.interval.method == "jackknife_wilson"


@pytest.mark.parametrize(
    ("labels", "verdicts", "questions", "value", "reason"),
    [
        ([], [], [], None, "no_pairs"), ([1, 1], [1, 1], [1, 2], None, "one_class"), ([1, 2], [1, 2], [3, 3], 1.0, "one_sample"),
        ([1, 1, 2], [1, 1, 2], [1, 2, 3], 1.0, "rests_on_one_question"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("estimate", [estimate_kappa, quadratic])
def test_no_interval_of_kappa_without_grounds(estimate, labels, verdicts, questions, value, reason) -> None:
    result = estimate(array(*labels), array(*verdicts), np.array(questions, dtype=np.int64))
    assert (result.n, result.value, result.interval, result.reason) == (len(labels), value, None, reason)


def test_grades_are_on_the_scale() -> None:
    with pytest.raises(ValueError, match="values from 0 to 4 are off the scale 1 to 5"):
        quadratic(array(0, 2), array(2, 4))
    with pytest.raises(ValueError, match="a scale runs from low to high, found 5 to 1"):
        estimate_kappa(array(1, 2), array(2, 4), scale=(5, 1))


@pytest.mark.parametrize("correlation", [pearson, spearman, kendall])
def test_the_interval_of_a_correlation_is_that_of_the_page(correlation) -> None:
    rng = np.random.default_rng(2)
    labels, questions = rng.integers(1, 6, 40).astype(float), rng.integers(0, 15, 40)
    scores = labels + rng.normal(size=40)
    result = estimate_correlation(correlation, labels, scores, questions)
    groups = np.unique(questions)
    without = [correlation(labels[questions != g], scores[questions != g]).value for g in groups]
    error = math.sqrt((len(groups) - 1) / len(groups) * float(np.sum((without - np.mean(without)) ** 2)))
    assert result.value == correlation(labels, scores).value
    centre, half = math.atanh(result.value), stats.t.ppf(0.975, len(groups) - 1) * error / (1 - result.value**2)
    assert (result.interval.low, result.interval.high) == pytest.approx((math.tanh(centre - half), math.tanh(centre + half)))
    assert (result.interval.method, result.error) == ("jackknife_z", pytest.approx(error))


@pytest.mark.parametrize(
    ("labels", "scores", "questions", "value", "reason"),
    [
        ([], [], [], None, "no_pairs"),
        ([1], [2], [1], None, "one_pair"),
        ([1, 1, 1], [1, 2, 3], [1, 2, 3], None, "no_spread"),
        ([1, 2, 3, 5], [2, 4, 6, 10], [1, 2, 3, 4], 1.0, "no_spread"),
        ([1, 2, 3], [3, 2, 1], [7, 7, 7], -1.0, "one_sample"),
        ([1, 1, 1, 2], [3, 2, 1, 4], [1, 2, 3, 4], None, "rests_on_one_question"),
    ],
)
@pytest.mark.parametrize("correlation", [pearson, spearman, kendall])
def test_no_interval_of_a_correlation_without_grounds(correlation, labels, scores, questions, value, reason) -> None:
    result = estimate_correlation(correlation, array(*labels), array(*scores), np.array(questions, dtype=np.int64))
    assert (result.interval, result.reason) == (None, reason)
    if reason != "rests_on_one_question":
        assert result.value == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("seed", range(5))
def test_error_of_kappa_equals_statsmodels(seed: int) -> None:
    """Its standard error is that of large samples: 300 rows are close."""
    inter_rater = pytest.importorskip("statsmodels.stats.inter_rater")
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 300)
    verdicts = np.where(rng.random(300) < 0.3, rng.integers(0, 3, 300), labels)
    table = np.bincount(labels * 3 + verdicts, minlength=9).reshape(3, 3)
    plain, weighted = inter_rater.cohens_kappa(table), inter_rater.cohens_kappa(table, wt="quadratic")
    ours = estimate_kappa(labels.astype(float), verdicts.astype(float))
    grades = estimate_kappa(labels.astype(float), verdicts.astype(float), scale=(0, 2))
    assert (ours.value, grades.value) == pytest.approx((plain.kappa, weighted.kappa))
    assert (ours.error, grades.error) == pytest.approx((plain.std_kappa, weighted.std_kappa), rel=0.03)
    assert cohen_kappa(labels, verdicts).value == pytest.approx(plain.kappa)
