"""AUROC, sensitivity, specificity and balanced accuracy: by hand, against scikit-learn, and what always holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragpipe.stats import detection as rates
from ragpipe.stats.detection import auroc, balanced_accuracy, estimate_auroc, estimate_balanced_accuracy
from ragpipe.stats.intervals import estimate_mean, estimate_rate


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


LABELS, SCORES = array(1, 1, 1, 0, 0), array(0.9, 0.6, 0.4, 0.6, 0.1)
"""Of the six pairs .9 wins two, .6 one and a half, .4 one: AUROC 4.5 / 6 = .75. Placements 1, 3/4, 1/2 | 1/2, 1."""


def wilson(rate: float, n: float, t: float) -> tuple[float, float]:
    """The roots p of (p - rate)^2 = t^2 p (1 - p) / n."""
    square = t * t / n
    roots = np.roots([1 + square, -(2 * rate + square), rate * rate]).real
    return min(roots), max(roots)


@pytest.mark.parametrize(
    ("questions", "variance"),
    [
        # u = 1/12, 0, -1/12 | -1/8, 1/8: squares 2/144 + 2/64 = 13/288, times 5/4
        (None, 65 / 1152),
        # sums of the questions 1/12, -1/12 - 1/8 = -5/24, 1/8: squares 38/576, times 3/2
        ([7, 7, 2, 2, 9], 57 / 576),
    ],
)
def test_auroc_by_hand(questions: list[int] | None, variance: float) -> None:
    result = estimate_auroc(LABELS, SCORES, None if questions is None else np.array(questions))
    assert (result.n, result.clusters, result.reason) == (5, 5 if questions is None else 3, None)
    assert result.value == auroc(LABELS, SCORES).value == pytest.approx(0.75)
    assert result.error == pytest.approx(math.sqrt(variance))
    # two negative rows: two degrees of freedom, t = 4.302652729911275
    bounds = wilson(0.75, min(0.75 * 0.25 / variance, 5), 4.302652729911275)
    assert (result.interval.low, result.interval.high) == pytest.approx(bounds)
    assert (result.interval.method, result.interval.too_few) == ("wilson_obuchowski", questions is not None)


def test_separation_and_equal_scores() -> None:
    """10 positive and 4 negative rows, all apart: as sure as 4 draws are, with t(3)."""
    result = estimate_auroc(np.repeat([1.0, 0.0], [10, 4]), np.repeat([0.9, 0.2], [10, 4])).interval
    t = stats.t.ppf(0.975, 3)
    assert (result.low, result.high) == pytest.approx((4 / (4 + t * t), 1.0))
    # nine questions with a positive row above and one below all ten negative rows, one with a single row above: AUROC 10/19.
    # Sums of u are -1/361 nine times and 9/361, so Var = 20/19 * 90/361^2 and A(1-A)/Var = 343: more than the 29 rows.
    scores = array(*[0.9, 0.1] * 9, 0.9, *[0.5] * 10)
    questions = np.concatenate([np.repeat(np.arange(10), 2)[:19], np.arange(10, 20)])
    result = estimate_auroc(np.repeat([1.0, 0.0], [19, 10]), scores, questions)
    assert result.value == pytest.approx(10 / 19)
    assert result.error == pytest.approx(math.sqrt(20 / 19 * 90) / 361)
    assert (result.interval.low, result.interval.high) == pytest.approx(wilson(10 / 19, 29, stats.t.ppf(0.975, 9)))
    result = estimate_auroc(np.repeat([1.0, 0.0], 6), np.full(12, 0.3))
    assert result.value == 0.5
    assert (result.interval.low, result.interval.high) == pytest.approx(wilson(0.5, 6, stats.t.ppf(0.975, 5)))


@pytest.mark.parametrize(
    ("labels", "scores", "questions", "value", "reason"),
    [
        ([], [], [], None, "no_pairs"), ([1, 1], [0.1, 0.2], [1, 2], None, "one_class"),
        ([0, 0], [0.1, 0.2], [1, 2], None, "one_class"), ([1, 0, 0], [0.5, 0.2, 0.7], [1, 2, 3], 0.5, "one_of_a_class"),
        ([1, 0, 1, 0], [0.5, 0.2, 0.6, 0.1], [4, 4, 4, 4], 1.0, "one_sample"),
    ],
)  # fmt: skip
def test_no_interval_of_auroc_without_grounds(labels, scores, questions, value, reason) -> None:
    result = estimate_auroc(array(*labels), array(*scores), np.array(questions, dtype=np.int64))
    assert (result.n, result.value, result.interval, result.reason) == (len(labels), value, None, reason)


def test_rates_by_hand() -> None:
    """Labels 1 1 1 1 0 0 and verdicts 1 1 0 1 0 1: sensitivity 3/4, specificity 1/2, balanced 5/8."""
    labels, verdicts = array(1, 1, 1, 1, 0, 0), array(1, 1, 0, 1, 0, 1)
    questions = np.array([3, 3, 5, 6, 3, 6])
    assert balanced_accuracy(labels, verdicts).value == 0.625
    assert rates.estimate_sensitivity(labels, verdicts, questions) == estimate_rate(array(1, 1, 0, 1), np.array([3, 3, 5, 6]))
    assert rates.estimate_specificity(labels, verdicts, questions) == estimate_rate(array(1, 0))
    assert rates.estimate_sensitivity(array(0, 0), array(0, 1)).reason == "no_values"
    # one positive of six is missed. Without it 1, without another positive (4/5 + 1)/2 = 9/10, without a negative 11/12. The
    # mean of the ten is (1 + 5 * 9/10 + 4 * 11/12) / 10 = 11/12; squares 1/144 + 5/3600 = 1/120, times 9/10; t(9) =
    # 2.2621571627409915.
    labels, verdicts = np.repeat([1.0, 0.0], [6, 4]), np.repeat([1.0, 0.0], [5, 5])
    result = estimate_balanced_accuracy(labels, verdicts)
    assert (result.value, result.error) == (pytest.approx(11 / 12), pytest.approx(math.sqrt(9 / 1200)))
    by_jackknife = 2.2621571627409915 * math.sqrt(9 / 1200)
    found = estimate_mean(array(1, 1, 1, 1, 1, 0), low=0, high=1).interval
    by_rates = math.hypot(5 / 6 - found.low, 1 - estimate_mean(array(1, 1, 1, 1), low=0, high=1).interval.low) / 2
    assert by_rates > by_jackknife, "the jackknife is too narrow with a class of four"
    assert (result.interval.low, result.interval.high) == pytest.approx((11 / 12 - by_rates, 1.0))
    assert result.interval.method == "jackknife_wilson"


@pytest.mark.parametrize(
    ("labels", "verdicts", "questions", "value", "reason"),
    [
        ([], [], [], None, "no_pairs"),
        ([0, 0], [0, 1], [1, 2], None, "one_class"),
        ([1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], 0.75, "one_sample"),
        ([1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 2, 3], 0.75, "rests_on_one_question"),
    ],
)
def test_no_interval_of_balanced_accuracy_without_grounds(labels, verdicts, questions, value, reason) -> None:
    result = estimate_balanced_accuracy(array(*labels), array(*verdicts), np.array(questions, dtype=np.int64))
    assert (result.value, result.interval, result.reason) == (value, None, reason)


def test_labels_and_verdicts_are_classes() -> None:
    with pytest.raises(ValueError, match=r"a label is 0 or 1, found 0\.5"):
        auroc(array(0.5, 1), array(1, 2))
    with pytest.raises(ValueError, match="a verdict is 0 or 1, found 2"):
        balanced_accuracy(array(0, 1), array(2, 1))
    with pytest.raises(ValueError, match="same cases"):
        auroc(array(0, 1), array(1))
    with pytest.raises(ValueError, match="2 values but 1 question numbers"):
        estimate_auroc(array(0, 1), array(0, 1), np.array([3]))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 8)), max_size=50))
def test_the_same_as_scikit_learn(rows: list[tuple[int, int]]) -> None:
    from sklearn import metrics

    labels, scores = array(*(label for label, _ in rows)), array(*(score / 8 for _, score in rows))
    verdicts = (scores >= 0.5).astype(float)
    if len(set(labels.tolist())) < 2:
        assert auroc(labels, scores).value is balanced_accuracy(labels, verdicts).value is None
        return
    assert auroc(labels, scores).value == pytest.approx(metrics.roc_auc_score(labels, scores), abs=1e-12)
    recall = metrics.recall_score(labels, verdicts)
    assert rates.estimate_sensitivity(labels, verdicts).value == pytest.approx(recall, abs=1e-12)
    balanced = metrics.balanced_accuracy_score(labels, verdicts)
    assert balanced_accuracy(labels, verdicts).value == pytest.approx(balanced, abs=1e-12)
