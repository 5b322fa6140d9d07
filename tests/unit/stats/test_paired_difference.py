"""Differences: paired, of two independent samples, and of two versions over the jackknife; by hand and against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragpipe.stats.agreement import Coefficient, difference_of_versions, fisher_bounds, jackknife_error
from ragpipe.stats.detection import balanced_accuracy
from ragpipe.stats.differences import PairedDifference, independent_difference, paired_difference
from ragpipe.stats.intervals import Estimate, estimate_mean, estimate_rate

ROWS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 8)), max_size=40)
"""Base, candidate, question."""


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (array(*(r[0] / 10 for r in rows)), array(*(r[1] / 10 for r in rows)), np.array([r[2] for r in rows], dtype=np.int64))


def bounds(result: PairedDifference) -> tuple[float, float]:
    return result.interval.low, result.interval.high


def test_independent_rows_are_the_paired_t_test() -> None:
    rng = np.random.default_rng(4)
    base, candidate = rng.random(20), rng.random(20)
    result = paired_difference(base, candidate, low=0, high=1)
    test = stats.ttest_rel(candidate, base)
    assert (result.n, result.clusters, result.changed, result.can_decide) == (20, 20, 20, True)
    assert result.difference == pytest.approx(np.mean(candidate - base))
    assert result.p_value == pytest.approx(test.pvalue)
    ci = test.confidence_interval(0.95)
    assert bounds(result) == pytest.approx((ci.low, ci.high))
    assert result.standardized == pytest.approx(test.statistic / math.sqrt(20))
    error = (ci.high - ci.low) / 2 / stats.t.ppf(0.975, 19)
    assert result.detectable == pytest.approx((stats.t.ppf(0.975, 19) + stats.t.ppf(0.8, 19)) * error)
    assert result.interval.method == "t"


def test_question_by_question_by_hand() -> None:
    """Six questions of two rows. Differences add up to .2 .4 .2 .4 .2 .4, mean .15; each question's residuals add up to -.1
    or .1. V = 6/5 * 6 * .01 / 144 = .0005; t(5) = 2.570581835636314. All signs alike: p = 2 / 2^6."""
    candidate = array(0.1, 0.1, 0.4, 0.0, 0.3, -0.1, 0.2, 0.2, 0.0, 0.2, 0.1, 0.3)
    result = paired_difference(np.zeros(12), candidate, np.repeat([4, 1, 8, 2, 9, 3], 2), low=-1, high=1)
    half = 2.570581835636314 * math.sqrt(0.0005)
    assert bounds(result) == pytest.approx((0.15 - half, 0.15 + half))
    assert (result.wins, result.losses, result.ties, result.net_wins) == (9, 1, 2, 8 / 12)
    assert (result.changed, result.p_value) == (6, 1 / 32)
    assert result.interval.method == "clustered_t"
    # A row of +1 and one of -1 are added: mean 1/12 of 12 rows; squares (121 + 9 + 121 + 169)/144 = 35/12, times 12/11, over
    # 144. t(9) = 2.2621571627409915. One sign is no evidence: p = 1.
    result = paired_difference(np.zeros(10), array(1, *[0] * 9), low=0, high=1)
    error = math.sqrt(35 / 12 * 12 / 11) / 12
    half = 2.2621571627409915 * error
    assert bounds(result) == pytest.approx((1 / 12 - half, 1 / 12 + half))
    assert (result.difference, result.p_value, result.changed, result.can_decide) == (0.1, 1.0, 1, False)
    assert result.detectable == pytest.approx(half + stats.t.ppf(0.8, 9) * error)
    assert result.interval.method == "added_questions"


def test_added_questions_by_hand() -> None:
    """Three of ten changed by .04 of the scale: two of .04^(3/6) = .2 are added; mean .12/12 = .01; squares 3 * .03^2 + 7 * .01^2 +
    .19^2 + .21^2 = .0836, times 12/11, over 144."""
    result = paired_difference(np.zeros(10), array(0.16, 0.16, 0.16, *[0] * 7), low=0, high=4)
    half = 4 * 2.2621571627409915 * math.sqrt(0.0836 * 12 / 11) / 12
    assert bounds(result) == pytest.approx((0.04 - half, 0.04 + half))
    # ten questions that all went from 0 to 1: mean 10/12; squares (40 + 4 + 484)/144, times 12/11, over 144: 1/36.
    result = paired_difference(np.zeros(10), np.ones(10), low=0, high=1)
    half = 2.2621571627409915 / 6
    assert (bounds(result), result.p_value) == (pytest.approx((10 / 12 - half, 1.0)), 2 / 2**10)
    assert result.can_decide
    assert paired_difference(np.zeros(40), np.ones(40), low=0, high=1).p_value == 2.0**-39


@pytest.mark.parametrize(("n", "drop"), [(15, 0.1), (30, 0.05), (40, 0.05), (80, 0.02), (100, 0.02), (30, 0.2), (100, 0.05)])
def test_a_drop_that_may_not_show_is_in_the_interval(n: int, drop: float) -> None:
    """Of 0/1 rows a share of `drop` falls and none rises: the exact coverage, summed over the binomial distribution, is never
    below .92. The least is that of t where just 6 or 7 change."""
    covered = 0.0
    for falls in range(n + 1):
        interval = paired_difference(np.ones(n), array(*[0] * falls, *[1] * (n - falls)), low=0, high=1).interval
        covered += float(stats.binom.pmf(falls, n, drop)) * (interval.low - 1e-9 <= -drop <= interval.high + 1e-9)
    assert covered >= 0.92


@pytest.mark.parametrize(
    ("base", "candidate", "questions", "changed", "difference", "reason"),
    [
        ([], [], [], 0, None, "no_pairs"),
        ([1], [3], [1], 1, 2.0, "one_sample"),
        ([1, 2], [3, 1], [1, 1], 1, 0.5, "one_sample"),
        ([1, 2, 3], [1, 2, 5], [1, 2, 3], 1, 2 / 3, "few_changed"),
        ([1, 2, 3], [1, 2, 3], [1, 2, 3], 0, 0.0, "no_spread"),
        ([1, 2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7], 7, 1.0, "no_spread"),
    ],
)
def test_no_interval_without_grounds(base, candidate, questions, changed, difference, reason) -> None:
    result = paired_difference(array(*base), array(*candidate), np.array(questions, dtype=np.int64))
    assert (result.n, result.clusters, result.changed) == (len(base), len(set(questions)), changed)
    assert result.difference == (None if difference is None else pytest.approx(difference))
    assert (result.interval, result.detectable, result.reason, result.can_decide) == (None, None, reason, False)


def test_fishers_bounds_and_values_on_the_scale() -> None:
    with pytest.raises(ValueError, match="off the scale 0 to 1"):
        paired_difference(array(0, 1), array(1, 2), low=0, high=1)
    with pytest.raises(ValueError, match="same cases"):
        paired_difference(array(0, 1), array(1))
    single, several, none = (estimate_mean(array(*values), low=0, high=1) for values in ((0.5,), (0.5, 0.7), ()))
    for base, candidate, rows, difference, reason in (
        (single, several, 3, 0.1, "one_value"), (several, single, 3, -0.1, "one_value"), (none, several, 2, None, "no_values")
    ):  # fmt: skip
        found = independent_difference(base, candidate)
        assert (found.n, found.clusters, found.interval, found.reason) == (rows, rows, None, reason)
        assert found.value == (None if difference is None else pytest.approx(difference))
    # atanh(1/2) is half the logarithm of 3: that much to each side gives tanh(0) = 0 and tanh(ln 3) = (9 - 1) / (9 + 1).
    error = 0.75 * math.log(3) / 4  # brought to the scale of z: divided by 1 - 1/4
    assert fisher_bounds(0.5, error, 2.0) == pytest.approx((0.0, 0.8))
    assert fisher_bounds(-0.5, error, 2.0) == pytest.approx((-0.8, 0.0))
    assert (fisher_bounds(1.0, 0.0, 2.0), fisher_bounds(-1.0, 0.1, 2.0)) == ((1.0, 1.0), (-1.0, -1.0))


@pytest.mark.parametrize(("better", "worse", "same"), [(9, 2, 5), (2, 3, 95), (6, 0, 4), (5, 5, 90), (12, 0, 1), (0, 7, 0)])
def test_zeros_and_ones_are_mcnemars_exact_test(better: int, worse: int, same: int) -> None:
    base = array(*[0] * better, *[1] * worse, *[1] * same)
    result = paired_difference(base, array(*[1] * better, *[0] * worse, *[1] * same), low=0, high=1)
    assert result.p_value == pytest.approx(stats.binomtest(better, better + worse).pvalue)
    assert (result.wins, result.losses, result.ties) == (better, worse, same)


@given(ROWS.filter(bool))
def test_few_changed_questions_are_the_exact_permutation_test(rows: list[tuple[int, int, int]]) -> None:
    base, candidate, questions = columns(rows)
    # in whole tenths: what rounding leaves of sums that are zero (3e-17) would count as a change in the oracle
    sums = array(0.0, *(round(10 * float(np.sum((candidate - base)[questions == q]))) for q in np.unique(questions)))
    test = stats.permutation_test(
        (sums,), lambda x, axis: np.sum(x, axis=axis), permutation_type="samples", n_resamples=np.inf, vectorized=True
    )  # fmt: skip
    assert paired_difference(base, candidate, questions).p_value == pytest.approx(test.pvalue)


@pytest.mark.slow
@given(ROWS, st.randoms(use_true_random=False))
def test_sides_order_and_scale(rows: list[tuple[int, int, int]], random) -> None:
    base, candidate, questions = columns(rows)
    result = paired_difference(base, candidate, questions, low=0, high=1)
    assert result.wins + result.losses + result.ties == result.n == len(rows)
    base, candidate, questions = columns(random.sample(rows, len(rows)))
    turned = paired_difference(1 + 4 * candidate, 1 + 4 * base, 90 - 7 * questions, low=1, high=5)
    assert (turned.n, turned.clusters, turned.changed, turned.reason) == (result.n, result.clusters, result.changed, result.reason)
    assert (turned.wins, turned.losses, turned.ties) == (result.losses, result.wins, result.ties)
    assert turned.p_value == pytest.approx(result.p_value)
    if result.interval is None:
        assert turned.interval is None
        return
    low, high = bounds(result)
    assert bounds(turned) == pytest.approx((-4 * high, -4 * low), abs=1e-9)
    assert -1 <= low <= result.difference + 1e-12
    assert result.difference - 1e-12 <= high <= 1
    assert high - low > 0.01
    assert 0 < result.p_value <= 1


def hits(count: int, n: int) -> Estimate:
    return estimate_rate(np.repeat([1.0, 0.0], [count, n - count]))


# Newcombe (1998), table II, method 10: two proportions and the interval of their difference
@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339), ((9, 10), (3, 10), 0.1705, 0.8090), ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926), ((0, 10), (0, 20), -0.1611, 0.2775), ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0000), ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)  # fmt: skip
def test_published_intervals(first: tuple[int, int], second: tuple[int, int], low: float, high: float) -> None:
    found = independent_difference(hits(*second), hits(*first)).interval
    assert found
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "low", "high"), [("shares", 0.030, 0.066), ("two rows a question", 0.026, 0.064)])
def test_graded_and_repeated_rows_of_equal_systems(kind: str, low: float, high: float) -> None:
    """With other draws than the table of docs/statistics.md (.053 and .045 of 100 questions), give or take three standard errors of .006."""
    rng = np.random.default_rng(23)

    def sample() -> Estimate:
        rates = rng.beta(1.275, 0.225, 100) if kind == "shares" else rng.beta(1.7, 0.3, 50)
        if kind == "shares":
            return estimate_mean(rng.binomial(5, rates) / 5, low=0, high=1)
        asked = np.repeat(np.arange(50), 2)
        return estimate_rate((rng.random(100) < rates[asked]).astype(float), asked)

    wrong = 0
    for _ in range(1500):
        interval = independent_difference(sample(), sample()).interval
        assert interval
        wrong += not interval.low <= 0 <= interval.high
    assert low <= wrong / 1500 <= high


def accuracy(labels: np.ndarray, verdicts: np.ndarray) -> Coefficient:
    return Coefficient(len(labels), float(np.mean(labels == verdicts)))


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


def test_difference_by_hand() -> None:
    """Share of right verdicts of three questions with two rows each: the first version is right in 1, 1, 1 of 2, the second
    in 2, 2, 1. Difference 5/6 - 3/6 = 1/3; without each question (3 - 2)/4, (3 - 2)/4 and (4 - 2)/4: mean 1/3, squares
    2/144 + 1/36 = 1/24, times 2/3 = 1/36. t(2) = 4.302652729911275."""
    labels = np.ones(6)
    result = difference_of_versions(accuracy, labels, array(1, 0, 1, 0, 1, 0), array(1, 1, 1, 1, 0, 1), np.array([5, 5, 8, 8, 2, 2]))
    assert (result.n, result.clusters) == (6, 3)
    assert result.value == pytest.approx(1 / 3)
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
def test_no_interval_of_a_difference_without_grounds(labels, base, candidate, questions, difference, reason) -> None:
    result = difference_of_versions(balanced_accuracy, array(*labels), array(*base), array(*candidate), np.array(questions, dtype=np.int64))
    assert (result.value, result.interval, result.reason) == (difference, None, reason)
