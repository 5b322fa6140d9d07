"""Intervals of means and rates, on scales and in clusters: by hand, by the page written once more, against scipy."""

import math
import subprocess
import sys
from contextlib import nullcontext
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportions_ztest

from ragpipe.stats import intervals
from ragpipe.stats.intervals import check_scale, estimate_mean, estimate_rate, t_quantile, two_sided_tail
from ragpipe.stats.limits import lower_tail, p_below


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_means_by_hand() -> None:
    values = [3.0, 4.5, 2.0, 5.0, 4.0, 3.5]
    found = estimate_mean(array(*values))
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert found.value == pytest.approx(22 / 6)
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))
    assert found.interval.method == "t"
    # residuals from the mean 5 are -3 -1 | 1 3 | -1 1: cluster sums -4, 4, 0. Variance = 3/2 * (16 + 16 + 0) / 36 = 4/3; t
    # with 2 degrees of freedom = 4.302652729911275. A plain interval would use s^2/n = 22/5/6 = 0.733.
    found = estimate_mean(array(2, 4, 6, 8, 4, 6), np.array([0, 0, 1, 1, 2, 2]))
    half = 4.302652729911275 * math.sqrt(4 / 3)
    assert (found.n, found.clusters, found.value) == (6, 3, 5.0)
    assert (found.interval.low, found.interval.high) == pytest.approx((5 - half, 5 + half))
    assert found.interval.method == "clustered_t"


@pytest.mark.parametrize(
    ("values", "questions", "scale", "bounds"),
    [
        ((0.2, 0.4, 0.4, 0.8, 1, 0.6, 0.4, 1), (0, 0, 0, 1, 1, 2, 3, 3), (0, 1), (0.163141084330, 0.920266269613)),
        ((3, 4, 5, 5, 2, 5), (0, 1, 1, 2, 3, 4), (1, 5), (2.234072319338, 4.811068639602)),
        ((0.5, 0.5, 0.5, 0.5, 0.5, 0.75), (0, 1, 2, 3, 4, 5), (0, 1), (0.254690795599, 0.803427731698)),  # what may be unseen decides
    ],
)
def test_the_interval_on_a_scale(values: tuple, questions: tuple, scale: tuple[float, float], bounds: tuple[float, float]) -> None:
    """The rule of docs/statistics.md, row by row and cluster by cluster with scipy's quantile; Wilson's bounds as the roots of
    (p - mean)^2 = t^2 p (1 - p) / n_eff."""
    found = estimate_mean(array(*values), np.array(questions), low=scale[0], high=scale[1]).interval
    assert (found.low, found.high) == pytest.approx(bounds, abs=1e-11)
    assert (found.method, found.too_few) == ("wilson_n_eff", len(set(questions)) < 5)


def test_equal_sums_of_questions_are_no_certainty() -> None:
    """Two questions, values 0 1 1 and 1 1 0: mean 2/3, both sums of residuals 0, so the variance between them is 0.

    Greatest design effect (9 + 9) / 6 = 3, used (1 * 0 + 3) / 2 = 1.5, effective rows 6 / 1.5 = 4, and t with one
    degree of freedom, 12.706204736432095: hardly anything is known.
    """
    found = estimate_mean(array(0, 1, 1, 1, 1, 0), np.array([0, 0, 0, 1, 1, 1]), low=0.0, high=1.0).interval
    square = 12.706204736432095**2 / 4
    half = math.sqrt(square * 2 / 9 + square**2 / 4) / (1 + square)
    centre = (2 / 3 + square / 2) / (1 + square)
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half))
    assert found.high - found.low > 0.95
    assert found.too_few


