"""Decisions are wrong as often as docs/statistics.md says: a part of its simulation with other draws, and exact sums."""

import math

import decisions as benchmark
import numpy as np
import pytest
from scipy import stats

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
SEED = 71


def chance(share: float, repetitions: int, cells: int = 1) -> float:
    """How far a share may be off by chance in one of a thousand runs of this test, over so many cells (Bonferroni)."""
    return float(stats.norm.isf(0.0005 / cells) * math.sqrt(max(share * (1 - share), 0.0025) / repetitions)) + 0.005


# --- exact, in every run


@pytest.mark.parametrize(
    ("n", "blocks", "fails", "passes"),
    [
        (30, 0.29, (0.01, 0.03, 0.13, 0.33), (0.02, 0.04, 0.215)),
        (100, 0.14, (0.00, 0.04, 0.35, 0.79), (0.14, 0.32, 0.94)),
        (300, 0.05, (0.00, 0.02, 0.64, 0.99), (0.27, 0.69, 1.00)),
    ],
)
def test_a_gate_on_a_rate(n: int, blocks: float, fails: tuple[float, ...], passes: tuple[float, ...]) -> None:
    """min .85, by the functions of a run: sums over the binomial distribution, to the digits of the table."""
    assert benchmark.gate_rates(n, 0.85, 0.88)[2] == pytest.approx(blocks, abs=0.006)
    failing = [benchmark.gate_rates(n, 0.85, truth)[0] for truth in (0.88, 0.85, 0.8, 0.75)]
    passing = [benchmark.gate_rates(n, 0.85, truth)[1] for truth in (0.88, 0.9, 0.95)]
    assert (failing, passing) == (pytest.approx(fails, abs=0.006), pytest.approx(passes, abs=0.006))


# --- simulated

REPETITIONS = 300
NULL_CELLS = len(benchmark.QUESTIONS) * len(benchmark.NULLS)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("cell", benchmark.QUESTIONS, ids=str)
def test_equal_systems_seldom_differ_and_the_interval_holds_the_truth(cell: tuple[int, bool]) -> None:
    """False alarms of any cell at most .07, coverage of any at least .92; on the mean .05 at most."""
    nulls = [benchmark.compare(cell, kind, 0.0, REPETITIONS, SEED) for kind in benchmark.NULLS]
    changed = [benchmark.compare(cell, kind, -0.05, REPETITIONS, SEED) for kind in (benchmark.RATE_SAME, benchmark.SHARES_SAME)]
    assert max(result.alarms for result in nulls) <= 0.07 + chance(0.07, REPETITIONS, NULL_CELLS)
    assert np.mean([result.alarms for result in nulls]) <= 0.05 + chance(0.05, REPETITIONS * 4)
    assert min(result.covered for result in (*nulls, *changed)) >= 0.92 - chance(0.92, REPETITIONS, NULL_CELLS)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("values", "likeness", "change", "overlap", "paired"), [
    ("shares", 0.5, -0.05, 0.04, 0.48), ("shares", 0.5, -0.1, 0.50, 0.96), ("shares", 0.84, -0.05, 0.01, 0.86),
    ("0/1", 0.5, -0.05, 0.02, 0.22), ("0/1", 0.5, -0.1, 0.11, 0.55), ("0/1", 0.84, -0.05, 0.00, 0.31),
    ("0/1", 0.84, -0.1, 0.06, 0.75),
])  # fmt: skip
def test_pairs_find_what_overlap_does_not(values: str, likeness: float, change: float, overlap: float, paired: float) -> None:
    result = benchmark.compare((100, False), benchmark.Kind(values, 0.85, likeness), change, REPETITIONS, SEED)
    assert result.overlap == pytest.approx(overlap, abs=chance(overlap, REPETITIONS, 14) + 0.01)
    assert result.alarms == pytest.approx(paired, abs=chance(paired, REPETITIONS, 14) + 0.01)


