"""What a gate can tell: the equations by their own terms, exact binomial powers of the gate, and its limits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragpipe.stats.gate_resolution import (
    effective_rows,
    resolve_drop,
    resolve_limit,
    rows_for_drop,
    rows_to_tell,
    strictest_limit,
)
from ragpipe.stats.intervals import estimate_mean, estimate_rate, wilson_bounds
from ragpipe.stats.student_t import normal_quantile, t_quantile

Z, OF_POWER = stats.norm.ppf(0.975), stats.norm.ppf(0.8)


@pytest.mark.parametrize(
    ("n", "fails_at", "passes_at"), [(30, 0.65, 0.99), (100, 0.74, 0.94), (300, 0.79, 0.905), (1000, 0.82, 0.88)]
)
def test_a_rate_of_85_percent(n: int, fails_at: float, passes_at: float) -> None:
    """The rounded figures of docs/statistics.md, and the exact power of the gate at both values: .78 to .86."""
    resolution = resolve_limit(0.85, n)
    assert resolution.fails_at == pytest.approx(fails_at, abs=0.005)
    assert resolution.passes_at == pytest.approx(passes_at, abs=0.005)
    hits = np.arange(n + 1)
    bounds = [wilson_bounds(k / n, n, normal_quantile(0.95)) for k in hits]
    fails = sum(stats.binom.pmf(k, n, resolution.fails_at) for k in hits if bounds[k][1] < 0.85)
    passes = sum(stats.binom.pmf(k, n, resolution.passes_at) for k in hits if bounds[k][0] >= 0.85)
    assert 0.77 < fails < 0.86
    assert 0.77 < passes < 0.86


@given(st.floats(0.02, 0.98), st.floats(2, 5000))
def test_both_values_solve_their_equation(limit: float, rows: float) -> None:
    resolution = resolve_limit(limit, rows)
    margin = Z * math.sqrt(limit * (1 - limit) / rows)
    for value, distance in ((resolution.fails_at, limit), (resolution.passes_at, 1 - limit)):
        if value is None:
            assert margin >= distance - 1e-12
        else:
            spread = OF_POWER * math.sqrt(value * (1 - value) / rows)
            assert abs(value - limit) == pytest.approx(margin + spread, abs=1e-9)
    # a limit passes for some true value exactly where a run without a fault passes it
    assert (resolution.passes_at is None) == (limit >= strictest_limit(rows) - 1e-12)
    mirrored = resolve_limit(1 - limit, rows)
    assert (mirrored.fails_at is None) == (resolution.passes_at is None)
    if mirrored.fails_at is not None:
        assert 1 - mirrored.fails_at == pytest.approx(resolution.passes_at)


@pytest.mark.parametrize("n", [5, 30, 200])
def test_a_run_without_a_fault_passes_the_strictest_limit(n: int) -> None:
    interval = estimate_rate(np.ones(n)).interval
    assert interval.low == pytest.approx(strictest_limit(n))
    assert strictest_limit(n) == pytest.approx(n / (n + 3.84), abs=1e-4)


def test_rows_to_tell_two_rates_apart() -> None:
    """((1.96 sqrt(.85 * .15) + .84 sqrt(.88 * .12)) / .03)^2 = ((.6999 + .2735) / .03)^2 = 1,053; from below as well."""
    assert rows_to_tell(0.88, 0.85) == 1053
    assert rows_to_tell(0.88, 0.85, 2.5) == math.ceil(2.5 * ((0.69985 + 0.27349) / 0.03) ** 2)
    assert rows_to_tell(0.82, 0.85) > 1053
    assert rows_to_tell(0.85, 0.85) is None
    n = rows_to_tell(0.9, 0.8)
    assert resolve_limit(0.8, n).passes_at == pytest.approx(0.9, abs=0.001)


@pytest.mark.parametrize(("limit", "rows"), [(0, 10), (1, 10), (0.5, 0), (math.nan, 10)])
def test_a_limit_inside_the_scale(limit: float, rows: float) -> None:
    with pytest.raises(ValueError, match="limit between 0 and 1"):
        resolve_limit(limit, rows)
    with pytest.raises(ValueError, match="limit between"):
        rows_to_tell(1.5, 0.5)


def test_a_drop() -> None:
    """Spread .45 over 100 rows: S = .045; .84 S + max(1.96 S, .05) = .0379 + .0882; unchanged from 2.80 S = .126 on."""
    resolution = resolve_drop(0.45, 100, 0.05)
    assert resolution.finds == pytest.approx(0.12607, abs=1e-4)
    assert resolution.smallest_max_drop == pytest.approx(0.12607, abs=1e-4)
    assert resolve_drop(0.45, 100, 0.1).finds == pytest.approx(0.1379, abs=1e-4)
    assert rows_for_drop(0.45, 0.05) == math.ceil((2.80158 * 0.45 / 0.05) ** 2)
    assert rows_for_drop(0.45, 0.05, 2) == math.ceil(2 * (2.80158 * 0.45 / 0.05) ** 2)
    n = rows_for_drop(0.25, 0.05)
    assert resolve_drop(0.25, n, 0.05).smallest_max_drop == pytest.approx(0.05, abs=2e-4)
    with pytest.raises(ValueError, match="above 0"):
        rows_for_drop(0.45, 0)
    with pytest.raises(ValueError, match="0 or more"):
        resolve_drop(0.45, 100, -0.1)


def test_rows_of_an_interval() -> None:
    """Read back from the bounds that a run wrote: the rows divided by the design effect."""
    rng = np.random.default_rng(2)
    for values, questions in (
        (rng.binomial(5, 0.8, 60) / 5, None),
        (rng.binomial(1, 0.3, 60).astype(float), np.repeat(np.arange(20), 3)),
        (np.ones(12), None),
    ):
        estimate = estimate_mean(values, questions, low=0, high=1)
        interval = estimate.interval
        quantile = t_quantile(0.95, estimate.clusters - 1)
        rows = effective_rows(estimate.mean, interval.low, interval.high, quantile=quantile)
        assert wilson_bounds(estimate.mean, rows, quantile) == pytest.approx((interval.low, interval.high))
    assert rows == pytest.approx(12)
    assert effective_rows(0.5, 0.5, 0.5, quantile=2) is None
    assert effective_rows(0.5, 0.0, 1.0, quantile=2) is None
