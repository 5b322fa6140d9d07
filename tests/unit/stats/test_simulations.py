"""Intervals cover and decisions err as often as docs/statistics.md says: a part of its simulations, with other draws."""

import math
from functools import lru_cache
from typing import Any

import decisions
import intervals as benchmark
import numpy as np
import pytest
from scipy import stats

from ragpipe.stats.detection import decide_kappa

pytestmark = pytest.mark.slow
SEED = 7


def chance(share: float, repetitions: float, cells: int) -> float:
    """How far under a true share one of so many cells is seen, in one of twenty runs (Bonferroni)."""
    return float(stats.norm.isf(0.05 / cells)) * math.sqrt(share * (1 - share) / repetitions)


OF_INTERVALS = len(benchmark.SETTLED) * sum(map(len, benchmark.KINDS.values()))


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("row", benchmark.SETTLED, ids=str)
def test_no_cell_covers_less_than_the_rule_was_chosen_for(row: tuple[int, float]) -> None:
    """No cell may lie under the least coverage by which the rule was chosen, less .02. A cell that lies exactly there is
    seen lower by chance: with 279 cells, 3.57 standard errors under it in one of twenty runs. The mean over a row's cells
    has a standard error of about .002."""
    least, mean = benchmark.SETTLED[row]
    limit = least - 0.02
    measured = list(benchmark.cells(row, 400, SEED))
    lowest = min(measured, key=lambda cell: cell.rule)
    assert lowest.rule >= limit - chance(limit, 400, OF_INTERVALS), lowest
    assert np.mean([cell.rule for cell in measured]) >= mean - 0.01


DRAWS = 200  # of agreement
SETTLED = {
    ("kappa", 30): (0.90, 0.98), ("kappa", 60): (0.92, 0.97), ("kappa", 100): (0.92, 0.96),
    ("quadratic kappa", 30): (0.90, 0.98), ("quadratic kappa", 60): (0.92, 0.97), ("quadratic kappa", 100): (0.92, 0.96),
    ("AUROC", 30): (0.96, 0.98), ("AUROC", 100): (0.91, 0.96), ("AUROC", 300): (0.91, 0.95),
    ("Pearson", 30): (0.91, 0.94), ("Spearman", 30): (0.93, 0.95), ("Spearman", 100): (0.93, 0.95),
}  # fmt: skip
"""Least and mean coverage of the simulation by which the methods were chosen, over cells of all statistics of their kind."""


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("statistic", "rows"), SETTLED)
def test_no_cell_covers_less_than_the_method_was_chosen_for(statistic: str, rows: int) -> None:
    """As above: with 128 cells, 3.4 standard errors under it in one of twenty runs."""
    least, mean = SETTLED[statistic, rows]
    cells = list(benchmark.agreement_cells(statistic, (rows, 1), DRAWS, SEED))
    limit = least - 0.02
    lowest = min(cells, key=lambda cell: cell.covered)
    assert lowest.covered >= limit - chance(limit, DRAWS * (1 - lowest.undefined), 128), lowest
    assert np.mean([cell.covered for cell in cells]) >= mean - 0.025


@pytest.mark.thorough
def test_the_difference_of_two_versions_holds_what_it_says() -> None:
    """Two versions of 99 rows, three per question, whose errors correlate: nominal 95 %, 4 standard errors of chance."""
    for cell in benchmark.agreement_cells("difference of kappas", (99, 3), DRAWS, SEED):
        assert cell.covered >= 0.93 - 4 * math.sqrt(0.05 * 0.95 / DRAWS), cell


PASSES = {0.5: {100: 0.29, 200: 0.68, 300: 0.85}, 0.8: {100: 0.08, 200: 0.46, 300: 0.60}, 0.95: {100: 0.0, 200: 0.07, 300: 0.09}}
"""Shares that pass at a true kappa of .9, by the share of positive labels and the number of labels: the page's table."""


def verdicts_of_kappa(positive: float, kappa: float, rows: int, repetitions: int) -> list[str]:
    """The verdicts on samples with a true kappa, one row per question."""
    limits = (1 - positive,)
    correlation = benchmark.correlation_for(limits, kappa, False)
    rng = np.random.default_rng([SEED, rows, int(100 * positive), int(100 * kappa)])
    states = []
    for _ in range(repetitions):
        people = rng.standard_normal(rows)
        judge = correlation * people + math.sqrt(1 - correlation**2) * rng.standard_normal(rows)
        states.append(decide_kappa(benchmark.grades_of(people, limits), benchmark.grades_of(judge, limits)).state)
    return states


