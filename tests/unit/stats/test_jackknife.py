"""The jackknife over questions, and the difference of two versions by it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragpipe.stats.agreement_coefficients import Coefficient, cohen_kappa
from ragpipe.stats.detection import auroc, balanced_accuracy
from ragpipe.stats.intervals import estimate_mean
from ragpipe.stats.jackknife import difference_of_versions, fisher_bounds, jackknife_error, questions_of

ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1), st.integers(0, 6)), min_size=1, max_size=40
)
"""Label, verdict of the first version, of the second, question."""


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def columns(rows: list[tuple[int, int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    labels, base, candidate = (array(*(r[k] for r in rows)) for k in range(3))
    return labels, base, candidate, np.array([r[3] for r in rows], dtype=np.int64)


def accuracy(labels: np.ndarray, verdicts: np.ndarray) -> Coefficient:
    return Coefficient(len(labels), float(np.mean(labels == verdicts)))


def test_of_a_mean_it_is_the_usual_standard_error() -> None:
    """The jackknife of a mean of n independent rows is s / sqrt(n): Tukey 1958."""
    values = array(3.0, 4.5, 2.0, 5.0, 4.0, 3.5)
    error, reason = jackknife_error(lambda kept: float(np.mean(values[kept])), *questions_of(6, None))
    assert (error, reason) == (pytest.approx(stats.sem(values)), None)


def test_of_questions_with_equally_many_rows_it_is_the_clustered_standard_error() -> None:
    """Then leaving a question out moves the mean by (mean - its mean) / (G - 1), so G/(G-1) * sum of (m * deviation)^2 / n^2."""
    values, questions = array(2, 4, 6, 8, 4, 6), np.array([0, 0, 1, 1, 2, 2])
    error, _ = jackknife_error(lambda kept: float(np.mean(values[kept])), *questions_of(6, questions))
    interval = estimate_mean(values, questions).interval
    assert interval is not None
    assert error == pytest.approx((interval.high - interval.low) / 2 / 4.302652729911275) == math.sqrt(4 / 3)


@pytest.mark.parametrize(
    ("statistic", "groups", "expected"),
    [
        (lambda kept: 1.0, 1, (None, "one_sample")),
        (lambda kept: 1.0, 4, (0.0, "no_spread")),
        (lambda kept: None if not kept[2] else 1.0, 4, (None, "rests_on_one_question")),
    ],
)
def test_no_error_without_grounds(statistic, groups: int, expected: tuple[float | None, str]) -> None:
    assert jackknife_error(statistic, np.arange(groups), groups) == expected


def test_fishers_bounds() -> None:
    """atanh(1/2) is half the logarithm of 3: that much to each side gives tanh(0) = 0 and tanh(ln 3) = (9 - 1) / (9 + 1)."""
    error = 0.75 * math.log(3) / 4  # brought to the scale of z: divided by 1 - 1/4
    assert fisher_bounds(0.5, error, 2.0) == pytest.approx((0.0, 0.8))
    assert fisher_bounds(-0.5, error, 2.0) == pytest.approx((-0.8, 0.0))
    assert fisher_bounds(1.0, 0.0, 2.0) == (1.0, 1.0)
    assert fisher_bounds(-1.0, 0.1, 2.0) == (-1.0, -1.0)


def test_difference_by_hand() -> None:
    """Share of right verdicts of three questions with two rows each: the first version is right in 1, 1, 1 of 2, the second
    in 2, 2, 1. Difference 5/6 - 3/6 = 1/3; without each question (3 - 2)/4, (3 - 2)/4 and (4 - 2)/4: mean 1/3, squares
    2/144 + 1/36 = 1/24, times 2/3 = 1/36. t(2) = 4.302652729911275."""
    labels = np.ones(6)
    result = difference_of_versions(
        accuracy, labels, array(1, 0, 1, 0, 1, 0), array(1, 1, 1, 1, 0, 1), np.array([5, 5, 8, 8, 2, 2])
    )
    assert (result.n, result.clusters, result.base, result.candidate) == (6, 3, 0.5, pytest.approx(5 / 6))
    assert result.difference == pytest.approx(1 / 3)
    assert result.interval is not None
    half = 4.302652729911275 / 6
    assert (result.interval.low, result.interval.high) == pytest.approx((1 / 3 - half, 1 / 3 + half))
    assert (result.interval.method, result.interval.too_few) == ("jackknife_t", True)


@pytest.mark.parametrize(
    ("labels", "base", "candidate", "questions", "difference", "reason"),
    [
        ([], [], [], [], None, "no_pairs"),
        ([1, 1], [1, 0], [1, 1], [1, 2], None, "one_class"),
        ([1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1], 0.5, "one_sample"),
        ([1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 2, 3, 4], 0.0, "no_spread"),
        ([1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 2, 3], 0.25, "rests_on_one_question"),
    ],
)
def test_no_interval_of_a_difference_without_grounds(
    labels: list[float], base: list[float], candidate: list[float], questions: list[int], difference: float | None,
    reason: str,
) -> None:  # fmt: skip
    result = difference_of_versions(
        balanced_accuracy, array(*labels), array(*base), array(*candidate), np.array(questions, dtype=np.int64)
    )
    assert (result.difference, result.interval, result.reason) == (difference, None, reason)


def test_the_same_labels_make_a_narrower_interval_than_two_single_ones() -> None:
    """Two versions that err on the same 30 of 120 answers but two: the difference is far surer than either figure."""
    rng = np.random.default_rng(3)
    labels = np.repeat([1.0, 0.0], 60)
    base = np.where(rng.permutation(120) < 30, 1 - labels, labels)
    candidate = base.copy()
    candidate[np.flatnonzero(base != labels)[:2]] = labels[np.flatnonzero(base != labels)[:2]]
    result = difference_of_versions(cohen_kappa, labels, base, candidate)
    assert result.interval is not None
    assert result.interval.high - result.interval.low < 0.1


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@given(ROWS, st.randoms(use_true_random=False))
@pytest.mark.parametrize("statistic", [auroc, cohen_kappa, balanced_accuracy])
def test_a_difference_has_no_side_and_no_order(statistic, rows: list[tuple[int, int, int, int]], random) -> None:
    labels, base, candidate, questions = columns(rows)
    there = difference_of_versions(statistic, labels, base, candidate, questions)
    shuffled = random.sample(rows, len(rows))
    labels, base, candidate, questions = columns(shuffled)
    back = difference_of_versions(statistic, labels, candidate, base, 90 - questions)
    assert (there.n, there.clusters) == (back.n, back.clusters)
    assert (there.difference is None) == (back.difference is None)
    if there.interval is None or back.interval is None:
        assert there.interval is back.interval
        return
    assert there.difference == pytest.approx(-back.difference, abs=1e-12)
    assert (there.interval.low, there.interval.high) == pytest.approx(
        (-back.interval.high, -back.interval.low), abs=1e-9
    )
    assert there.interval.low <= there.difference <= there.interval.high


@pytest.mark.slow
@given(ROWS)
def test_copies_of_rows_are_no_news(rows: list[tuple[int, int, int, int]]) -> None:
    labels, base, candidate, questions = columns(rows)
    once = difference_of_versions(cohen_kappa, labels, base, candidate, questions)
    twice = difference_of_versions(
        cohen_kappa, np.tile(labels, 2), np.tile(base, 2), np.tile(candidate, 2), np.tile(questions, 2)
    )
    assert once.reason == twice.reason
    if once.interval is not None and twice.interval is not None:
        assert (once.interval.low, once.interval.high) == pytest.approx(
            (twice.interval.low, twice.interval.high), abs=1e-9
        )
