from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportions_ztest

from ragpipe.stats.intervals import estimate_mean, estimate_rate
from ragpipe.stats.limit_tests import lower_tail, p_below

SHARES = st.lists(st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.8, 1.0]), min_size=4, max_size=60)


def floats(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize(("t", "degrees"), [(-2.0, None), (1.3, None), (0.0, 7), (-2.5, 3), (0.4, 58)])
def test_tails_are_those_of_scipy(t: float, degrees: int | None) -> None:
    expected = stats.norm.cdf(t) if degrees is None else stats.t.cdf(t, degrees)
    assert lower_tail(t, degrees) == pytest.approx(expected, rel=1e-8)


def test_a_rate_of_single_rows_is_the_score_test() -> None:
    """statsmodels tests against the variance at the limit where it is told so: z = (.7 - .85) / sqrt(.85 * .15 / 40)."""
    hits = floats([1.0] * 28 + [0.0] * 12)
    _, expected = proportions_ztest(28, 40, value=0.85, alternative="smaller", prop_var=0.85)
    assert p_below(hits, None, 0.85, low=0.0, high=1.0, binary=True) == pytest.approx(expected)


def test_a_count_is_students_test() -> None:
    values = floats([3, 5, 8, 4, 4, 7])
    expected = stats.ttest_1samp(values, 7.0, alternative="less").pvalue
    assert p_below(values, None, 7.0) == pytest.approx(expected)


@given(SHARES, st.floats(0.05, 0.95), st.sampled_from([1, 2, 3]))
def test_it_is_below_half_the_risk_exactly_where_the_interval_ends_below_the_limit(
    values: list[float], limit: float, rows: int
) -> None:
    array, clusters = floats(values), np.arange(len(values)) // rows
    if len(np.unique(clusters)) < 2:
        return
    p = p_below(array, clusters, limit, low=0.0, high=1.0)
    interval = estimate_mean(array, clusters, low=0.0, high=1.0).interval
    assert interval is not None
    assert p is not None
    if abs(interval.high - limit) > 1e-9:
        assert (p < 0.025) == (interval.high < limit)
    if abs(interval.low - limit) > 1e-9:
        assert (1 - p < 0.025) == (interval.low > limit)


@given(st.lists(st.booleans(), min_size=2, max_size=80), st.floats(0.05, 0.95))
def test_so_it_is_for_rates(values: list[bool], limit: float) -> None:
    hits = floats([float(value) for value in values])
    p, interval = p_below(hits, None, limit, low=0.0, high=1.0, binary=True), estimate_rate(hits).interval
    assert interval is not None
    assert p is not None
    if abs(interval.high - limit) > 1e-9:
        assert (p < 0.025) == (interval.high < limit)


@pytest.mark.parametrize(
    ("values", "clusters", "limit", "scale"),
    [
        ([0.5], None, 0.6, (0.0, 1.0)),  # one row
        ([0.5, 0.6], [1, 1], 0.6, (0.0, 1.0)),  # one question
        ([0.5, 0.6], None, 1.0, (0.0, 1.0)),  # no mean is beyond the end of the scale
        ([4.0, 4.0], None, 5.0, (None, None)),  # no spread
    ],
)
def test_where_it_is_not_defined_there_is_none(
    values: list[float], clusters: list[int] | None, limit: float, scale: tuple[float | None, float | None]
) -> None:
    codes = None if clusters is None else np.array(clusters)
    assert p_below(floats(values), codes, limit, low=scale[0], high=scale[1]) is None
