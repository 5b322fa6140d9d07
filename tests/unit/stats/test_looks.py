"""Looks at an unfinished comparison: which bound applies, the level over all looks by exact integration, and few changes."""

import numpy as np
import pytest
from scipy import stats

from ragpipe.stats.difference_verdict import decide_difference
from ragpipe.stats.looks import LOOKS, look_at
from ragpipe.stats.student_t import t_quantile


@pytest.mark.parametrize(
    ("n", "bound"),
    [
        (0, None), (24, None), (25, 4.333), (49, 4.333), (50, 2.963), (74, 2.963), (75, 2.359), (99, 2.359), (100, 2.014),
        (130, 2.014),
    ],
)  # fmt: skip
def test_the_bound_of_the_last_share_that_is_reached(n: int, bound: float | None) -> None:
    look = look_at(n, 100)
    assert (None if look is None else look.bound) == bound
    assert look is None or look.is_last == (n >= 100)


def test_a_plan_that_is_no_multiple_of_four() -> None:
    assert look_at(2, 10) is None
    assert look_at(3, 10).share == 0.25
    with pytest.raises(ValueError, match="4 cases or more"):
        look_at(1, 3)


def test_four_looks_together_have_a_level_of_five_percent() -> None:
    """The density of the sum at each look, of the paths that no earlier look stopped, by numerical integration
    (Armitage, McPherson and Rowe 1969)."""
    grid = np.linspace(-9, 9, 3601)
    step = grid[1] - grid[0]
    kernel = stats.norm.pdf(grid, scale=0.5) * step
    density = stats.norm.pdf(grid, scale=0.5)
    for share, bound in LOOKS:
        if share > LOOKS[0][0]:
            density = np.convolve(density, kernel, mode="same")
        density = np.where(np.abs(grid) >= bound * share**0.5, 0.0, density)
    assert 1 - np.sum(density) * step == pytest.approx(0.05, abs=5e-4)


@pytest.mark.parametrize(("share", "bound"), LOOKS)
@pytest.mark.parametrize("df", [5, 24, 399])
def test_the_level_has_the_same_tail_in_t(share: float, bound: float, df: int) -> None:
    look = look_at(round(400 * share), 400)
    assert t_quantile(look.level, df) == pytest.approx(stats.t.isf(stats.norm.sf(bound), df), rel=1e-6)


def test_an_early_verdict_needs_much_and_six_changes() -> None:
    """Differences of .2 with a standard deviation of .3: t of 3.3 at 25 cases, 6.7 at 100."""
    differences = np.tile([0.5, -0.1], 50)
    base = np.full(100, 0.4)

    def state(n: int) -> str:
        level = look_at(n, 100).level
        return decide_difference(
            base[:n], base[:n] + differences[:n], low=0, high=1, smallest_effect=0.05, level=level
        ).state

    assert [state(n) for n in (26, 50, 76, 100)] == ["inconclusive", "better", "better", "better"]
    verdict = decide_difference(
        np.zeros(100),
        np.repeat([1.0, 0.0], [5, 95]),
        low=0,
        high=1,
        smallest_effect=0.05,
        level=look_at(100, 100).level,
    )
    assert verdict.state == "inconclusive"
