from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from ragpipe.stats.intervals import estimate_mean, estimate_rate


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_independent_mean_is_the_t_interval() -> None:
    values = [3.0, 4.5, 2.0, 5.0, 4.0, 3.5]
    found = estimate_mean(array(*values))
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert found.mean == pytest.approx(22 / 6)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))
    assert found.interval.method == "t"


def test_one_row_a_cluster_equals_independent_rows() -> None:
    values = array(0.1, 0.7, 0.4, 0.9)
    assert estimate_mean(values, np.array([7, 3, 99, 1])) == estimate_mean(values)


def test_clustered_mean_by_hand() -> None:
    """Residuals from the mean 5 are -3 -1 | 1 3 | -1 1: cluster sums -4, 4, 0.

    Variance = 3/2 * (16 + 16 + 0) / 36 = 4/3; t with 2 degrees of freedom = 4.302652729911275. A plain interval would
    use s^2/n = 22/5/6 = 0.733.
    """
    found = estimate_mean(array(2, 4, 6, 8, 4, 6), np.array([0, 0, 1, 1, 2, 2]))
    half = 4.302652729911275 * math.sqrt(4 / 3)
    assert (found.n, found.clusters, found.mean) == (6, 3, 5.0)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((5 - half, 5 + half))
    assert found.interval.method == "clustered_t"


def test_clustered_variance_is_millers_with_the_small_sample_factor() -> None:
    """Miller 2024, eq. 4: SE^2 = (sum of squared residuals + cross products within clusters) / n^2, times G/(G-1)."""
    rng = np.random.default_rng(5)
    clusters = rng.integers(0, 9, 40)
    values = rng.normal(size=40) + clusters
    e = values - values.mean()
    cross = sum(e[i] * e[j] for i in range(40) for j in range(40) if i != j and clusters[i] == clusters[j])
    groups = len(set(clusters.tolist()))
    error = math.sqrt((np.sum(e**2) + cross) / 40**2 * groups / (groups - 1))
    found = estimate_mean(values, clusters)
    assert found.interval is not None
    assert found.interval.high - values.mean() == pytest.approx(stats.t.ppf(0.975, groups - 1) * error)


def test_duplicating_every_row_does_not_narrow_the_interval() -> None:
    values = array(0.2, 0.9, 0.4, 0.6, 0.8)
    once = estimate_mean(values).interval
    twice = estimate_mean(np.repeat(values, 2), np.repeat(np.arange(5), 2)).interval
    assert once is not None
    assert twice is not None
    assert (once.low, once.high) == pytest.approx((twice.low, twice.high))


def test_bounds_are_clipped_to_the_scale() -> None:
    found = estimate_mean(array(0.0, 1.0, 1.0), low=0.0, high=1.0).interval
    assert found is not None
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "clusters", "mean", "reason"),
    [
        ([], None, None, "no_values"),
        ([0.5], None, 0.5, "one_value"),
        ([0.5, 0.7], [3, 3], 0.6, "one_sample"),
        ([0.7, 0.7, 0.7], None, 0.7, "no_spread"),
    ],
)
def test_no_interval_without_grounds(
    values: list[float], clusters: list[int] | None, mean: float | None, reason: str
) -> None:
    found = estimate_mean(array(*values), np.array(clusters) if clusters else None)
    assert found.interval is None
    assert found.reason == reason
    assert found.mean == (None if mean is None else pytest.approx(mean, abs=1e-15))


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (81, 263), (15, 148), (1, 2)])
def test_wilson_equals_scipys(hits: int, n: int) -> None:
    found = estimate_rate(array(*([1.0] * hits + [0.0] * (n - hits)))).interval
    expected = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_equals_newcombes_table() -> None:
    """Newcombe 1998, table I, method 3: 81/263 gives 0.2553 to 0.3662, 0/20 gives 0.0000 to 0.1611."""
    for hits, n, low, high in ((81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (15, 148, 0.0624, 0.1605)):
        found = estimate_rate(array(*([1.0] * hits + [0.0] * (n - hits)))).interval
        assert found is not None
        assert (round(found.low, 4), round(found.high, 4)) == (low, high)


def test_clustered_wilson_by_hand() -> None:
    """Three pairs 11, 00, 10: p = 1/2, residual sums 1, -1, 0, variance = 3/2 * 2/36 = 1/12, plain = 1/4/5 = 1/20,
    design effect 5/3, effective n = 3.6, t(2) = 4.302652729911275."""
    found = estimate_rate(array(1, 1, 0, 0, 1, 0), np.array([0, 0, 1, 1, 2, 2])).interval
    square = 4.302652729911275**2 / 3.6
    half = math.sqrt(square / 4 + square**2 / 4) / (1 + square)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert found.method == "clustered_wilson"


def test_all_equal_rates_count_clusters_not_rows() -> None:
    """Ten rows of five questions, all passed: no more sure than five would be."""
    found = estimate_rate(np.ones(10), np.repeat(np.arange(5), 2)).interval
    t = stats.t.ppf(0.975, 4)
    assert found is not None
    assert found.high == 1.0
    assert found.low == pytest.approx(1 / (1 + t * t / 5))


@pytest.mark.parametrize(
    ("hits", "clusters", "reason"),
    [([], None, "no_values"), ([1.0], None, "one_value"), ([1.0, 0.0], [4, 4], "one_sample")],
)
def test_no_rate_interval_without_grounds(hits: list[float], clusters: list[int] | None, reason: str) -> None:
    found = estimate_rate(array(*hits), np.array(clusters) if clusters else None)
    assert (found.interval, found.reason) == (None, reason)


def test_sums_do_not_depend_on_order() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=999) * 10.0 ** rng.integers(-12, 12, 999)
    assert estimate_mean(values).mean == estimate_mean(values[::-1].copy()).mean == estimate_mean(np.sort(values)).mean


def test_scipy_is_not_imported() -> None:
    code = "import sys, ragpipe.stages.score, ragpipe.stages.report; print([m for m in ('scipy', 'pandas', 'rich', 'litellm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
