"""The intervals hold the true mean as often as docs/statistics.md says: a tenth of its simulation, with other draws."""

import math
from functools import lru_cache
from typing import Any

import intervals as benchmark
import numpy as np
import pytest
from scipy import stats

REPETITIONS = 400
SEED = 7
CELLS = len(benchmark.SETTLED) * sum(map(len, benchmark.KINDS.values()))


@lru_cache
def cells(row: tuple[int, float]) -> list[Any]:
    return list(benchmark.cells(row, REPETITIONS, SEED))


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("row", benchmark.SETTLED, ids=str)
def test_no_cell_covers_less_than_the_rule_was_chosen_for(row: tuple[int, float]) -> None:
    """No cell may lie under the least coverage by which the rule was chosen, less .02. A cell that lies exactly there is
    seen lower by chance: with 279 cells, 3.57 standard errors under it in one of twenty runs (Bonferroni). The mean over
    a row's cells has a standard error of about .002."""
    least, mean = benchmark.SETTLED[row]
    limit = least - 0.02
    chance = stats.norm.isf(0.05 / CELLS) * math.sqrt(limit * (1 - limit) / REPETITIONS)
    measured = cells(row)
    lowest = min(measured, key=lambda cell: cell.rule)
    assert lowest.rule >= limit - chance, lowest
    assert np.mean([cell.rule for cell in measured]) >= mean - 0.01
