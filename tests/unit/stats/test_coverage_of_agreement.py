"""The intervals of agreement hold the true value as often as docs/statistics.md says: a part of its simulation, other draws."""

import math

import intervals as benchmark
import numpy as np
import pytest
from scipy import stats

from ragpipe.stats.detection import decide_kappa

REPETITIONS = 200
SEED = 7
SETTLED = {
    ("kappa", 30): (0.90, 0.98), ("kappa", 60): (0.92, 0.97), ("kappa", 100): (0.92, 0.96),
    ("quadratic kappa", 30): (0.90, 0.98), ("quadratic kappa", 60): (0.92, 0.97), ("quadratic kappa", 100): (0.92, 0.96),
    ("AUROC", 30): (0.96, 0.98), ("AUROC", 100): (0.91, 0.96), ("AUROC", 300): (0.91, 0.95),
    ("Pearson", 30): (0.91, 0.94), ("Spearman", 30): (0.93, 0.95), ("Spearman", 100): (0.93, 0.95),
}  # fmt: skip
"""Least and mean coverage of the simulation by which the methods were chosen, over cells of all statistics of their kind."""


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(("statistic", "rows"), SETTLED)
def test_no_cell_covers_less_than_the_method_was_chosen_for(statistic: str, rows: int) -> None:
    """No cell may lie under the least coverage by which the method was chosen, less .02. A cell that lies exactly there is
    seen lower by chance: with 128 cells, 3.4 standard errors under it in one of twenty runs (Bonferroni)."""
    least, mean = SETTLED[statistic, rows]
    cells = list(benchmark.agreement_cells(statistic, (rows, 1), REPETITIONS, SEED))
    limit = least - 0.02
    lowest = min(cells, key=lambda cell: cell.covered)
    chance = stats.norm.isf(0.05 / 128) * math.sqrt(limit * (1 - limit) / REPETITIONS / (1 - lowest.undefined))
    assert lowest.covered >= limit - chance, lowest
    assert np.mean([cell.covered for cell in cells]) >= mean - 0.025


@pytest.mark.thorough
@pytest.mark.slow
def test_the_difference_of_two_versions_holds_what_it_says() -> None:
    """Two versions of 99 rows, three per question, whose errors correlate: nominal 95 %, 4 standard errors of chance."""
    for cell in benchmark.agreement_cells("difference of kappas", (99, 3), REPETITIONS, SEED):
        assert cell.covered >= 0.93 - 4 * math.sqrt(0.05 * 0.95 / REPETITIONS), cell


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
@pytest.mark.slow
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
