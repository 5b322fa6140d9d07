"""The intervals of agreement hold the true value as often as docs/agreement.md says: a part of its simulation, other draws."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ragpipe.stats.agreement_coefficients import cohen_kappa, quadratic_kappa

SPEC = importlib.util.spec_from_file_location(
    "agreement_benchmark", Path(__file__).parents[3] / "benchmarks" / "agreement.py"
)
assert SPEC is not None
assert SPEC.loader is not None
benchmark = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = benchmark  # dataclasses look their module up
SPEC.loader.exec_module(benchmark)

REPETITIONS = 200
SEED = 7
SETTLED = {
    ("kappa", 30): (0.90, 0.98), ("kappa", 60): (0.92, 0.97), ("kappa", 100): (0.92, 0.96),
    ("quadratic kappa", 30): (0.90, 0.98), ("quadratic kappa", 60): (0.92, 0.97), ("quadratic kappa", 100): (0.92, 0.96),
    ("AUROC", 30): (0.96, 0.98), ("AUROC", 100): (0.91, 0.96), ("AUROC", 300): (0.91, 0.95),
}  # fmt: skip
"""Least and mean coverage of the simulation by which the methods were chosen, over cells of all statistics of their kind."""


@pytest.mark.slow
@pytest.mark.parametrize(("statistic", "rows"), SETTLED)
def test_no_cell_covers_less_than_the_method_was_chosen_for(statistic: str, rows: int) -> None:
    """No cell may lie under the least coverage by which the method was chosen, less .02. A cell that lies exactly there is
    seen lower by chance: with 110 cells, 3.3 standard errors under it in one of twenty runs (Bonferroni)."""
    least, mean = SETTLED[statistic, rows]
    cells = list(benchmark.cells(statistic, (rows, 1), REPETITIONS, SEED))
    limit = least - 0.02
    lowest = min(cells, key=lambda cell: cell.covered)
    chance = stats.norm.isf(0.05 / 110) * math.sqrt(limit * (1 - limit) / REPETITIONS / (1 - lowest.undefined))
    assert lowest.covered >= limit - chance, lowest
    assert np.mean([cell.covered for cell in cells]) >= mean - 0.025


@pytest.mark.slow
def test_the_difference_of_two_versions_holds_what_it_says() -> None:
    """Two versions of 99 rows, three per question, whose errors correlate: nominal 95 %, 4 standard errors of chance."""
    for cell in benchmark.cells("difference of kappas", (99, 3), REPETITIONS, SEED):
        assert cell.covered >= 0.93 - 4 * math.sqrt(0.05 * 0.95 / REPETITIONS), cell


def test_the_simulated_rows_have_the_kappa_that_they_are_said_to_have() -> None:
    """Else a coverage would say nothing."""
    rng = np.random.default_rng(1)
    for limits, is_quadratic in (((0.2,), False), (benchmark.GRADES[0.5], True)):
        correlation = benchmark.correlation_for(limits, 0.7, is_quadratic)
        people = rng.standard_normal(40_000)
        judge = correlation * people + math.sqrt(1 - correlation**2) * rng.standard_normal(40_000)
        labels, verdicts = benchmark.grades_of(people, limits), benchmark.grades_of(judge, limits)
        kappa = quadratic_kappa if is_quadratic else cohen_kappa
        assert kappa(labels, verdicts).value == pytest.approx(0.7, abs=0.02)