@pytest.mark.parametrize(("value", "bounds"), [(5.0, (1.0, 5.0)), (1.0, (1.0, 5.0)), (3.0, (1.0, 5.0))])
def test_equal_values_on_a_scale_have_a_bound(value: float, bounds: tuple[float, float]) -> None:
    """Ten grades of ten questions, all the same: Wilson with 10 rows and t(9) = 2.2621571627409915. At an end that is
    n / (n + t^2) of the scale away from it; in the middle there are 10 / (4/10) = 25 effective rows m, and the half-width is
    t sqrt(1/4m + t^2/4m^2) / (1 + t^2/m)."""
    low, high = bounds
    found = estimate_mean(np.full(10, value), low=low, high=high).interval
    square = 2.2621571627409915**2
    reach = (high - low) * (1 - 10 / (10 + square))
    half = (high - low) * math.sqrt(square / 100 + square**2 / 2500) / (1 + square / 25)
    expected = {5.0: (5 - reach, 5.0), 1.0: (1.0, 1 + reach), 3.0: (3 - half, 3 + half)}[value]
    assert (found.low, found.high) == pytest.approx(expected)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=2, max_size=60),
    st.sampled_from([(0.0, 1.0), (1.0, 5.0), (0.0, 100.0)]),
)
def test_an_interval_on_a_scale_never_collapses_and_never_leaves_it(rows: list[tuple[int, int]], scale: tuple[float, float]) -> None:
    low, high = scale
    values = array(*(low + (high - low) * v / 20 for v, _ in rows))
    found = estimate_mean(values, np.array([g for _, g in rows]), low=low, high=high)
    if len({g for _, g in rows}) == 1:
        assert (found.interval, found.reason) == (None, "one_sample")
        return
    assert low <= found.interval.low <= found.value <= found.interval.high <= high
    assert found.interval.high - found.interval.low > 0.05 * (high - low)


@pytest.mark.parametrize(("questions", "too_few"), [(2, True), (4, True), (5, False), (30, False)])
def test_fewer_than_five_questions_are_too_few(questions: int, too_few: bool) -> None:
    values, codes = np.tile([0.0, 1.0, 1.0], questions), np.repeat(np.arange(questions), 3)
    single = np.arange(questions) % 2 * 1.0
    for found in (
        estimate_mean(values, codes, low=0.0, high=1.0), estimate_rate(values, codes), estimate_rate(single),
        estimate_mean(single * 7),
    ):  # fmt: skip
        assert found.interval.too_few is too_few


@pytest.mark.parametrize(
    ("values", "clusters", "mean", "reason"),
    [
        ([], None, None, "no_values"), ([0.5], None, 0.5, "one_value"), ([0.5, 0.7], [3, 3], 0.6, "one_sample"),
        ([0.7, 0.7, 0.7], None, 0.7, "no_spread"),
    ],
)  # fmt: skip
def test_no_interval_without_grounds(values: list[float], clusters: list[int] | None, mean: float | None, reason: str) -> None:
    found = estimate_mean(array(*values), np.array(clusters) if clusters else None)
    assert (found.n, found.clusters) == (len(values), len(set(clusters or range(len(values)))))
    assert found.interval is None
    assert found.reason == reason
    assert found.value == (None if mean is None else pytest.approx(mean, abs=1e-15))


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (81, 263), (15, 148), (1, 2)])
def test_wilson_equals_scipys(hits: int, n: int) -> None:
    found = estimate_rate(array(*([1.0] * hits + [0.0] * (n - hits)))).interval
    expected = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_clustered_rate_by_hand() -> None:
    """Questions 11, 00, 10 and 1: rate 4/7, residual sums 6/7, -8/7, -1/7, 3/7, so the variance is
    4/3 * 110/49 / 49; measured design effect 440/7203 * 7 / (12/49) = 440/252, greatest (4 + 4 + 4 + 1) / 7 = 13/7,
    used (3 * 440/252 + 13/7) / 4 = 149/84; 588/149 effective rows, t(3) = 3.182446305284263."""
    found = estimate_rate(array(1, 1, 0, 0, 1, 0, 1), np.array([0, 0, 1, 1, 2, 2, 3])).interval
    square = 3.182446305284263**2 * 149 / 588
    centre = (4 / 7 + square / 2) / (1 + square)
    half = math.sqrt(square * 12 / 49 + square**2 / 4) / (1 + square)
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half))
    assert found.method == "wilson_n_eff"


@pytest.mark.parametrize(("values", "low", "high", "fault"), [
    ((), 0, 1, None), ((0, 0.5, 1), 0, 1, None), ((-0.1, 0.5), 0, 1, "off the scale"), ((0.5, 1.1), 0, 1, "off the scale"),
    ((1,), 1, 1, "from low to high"), ((), 2, 1, "from low to high"),
])  # fmt: skip
def test_values_lie_on_a_scale_that_runs_upwards(values: tuple[float, ...], low: float, high: float, fault: str | None) -> None:
    with pytest.raises(ValueError, match=fault) if fault else nullcontext():
        check_scale(array(*values), low, high)


