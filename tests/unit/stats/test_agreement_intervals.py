"""Kappa with its interval: by hand, by the page written down once more, and what always holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragpipe.stats.agreement_coefficients import cohen_kappa, kendall, pearson, spearman
from ragpipe.stats.agreement_intervals import estimate_correlation, estimate_kappa, estimate_quadratic_kappa
from ragpipe.stats.intervals import estimate_mean
from ragpipe.stats.jackknife import EstimatedStatistic

ROWS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(0, 6)), max_size=40)
"""Label, verdict, question."""


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return array(*(r[0] for r in rows)), array(*(r[1] for r in rows)), np.array([r[2] for r in rows], dtype=np.int64)


def quadratic(labels: np.ndarray, verdicts: np.ndarray, questions: np.ndarray | None = None) -> EstimatedStatistic:
    return estimate_quadratic_kappa(labels, verdicts, questions, low=1, high=5)


def distance(one: float, other: float, *, is_squared: bool) -> float:
    return (one - other) ** 2 / 16 if is_squared else float(one != other)


def kappa_of(pairs: list[tuple[float, float]], *, is_squared: bool) -> tuple[float, float]:
    """1 - mean distance of the pairs / mean distance of all a with all b; beside it that denominator."""
    seen = sum(distance(a, b, is_squared=is_squared) for a, b in pairs) / len(pairs)
    by_chance = sum(distance(a, b, is_squared=is_squared) for a, _ in pairs for _, b in pairs) / len(pairs) ** 2
    return 1 - seen / by_chance, by_chance


def by_the_page(rows: list[tuple[int, int, int]], *, is_squared: bool) -> tuple[float, float]:
    """Both intervals of docs/agreement.md, pair by pair and question by question; the outer bounds."""
    kappa, by_chance = kappa_of([(a, b) for a, b, _ in rows], is_squared=is_squared)
    groups = sorted({q for *_, q in rows})
    without = [kappa_of([(a, b) for a, b, q in rows if q != g], is_squared=is_squared)[0] for g in groups]
    error = math.sqrt((len(groups) - 1) / len(groups) * sum((v - sum(without) / len(groups)) ** 2 for v in without))
    t = float(stats.t.ppf(0.975, len(groups) - 1))
    centre, half = math.atanh(kappa), t * error / (1 - kappa**2)
    equal = estimate_mean(
        array(*(1 - distance(a, b, is_squared=is_squared) for a, b, _ in rows)), np.array([q for *_, q in rows]),
        low=0.0, high=1.0,
    ).interval  # fmt: skip
    assert equal is not None
    low = min(math.tanh(centre - half), 1 - (1 - equal.low) / by_chance)
    return max(-1.0, low), max(math.tanh(centre + half), 1 - (1 - equal.high) / by_chance)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("is_squared", [False, True])
def test_the_interval_is_that_of_the_page(seed: int, is_squared: bool) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, 6, 40)
    verdicts = np.where(rng.random(40) < 0.3, rng.integers(1, 6, 40), labels)
    questions = rng.integers(0, rng.integers(6, 30), 40)
    rows = list(zip(labels.tolist(), verdicts.tolist(), questions.tolist(), strict=True))
    result = (quadratic if is_squared else estimate_kappa)(*columns(rows))
    assert result.interval is not None
    assert (result.interval.low, result.interval.high) == pytest.approx(by_the_page(rows, is_squared=is_squared))
    assert result.value == pytest.approx(kappa_of([(a, b) for a, b, _ in rows], is_squared=is_squared)[0])
    assert (result.n, result.clusters, result.reason) == (40, len(set(questions.tolist())), None)
    assert result.interval.method == "jackknife_wilson"


def test_perfect_agreement_is_no_certainty() -> None:
    """20 questions, half of each class, no disagreement: the mean agreement is at least 20 / (20 + t^2) (Wilson), and half of
    what is missing is chance. t(19) = 2.093024054408263."""
    labels = np.tile([0.0, 1.0], 10)
    result = estimate_kappa(labels, labels)
    assert result.value == 1
    assert result.interval is not None
    missing = 1 - 20 / (20 + 2.093024054408263**2)
    assert (result.interval.low, result.interval.high) == pytest.approx((1 - missing / 0.5, 1.0))


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
        estimate_quadratic_kappa(array(1, 2), array(2, 4), low=5, high=1)


def test_the_scale_matters_to_the_interval_alone() -> None:
    labels, verdicts = np.tile([1.0, 2, 3, 4], 6), np.tile([1.0, 2, 3, 3], 6)
    narrow = estimate_quadratic_kappa(labels, verdicts, low=1, high=4)
    tenfold = estimate_quadratic_kappa(labels * 10, verdicts * 10, low=10, high=40)
    assert narrow.interval is not None
    assert tenfold.interval is not None
    assert narrow.value == estimate_quadratic_kappa(labels, verdicts, low=0, high=10).value
    assert (narrow.interval.low, narrow.interval.high) == pytest.approx((tenfold.interval.low, tenfold.interval.high))


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
    assert result.interval is not None
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


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@given(ROWS, st.randoms(use_true_random=False))
@pytest.mark.parametrize("estimate", [estimate_kappa, quadratic])
def test_raters_rows_and_numbers_of_questions_may_change_places(estimate, rows: list[tuple[int, int, int]], random) -> None:
    first = estimate(*columns(rows))
    labels, verdicts, questions = columns(random.sample(rows, len(rows)))
    second = estimate(verdicts, labels, 90 - 7 * questions)
    assert (first.n, first.clusters, first.reason) == (second.n, second.clusters, second.reason)
    assert (first.value is None) == (second.value is None)
    if first.interval is None or second.interval is None:
        assert first.interval is second.interval
        return
    assert first.value == pytest.approx(second.value, abs=1e-12)
    assert (first.interval.low, first.interval.high) == pytest.approx((second.interval.low, second.interval.high), abs=1e-9)
    assert -1 <= first.interval.low <= first.value <= first.interval.high <= 1
    assert first.interval.high - first.interval.low > 0.01


@pytest.mark.slow
@given(ROWS)
def test_names_of_classes_mean_nothing(rows: list[tuple[int, int, int]]) -> None:
    labels, verdicts, questions = columns(rows)
    names = array(0, 8, 2, 70, 1, 3)
    here, there = (estimate_kappa(a, b, questions) for a, b in (
        (labels, verdicts), (names[labels.astype(int)], names[verdicts.astype(int)])
    ))  # fmt: skip
    assert here == there


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
    grades = estimate_quadratic_kappa(labels.astype(float), verdicts.astype(float), low=0, high=2)
    assert (ours.value, grades.value) == pytest.approx((plain.kappa, weighted.kappa))
    assert (ours.error, grades.error) == pytest.approx((plain.std_kappa, weighted.std_kappa), rel=0.03)
    assert cohen_kappa(labels, verdicts).value == pytest.approx(plain.kappa)