def test_verdicts_on_normal_differences() -> None:
    """Equal systems: 2.5 % better, 2.5 % worse. A true .05: at most 1 % the wrong sign, 5 % `same`. With the rows of the formula
    each is found in 8 of 10."""
    for n in (30, 100, 300):
        null, moved = (benchmark.verdicts_of_normal(n, truth, 1000, SEED) for truth in (0.0, 0.05))
        for state in ("better", "worse"):
            assert null.get(state, 0) <= 0.025 + chance(0.025, 1000, 6)
        assert moved.get("worse", 0) <= 0.01 + chance(0.01, 1000, 6)
        assert moved.get("same", 0) <= 0.05 + chance(0.05, 1000, 6)
    found = benchmark.verdicts_of_normal(math.ceil((2.80 * 0.3 / 0.05) ** 2), 0.05, 1000, SEED)
    same = benchmark.verdicts_of_normal(math.ceil((2.93 * 0.3 / 0.05) ** 2), 0.0, 1000, SEED)
    assert found["better"] == pytest.approx(0.8, abs=chance(0.8, 1000, 2))
    assert same["same"] == pytest.approx(0.8, abs=chance(0.8, 1000, 2))


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("n", [30, 100, 300])
def test_gates_against_a_baseline(n: int) -> None:
    """A/A blocks at most 5 % of runs in every cell; what is found at n = 300; a drop of just max_drop passes at most 5 %."""
    for kind in benchmark.GATED:
        null, tolerated, dropped = (benchmark.compare((n, False), kind, -drop, REPETITIONS, SEED) for drop in (0.0, 0.05, 0.1))
        for max_drop in (0.02, 0.05):
            assert null.drops[max_drop].get("failed", 0) <= 0.037 + chance(0.037, REPETITIONS, 30)
        assert tolerated.drops[0.05].get("passed", 0) <= 0.05 + chance(0.05, REPETITIONS, 30)
        assert dropped.drops[0.02].get("passed", 0) <= 0.025 + chance(0.025, REPETITIONS, 30)
        if n == 300:
            assert dropped.drops[0.02].get("failed", 0) >= 0.96 - chance(0.96, REPETITIONS, 5)


def test_several_gates_scores_and_slices() -> None:
    """Twelve gates or scores of identical systems: at most 5 % with Holm's method, .26 and .46 without."""
    blocked, unadjusted = benchmark.false_blocks(12, 400, SEED)
    assert blocked <= 0.05 + chance(0.05, 400, 4)
    assert unadjusted == pytest.approx(1 - 0.975**12, abs=chance(0.26, 400, 4))
    called, unadjusted = benchmark.false_scores(12, 400, SEED)
    assert called <= 0.05 + chance(0.05, 400, 4)
    assert unadjusted == pytest.approx(1 - 0.95**12, abs=chance(0.46, 400, 4))
    for correlation in (0.0, 0.8):
        for changed in (0.0, 0.2):
            assert benchmark.false_slices(correlation, changed, 1500, SEED) <= 0.05 + chance(0.05, 1500, 4)


def test_the_noise_floor_and_flips() -> None:
    """Two runs over the same answers stay within the floor in .94 to .96; flips have the same mean for any number of judgings."""
    for n, repeats in ((30, 2), (100, 3)):
        within, judge, items = benchmark.repeated_judging(n, repeats, 0.3, 0.15, 1500, SEED)
        assert within == pytest.approx(0.95, abs=0.01 + chance(0.95, 1500, 2))
        assert (judge, items) == pytest.approx((0.15, 0.3), rel=0.01)
    ever = []
    for repeats in (2, 3, 5):
        rate, truth, flipped = benchmark.flipping(100, repeats, 600, SEED)
        assert rate == pytest.approx(truth, abs=0.003)
        ever.append(flipped)
    assert ever == pytest.approx([0.08, 0.13, 0.17], abs=0.012)
