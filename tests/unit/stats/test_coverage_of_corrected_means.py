"""Corrected means hold the true mean as often as docs/statistics.md says: a part of its simulation, with other draws."""

import math
from functools import lru_cache
from typing import Any

import intervals as benchmark
import numpy as np
import pytest
from scipy import stats

REPETITIONS = 150
SEED = 7
CELLS = 2 * len(benchmark.LABEL_SIZES) * (len(benchmark.JUDGES) + len(benchmark.SHARES))
WIDTHS = {
    "guesses": (0.32, 0.22, 0.17, 0.10), "lenient": (0.25, 0.17, 0.13, 0.08), "good": (0.22, 0.14, 0.115, 0.074),
    "nearly perfect": (0.16, 0.10, 0.08, 0.06),
}  # fmt: skip
"""Mean widths for 0/1 with a true mean of .75, by the simulation by which the estimator was chosen."""


@lru_cache
def cells(size: tuple[int, int]) -> list[Any]:
    return list(benchmark.corrected_cells(size, REPETITIONS, SEED))


def chance(share: float, repetitions: int, cells: int) -> float:
    """How far under a true share one of so many cells is seen, in one of twenty runs (Bonferroni)."""
    return float(stats.norm.isf(0.05 / cells)) * math.sqrt(share * (1 - share) / repetitions)


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("size", benchmark.LABEL_SIZES, ids=str)
def test_no_cell_covers_less_than_the_estimator_was_chosen_for(size: tuple[int, int]) -> None:
    """No cell may lie under the least coverage by which it was chosen, less .02; the mean of 20 cells has an error of .005."""
    least, mean = benchmark.SETTLED_CORRECTED[size[0]]
    limit = least - 0.02
    lowest = min(cells(size), key=lambda cell: cell.covered)
    assert lowest.covered >= limit - chance(limit, REPETITIONS, CELLS), lowest
    assert np.mean([cell.covered for cell in cells(size)]) >= mean - 0.02


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("judge", WIDTHS)
def test_intervals_are_as_narrow_as_the_judge_allows(judge: str) -> None:
    for labels, expected in zip(benchmark.LABELS, WIDTHS[judge], strict=True):
        (width,) = [c.width for c in cells((labels, 1)) if (c.kind, c.judge, c.truth) == ("0/1", judge, 0.75)]
        assert width == pytest.approx(expected, abs=0.01)


@pytest.mark.slow
def test_the_lenient_judge_alone_is_sure_of_a_wrong_mean() -> None:
    lenient = [c for size in ((60, 1), (300, 1)) for c in cells(size) if (c.kind, c.judge) == ("0/1", "lenient")]
    at_three_quarters = [cell for cell in lenient if cell.truth == 0.75]
    assert [cell.judge_covered < 0.3 for cell in at_three_quarters] == [True, True]
    assert all(cell.covered > 0.88 for cell in lenient)


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("labels", [30, 60, 150])
def test_the_mean_of_just_these_cases(labels: int) -> None:
    """Chosen for a coverage of .94 or more."""
    limit = 0.94 - 0.02
    for covered in benchmark.of_only_these(labels, REPETITIONS, SEED):
        assert covered >= limit - chance(limit, REPETITIONS, 3 * len(benchmark.JUDGES))