@pytest.mark.thorough
@pytest.mark.parametrize("positive", PASSES)
def test_kappa_passes_as_often_as_the_page_says(positive: float) -> None:
    """At a true kappa of .9: within .05 and 3.5 standard errors. At .8 at most .04 pass and .04 fail, with the same allowance for chance."""
    for rows, share in PASSES[positive].items():
        at_nine = verdicts_of_kappa(positive, 0.9, rows, 150)
        error = math.sqrt(max(share * (1 - share), 0.02) / 150)
        assert at_nine.count("passed") / 150 == pytest.approx(share, abs=0.05 + 3.5 * error), rows
        at_eight = verdicts_of_kappa(positive, 0.8, rows, 150)
        for state in ("passed", "failed"):
            assert at_eight.count(state) / 150 <= 0.04 + 3.5 * math.sqrt(0.04 * 0.96 / 150), (rows, state)


CORRECTED = 150  # draws of corrected means
OF_MEANS = 2 * len(benchmark.LABEL_SIZES) * (len(benchmark.JUDGES) + len(benchmark.SHARES))
WIDTHS = {
    "guesses": (0.32, 0.22, 0.17, 0.10), "lenient": (0.25, 0.17, 0.13, 0.08), "good": (0.22, 0.14, 0.115, 0.074),
    "nearly perfect": (0.16, 0.10, 0.08, 0.06),
}  # fmt: skip
"""Mean widths for 0/1 with a true mean of .75, by the simulation by which the estimator was chosen."""


@lru_cache
def cells(size: tuple[int, int]) -> list[Any]:
    return list(benchmark.corrected_cells(size, CORRECTED, SEED))


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("size", benchmark.LABEL_SIZES, ids=str)
def test_no_corrected_mean_covers_less_than_the_estimator_was_chosen_for(size: tuple[int, int]) -> None:
    """No cell may lie under the least coverage by which it was chosen, less .02; the mean of 20 cells has an error of .005."""
    least, mean = benchmark.SETTLED_CORRECTED[size[0]]
    limit = least - 0.02
    lowest = min(cells(size), key=lambda cell: cell.covered)
    assert lowest.covered >= limit - chance(limit, CORRECTED, OF_MEANS), lowest
    assert np.mean([cell.covered for cell in cells(size)]) >= mean - 0.02


@pytest.mark.thorough
@pytest.mark.parametrize("judge", WIDTHS)
def test_intervals_are_as_narrow_as_the_judge_allows(judge: str) -> None:
    for labels, expected in zip(benchmark.LABELS, WIDTHS[judge], strict=True):
        (width,) = [c.width for c in cells((labels, 1)) if (c.kind, c.judge, c.truth) == ("0/1", judge, 0.75)]
        assert width == pytest.approx(expected, abs=0.01)


def test_the_lenient_judge_alone_is_sure_of_a_wrong_mean() -> None:
    lenient = [c for size in ((60, 1), (300, 1)) for c in cells(size) if (c.kind, c.judge) == ("0/1", "lenient")]
    at_three_quarters = [cell for cell in lenient if cell.truth == 0.75]
    assert [cell.judge_covered < 0.3 for cell in at_three_quarters] == [True, True]
    assert all(cell.covered > 0.88 for cell in lenient)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("labels", [30, 60, 150])
def test_the_mean_of_just_these_cases(labels: int) -> None:
    """Chosen for a coverage of .94 or more."""
    limit = 0.94 - 0.02
    for covered in benchmark.of_only_these(labels, CORRECTED, SEED):
        assert covered >= limit - chance(limit, CORRECTED, 3 * len(benchmark.JUDGES))


DECIDED_SEED, PAIRED = 71, 300  # of the decisions: the seed, and how often two systems are compared


def beyond(share: float, repetitions: int, cells: int = 1) -> float:
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
    assert decisions.gate_rates(n, 0.85, 0.88)[2] == pytest.approx(blocks, abs=0.006)
    failing = [decisions.gate_rates(n, 0.85, truth)[0] for truth in (0.88, 0.85, 0.8, 0.75)]
    passing = [decisions.gate_rates(n, 0.85, truth)[1] for truth in (0.88, 0.9, 0.95)]
    assert (failing, passing) == (pytest.approx(fails, abs=0.006), pytest.approx(passes, abs=0.006))


# --- simulated

NULL_CELLS = len(decisions.QUESTIONS) * len(decisions.NULLS)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("cell", decisions.QUESTIONS, ids=str)
def test_equal_systems_seldom_differ_and_the_interval_holds_the_truth(cell: tuple[int, bool]) -> None:
    """False alarms of any cell at most .07, coverage of any at least .92; on the mean .05 at most."""
    unlike = (decisions.RATE_SAME, decisions.SHARES_SAME)
    nulls = [decisions.compare(cell, kind, 0.0, PAIRED, DECIDED_SEED) for kind in decisions.NULLS]
    changed = [decisions.compare(cell, kind, -0.05, PAIRED, DECIDED_SEED) for kind in unlike]
    assert max(result.alarms for result in nulls) <= 0.07 + beyond(0.07, PAIRED, NULL_CELLS)
    assert np.mean([result.alarms for result in nulls]) <= 0.05 + beyond(0.05, PAIRED * 4)
    assert min(result.covered for result in (*nulls, *changed)) >= 0.92 - beyond(0.92, PAIRED, NULL_CELLS)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("values", "likeness", "change", "overlap", "paired"), [
    ("shares", 0.5, -0.05, 0.04, 0.48), ("shares", 0.5, -0.1, 0.50, 0.96), ("shares", 0.84, -0.05, 0.01, 0.86),
    ("0/1", 0.5, -0.05, 0.02, 0.22), ("0/1", 0.5, -0.1, 0.11, 0.55), ("0/1", 0.84, -0.05, 0.00, 0.31),
    ("0/1", 0.84, -0.1, 0.06, 0.75),
])  # fmt: skip
def test_pairs_find_what_overlap_does_not(values: str, likeness: float, change: float, overlap: float, paired: float) -> None:
    result = decisions.compare((100, False), decisions.Kind(values, 0.85, likeness), change, PAIRED, DECIDED_SEED)
    assert result.overlap == pytest.approx(overlap, abs=beyond(overlap, PAIRED, 14) + 0.01)
    assert result.alarms == pytest.approx(paired, abs=beyond(paired, PAIRED, 14) + 0.01)


