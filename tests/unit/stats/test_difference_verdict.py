"""Verdicts on a paired difference: the order of decisions by hand, both directions, several scores, drops, and rows needed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragpipe.stats.difference_verdict import DifferenceVerdict, decide_difference, decide_drop, decide_together, rows_needed
from ragpipe.stats.differences import paired_difference
from ragpipe.stats.intervals import estimate_mean, estimate_rate, normal_quantile, t_quantile, wilson_bounds
from ragpipe.stats.limits import effective_rows, resolve_drop, resolve_limit, rows_for_drop, rows_to_tell, strictest_limit

ROWS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 30)), min_size=1, max_size=60)
"""Base, candidate, question."""


def of(*changes: tuple[int, float], low: float | None = 0, high: float | None = 1, **settings) -> DifferenceVerdict:
    """The verdict on rows of as many questions, given as (how many, difference); the base is .5 where there is a scale of 0 to 1."""
    differences = np.concatenate([np.full(count, difference) for count, difference in changes])
    base = np.full(len(differences), 0.0 if low is None else (low + high) / 2)
    return decide_difference(base, base + differences, low=low, high=high, **{"smallest_effect": 0.05, **settings})


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        (((5, 0.5), (95, 0)), "inconclusive", "few_changed"),  # 5 of 100 changed
        # .95^58 = .051 and .95^59 = .0485: from 59 questions on, none of which changed, a change of .05 is excluded at 5 %
        (((58, 0),), "inconclusive", "few_changed"),
        (((59, 0),), "same", None),
        (((5, 0.2), (995, 0)), "same", None),
        (((6, 0.01), (94, 0)), "same", None),
        (((50, 0.02), (50, -0.01)), "same", None),  # the 95 % interval excludes 0, but .02 does not matter
        (((6, 0.0799), (10, 0)), "better", None),  # the end and its lean: .05003 with t of 15 degrees of freedom, .04999 with 17
        (((60, 0.4), (40, -0.1)), "better", None),
        (((60, -0.4), (40, 0.1)), "worse", None),
        (((10, 0.4), (8, -0.4)), "inconclusive", "too_wide"),
        (((1, 0.5),), "inconclusive", "one_sample"),
        (((0, 0.5),), "inconclusive", "no_pairs"),
    ],
)
def test_the_order_of_decisions(changes: tuple[tuple[int, float], ...], state: str, reason: str | None) -> None:
    verdict = of(*changes)
    assert (verdict.state, verdict.reason) == (state, reason)
    turned = of(*((count, -difference) for count, difference in changes), higher_is_better=False)
    assert (turned.state, turned.reason) == (state, reason)
    assert (turned.wins, turned.losses, turned.at_least) == (verdict.wins, verdict.losses, pytest.approx(verdict.at_least))


def test_same_is_two_one_sided_tests() -> None:
    """As statsmodels decides equivalence: the larger p of both sides against .05."""
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    rng = np.random.default_rng(3)
    states = []
    for spread in np.linspace(0.05, 0.4, 40):
        base = rng.uniform(0.4, 0.6, 60)
        candidate = np.clip(base + spread * rng.standard_normal(60), 0, 1)
        state = decide_difference(base, candidate, low=0, high=1, smallest_effect=0.05).state
        assert (state == "same") == (weightstats.ttost_paired(candidate, base, -0.05, 0.05)[0] < 0.05)
        states.append(state)
    assert 5 < states.count("same") < 35


def test_without_a_scale_and_with_a_smallest_effect() -> None:
    latency = of((30, 100.0), (30, 140.0), low=None, smallest_effect=50, higher_is_better=False)
    assert (latency.state, latency.wins, latency.losses) == ("worse", 0, 60)
    alike = of((30, 100.0), low=None, smallest_effect=50)
    assert (alike.state, alike.reason, alike.n_needed) == ("inconclusive", "no_spread", None)
    for effect in (0, -0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="above 0"):
            of((10, 0.1), smallest_effect=effect)


@pytest.mark.parametrize(("spread", "needed"), [(0.45, 695), (0.25, 215), (0.29, 289)])
def test_rows_needed_are_those_of_the_formula(spread: float, needed: int) -> None:
    """(2.93 sd_d / .05)^2 = 695, 215, 289, by the rounded factor: half a percent from 2.9264."""
    half = [(15, spread), (15, -spread)]
    verdict = of(*half)
    unbiased = np.std([d for count, d in half for _ in range(count)], ddof=1) / spread
    assert verdict.state == "inconclusive"
    assert verdict.n_needed / unbiased**2 == pytest.approx(needed, rel=0.006)
    power_z = stats.norm.ppf(0.95) + stats.norm.ppf(0.9)
    assert verdict.n_needed == math.ceil((power_z * unbiased * spread / 0.05) ** 2)


def test_rows_needed_with_few_changes_and_between() -> None:
    """Until 6 or more change in 8 of 10 samples, or until so few changes exclude the effect, whichever comes first."""
    assert stats.poisson.sf(5, 7.906) == pytest.approx(0.8, abs=1e-4)
    assert of((4, 0.1), (36, 0)).n_needed == math.ceil(40 * 7.906 / 4)
    assert of((4, 0.1), (96, 0)).n_needed == next(n for n in range(101, 999) if stats.binom.cdf(4, n, 0.05) <= 0.05)
    assert of((40, 0)).n_needed == of((40, 0), low=1, high=5, smallest_effect=0.2).n_needed == 59
    assert of((40, 0), low=None).n_needed is None
    # 400 rows were enough for .04, but the mean is .02: what .02 needs to differ from 0, or from .04.
    paired = of((215, 0.27), (185, -0.27), smallest_effect=0.04).paired
    assert paired.difference == pytest.approx(0.02025)
    size, error = paired.difference, paired.error
    unlike, alike = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)), (stats.norm.ppf(0.95) + stats.norm.ppf(0.8))
    expected = min((unlike * error / size) ** 2, (alike * error / (0.04 - size)) ** 2) * 400
    assert rows_needed(paired, 0.04) == math.ceil(expected) > 1000


@pytest.mark.parametrize("size", [1.0, 0.5, 0.3, 0.2])
def test_few_large_changes_are_no_proof_of_the_same(size: float) -> None:
    """A share .05 / size of the questions changes, so the true difference is the smallest effect: at most 5 % of samples are called
    the same, where the t interval alone does so in up to 11 %."""
    for n in (60, 90, 140, 200, 230, 280, 300):
        rows = [np.repeat([size, 0.0], [k, n - k]) for k in range(math.ceil(0.05 / size * n))]
        verdicts = [decide_difference(np.zeros(n), row, low=0, high=1, smallest_effect=0.05) for row in rows]
        called = [k for k, verdict in enumerate(verdicts) if verdict.state == "same"]
        assert stats.binom.pmf(called, n, 0.05 / size).sum() <= 0.0505, n


def test_several_scores_must_be_more_certain() -> None:
    """Ten of thirteen better: p of about .04, doubled it is above .05."""
    alone = of((13, 0.4), (4, -0.4), (33, 0))
    assert 0.025 < alone.paired.p_value < 0.05
    assert (alone.state, decide_together([alone])[0].state) == ("better", "better")
    first, second, third = decide_together([alone, of((14, 0.4), (13, -0.4), (23, 0.0)), of((30, 0.01), (20, 0.0))])
    assert (first.state, first.reason, second.state, third.state) == ("inconclusive", "several_scores", "inconclusive", "same")
    assert first.n_needed > 50
    assert first.p_adjusted == pytest.approx(2 * alone.paired.p_value)
    assert decide_together([alone, of((50, 0.0))])[0].state == "better"  # where nothing can change nothing is tested
    assert decide_together([alone], beside=[0.2])[0].state == "inconclusive"  # another candidate's
    clear = of((40, 0.3), (10, -0.1))
    assert [v.state for v in decide_together([clear, alone])] == ["better", "better"]
    assert decide_together([of((0, 0.0))])[0].p_adjusted is None


@pytest.mark.parametrize(
    ("changes", "max_drop", "state", "reason"),
    [
        (((60, 0.4), (40, -0.1)), 0.05, "passed", None),
        (((60, -0.4), (40, 0.1)), 0.05, "failed", None),
        (((60, -0.4), (40, 0.1)), 0.5, "passed", None),  # a drop, but one that is allowed
        (((10, -0.4), (10, 0.4)), 0.05, "inconclusive", "too_wide"),
        (((80, -0.05), (20, 0.02)), 0.05, "passed", None),  # .036 +- .006
        (((90, -0.07), (10, 0.3)), 0.05, "inconclusive", "too_wide"),  # a drop, less than .05 on the mean
        (((100, 0),), 0.05, "passed", None),
        (((60, 0),), 0.05, "inconclusive", "few_changed"),  # .95^60 = .046: a drop of .05 may well have shown nothing
        (((80, 0),), 0.05, "passed", None),  # .95^80 = .017
        (((100, 0),), 0.0, "inconclusive", "few_changed"),
        (((5, -0.5), (15, 0)), 0.05, "inconclusive", "few_changed"),
        (((0, 0.0),), 0.05, "inconclusive", "no_pairs"),
        (((1, 0.0),), 0.05, "inconclusive", "one_sample"),
    ],
)
def test_a_drop(changes: tuple[tuple[int, float], ...], max_drop: float, state: str, reason: str | None) -> None:
    verdict = decide_drop(of(*changes).paired, max_drop, span=1)
    assert (verdict.state, verdict.reason) == (state, reason)


def test_the_figures_of_a_drop() -> None:
    base = np.full(40, 3.0)
    candidate = base + np.tile([-2, 0, 1, -1], 10)
    paired = paired_difference(base, candidate, low=1, high=5)
    verdict = decide_drop(paired, 0.2, span=4)
    test = stats.ttest_1samp(candidate - base, 0, alternative="less")
    assert verdict.drop == pytest.approx(0.5)
    assert (verdict.low, verdict.high) == pytest.approx((-paired.interval.high, -paired.interval.low))
    assert verdict.p_value == pytest.approx(test.pvalue)
    rise = decide_drop(paired_difference(candidate, base, low=1, high=5), 0.2, span=4)
    assert rise.p_value == pytest.approx(1 - test.pvalue)
    with pytest.raises(ValueError, match="0 or more"):
        decide_drop(paired, -0.1)


@pytest.mark.slow
@given(ROWS, st.floats(0.01, 0.5), st.booleans())
def test_what_always_holds(rows: list[tuple[int, int, int]], effect: float, higher: bool) -> None:
    base, candidate = (np.array([row[place] / 10 for row in rows]) for place in (0, 1))
    questions = np.array([row[2] for row in rows], dtype=np.int64)
    verdict = decide_difference(base, candidate, questions, low=0, high=1, smallest_effect=effect, higher_is_better=higher)
    turned = decide_difference(candidate, base, questions, low=0, high=1, smallest_effect=effect, higher_is_better=higher)
    opposite = {"better": "worse", "worse": "better"}
    assert turned.state == opposite.get(verdict.state, verdict.state)
    assert verdict.n_needed is None or (verdict.state == "inconclusive" and verdict.n_needed > len(rows))
    assert (verdict.at_least is not None) == (verdict.state in opposite)
    assert verdict.paired.can_decide or verdict.state == "inconclusive"
    if verdict.state == "same":
        assert abs(verdict.paired.difference) < effect
    drop = decide_drop((verdict if higher else turned).paired, effect, span=1)
    if drop.state == "failed":
        assert verdict.state == "worse"
        assert drop.drop > effect
    if drop.state == "passed":
        assert drop.drop <= effect


Z, OF_POWER = stats.norm.ppf(0.975), stats.norm.ppf(0.8)


@pytest.mark.parametrize(("n", "fails_at", "passes_at"), [(30, 0.65, 0.99), (100, 0.74, 0.94), (300, 0.79, 0.905), (1000, 0.82, 0.88)])
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


@pytest.mark.parametrize("n", [5, 30, 200])
def test_a_run_without_a_fault_passes_the_strictest_limit(n: int) -> None:
    assert estimate_rate(np.ones(n)).interval.low == pytest.approx(strictest_limit(n))
    assert strictest_limit(n) == pytest.approx(n / (n + 3.84), abs=1e-4)


def test_rows_to_tell_two_rates_apart() -> None:
    """((1.96 sqrt(.85 * .15) + .84 sqrt(.88 * .12)) / .03)^2 = ((.6999 + .2735) / .03)^2 = 1,053; from below as well."""
    assert rows_to_tell(0.88, 0.85) == 1053
    assert rows_to_tell(0.88, 0.85, 2.5) == math.ceil(2.5 * ((0.69985 + 0.27349) / 0.03) ** 2)
    assert rows_to_tell(0.82, 0.85) > 1053
    assert rows_to_tell(0.85, 0.85) is None
    assert resolve_limit(0.8, rows_to_tell(0.9, 0.8)).passes_at == pytest.approx(0.9, abs=0.001)


def test_a_drop_of_gate_resolution() -> None:
    """Spread .45 over 100 rows: S = .045; .84 S + max(1.96 S, .05) = .0379 + .0882; unchanged from 2.80 S = .126 on."""
    resolution = resolve_drop(0.45, 100, 0.05)
    assert resolution.finds == pytest.approx(0.12607, abs=1e-4)
    assert resolution.smallest_max_drop == pytest.approx(0.12607, abs=1e-4)
    assert resolve_drop(0.45, 100, 0.1).finds == pytest.approx(0.1379, abs=1e-4)
    assert rows_for_drop(0.45, 0.05) == math.ceil((2.80158 * 0.45 / 0.05) ** 2)
    assert rows_for_drop(0.45, 0.05, 2) == math.ceil(2 * (2.80158 * 0.45 / 0.05) ** 2)
    assert resolve_drop(0.25, rows_for_drop(0.25, 0.05), 0.05).smallest_max_drop == pytest.approx(0.05, abs=2e-4)
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
        rows = effective_rows(estimate.value, interval.low, interval.high, quantile=quantile)
        assert wilson_bounds(estimate.value, rows, quantile) == pytest.approx((interval.low, interval.high))
    assert rows == pytest.approx(12)
    assert effective_rows(0.5, 0.5, 0.5, quantile=2) is None
    assert effective_rows(0.5, 0.0, 1.0, quantile=2) is None