def test_clusters_have_numbers_and_sums_in_any_order() -> None:
    for numbers in ([1, 2], [1, 2, 3, 4]):
        with pytest.raises(ValueError, match="3 values"):
            estimate_mean(array(1, 2, 3), np.array(numbers))
    rng = np.random.default_rng(1)
    values = rng.normal(size=999) * 10.0 ** rng.integers(-12, 12, 999)
    assert estimate_mean(values).value == estimate_mean(values[::-1].copy()).value == estimate_mean(np.sort(values)).value


@pytest.mark.slow
def test_scipy_is_not_imported() -> None:
    code = "import sys, ragpipe.runs.scoring, ragpipe.runs.write_reports; print([m for m in ('scipy', 'pandas', 'rich', 'litellm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SHARES = st.lists(st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.8, 1.0]), min_size=4, max_size=60)


def test_tails_are_those_of_scipy() -> None:
    for t, degrees in ((-2.0, None), (1.3, None), (0.0, 7), (-2.5, 3), (0.4, 58)):
        expected = stats.norm.cdf(t) if degrees is None else stats.t.cdf(t, degrees)
        assert lower_tail(t, degrees) == pytest.approx(expected, rel=1e-8)
    for t, df in ((0.1, 1), (1.0, 3), (2.262157, 9), (4.0, 7), (0.5, 200), (12.7, 1)):
        assert two_sided_tail(t, df) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-10)


def test_p_values_of_a_rate_and_of_a_count() -> None:
    """statsmodels tests against the variance at the limit where it is told so: z = (.7 - .85) / sqrt(.85 * .15 / 40)."""
    hits = np.repeat([1.0, 0.0], [28, 12])
    _, expected = proportions_ztest(28, 40, value=0.85, alternative="smaller", prop_var=0.85)
    assert p_below(hits, None, 0.85, low=0.0, high=1.0, binary=True) == pytest.approx(expected)
    values = array(3, 5, 8, 4, 4, 7)
    assert p_below(values, None, 7.0) == pytest.approx(stats.ttest_1samp(values, 7.0, alternative="less").pvalue)


@given(SHARES, st.floats(0.05, 0.95), st.sampled_from([1, 2, 3]))
def test_it_is_below_half_the_risk_exactly_where_the_interval_ends_below_the_limit(values: list[float], limit: float, rows: int) -> None:
    rows_of, clusters = array(*values), np.arange(len(values)) // rows
    if len(np.unique(clusters)) < 2:
        return
    p = p_below(rows_of, clusters, limit, low=0.0, high=1.0)
    interval = estimate_mean(rows_of, clusters, low=0.0, high=1.0).interval
    if abs(interval.high - limit) > 1e-9:
        assert (p < 0.025) == (interval.high < limit)
    if abs(interval.low - limit) > 1e-9:
        assert (1 - p < 0.025) == (interval.low > limit)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 10, 29, 30, 100, 411, 5000, 100_000, 1_000_000])
def test_quantile_equals_scipys(level: float, df: int) -> None:
    assert t_quantile(level, df) == pytest.approx(stats.t.ppf(0.5 + level / 2, df), rel=1e-8)


NUMBERS = st.lists(st.integers(0, 6), max_size=12).map(lambda numbers: np.array(numbers, dtype=np.int64))
NONE = np.empty(0, dtype=np.int64)


@pytest.mark.slow
@given(NUMBERS)
def test_different_numbers_and_codes_are_those_of_unique(numbers: np.ndarray) -> None:
    for clusters in (numbers, np.sort(numbers)):
        names, expected = np.unique(clusters, return_inverse=True)
        assert intervals.distinct(clusters).tolist() == names.tolist()
        codes, groups = intervals.cluster_codes(clusters)
        assert (codes.tolist(), groups, codes.dtype) == (expected.tolist(), len(names), np.int64)


@pytest.mark.slow
@given(st.lists(NUMBERS, max_size=3))
def test_what_lists_share(lists: list[np.ndarray]) -> None:
    assert intervals.in_all(lists).tolist() == (reduce(np.intersect1d, lists, np.unique(lists[0])) if lists else NONE).tolist()
    assert intervals.in_any(lists).tolist() == reduce(np.union1d, lists, NONE).tolist()