def test_verdicts_on_normal_differences() -> None:
    """Equal systems: 2.5 % better, 2.5 % worse. A true .05: at most 1 % the wrong sign, 5 % `same`. With the rows of the formula
    each is found in 8 of 10."""
    for n in (30, 100, 300):
        null, moved = (decisions.verdicts_of_normal(n, truth, 1000, DECIDED_SEED) for truth in (0.0, 0.05))
        for state in ("better", "worse"):
            assert null.get(state, 0) <= 0.025 + beyond(0.025, 1000, 6)
        assert moved.get("worse", 0) <= 0.01 + beyond(0.01, 1000, 6)
        assert moved.get("same", 0) <= 0.05 + beyond(0.05, 1000, 6)
    found = decisions.verdicts_of_normal(math.ceil((2.80 * 0.3 / 0.05) ** 2), 0.05, 1000, DECIDED_SEED)
    same = decisions.verdicts_of_normal(math.ceil((2.93 * 0.3 / 0.05) ** 2), 0.0, 1000, DECIDED_SEED)
    assert found["better"] == pytest.approx(0.8, abs=beyond(0.8, 1000, 2))
    assert same["same"] == pytest.approx(0.8, abs=beyond(0.8, 1000, 2))


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("n", [30, 100, 300])
def test_gates_against_a_baseline(n: int) -> None:
    """A/A blocks at most 5 % of runs in every cell; what is found at n = 300; a drop of just max_drop passes at most 5 %."""
    for kind in decisions.GATED:
        null, tolerated, dropped = (decisions.compare((n, False), kind, -by, PAIRED, DECIDED_SEED) for by in (0.0, 0.05, 0.1))
        for max_drop in (0.02, 0.05):
            assert null.drops[max_drop].get("failed", 0) <= 0.037 + beyond(0.037, PAIRED, 30)
        assert tolerated.drops[0.05].get("passed", 0) <= 0.05 + beyond(0.05, PAIRED, 30)
        assert dropped.drops[0.02].get("passed", 0) <= 0.025 + beyond(0.025, PAIRED, 30)
        if n == 300:
            assert dropped.drops[0.02].get("failed", 0) >= 0.96 - beyond(0.96, PAIRED, 5)


def test_several_gates_scores_and_slices() -> None:
    """Twelve gates or scores of identical systems: at most 5 % with Holm's method, .26 and .46 without."""
    blocked, unadjusted = decisions.false_blocks(12, 400, DECIDED_SEED)
    assert blocked <= 0.05 + beyond(0.05, 400, 4)
    assert unadjusted == pytest.approx(1 - 0.975**12, abs=beyond(0.26, 400, 4))
    called, unadjusted = decisions.false_scores(12, 400, DECIDED_SEED)
    assert called <= 0.05 + beyond(0.05, 400, 4)
    assert unadjusted == pytest.approx(1 - 0.95**12, abs=beyond(0.46, 400, 4))
    for correlation in (0.0, 0.8):
        for changed in (0.0, 0.2):
            assert decisions.false_slices(correlation, changed, 1500, DECIDED_SEED) <= 0.05 + beyond(0.05, 1500, 4)


def test_the_noise_floor_and_flips() -> None:
    """Two runs over the same answers stay within the floor in .94 to .96; flips have the same mean for any number of judgings."""
    for n, repeats in ((30, 2), (100, 3)):
        within, judge, items = decisions.repeated_judging(n, repeats, 0.3, 0.15, 1500, DECIDED_SEED)
        assert within == pytest.approx(0.95, abs=0.01 + beyond(0.95, 1500, 2))
        assert (judge, items) == pytest.approx((0.15, 0.3), rel=0.01)
    ever = []
    for repeats in (2, 3, 5):
        rate, truth, flipped = decisions.flipping(100, repeats, 600, DECIDED_SEED)
        assert rate == pytest.approx(truth, abs=0.003)
        ever.append(flipped)
    assert ever == pytest.approx([0.08, 0.13, 0.17], abs=0.012)
