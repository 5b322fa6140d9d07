"""The Shapley value by hand, against all orders, and what always holds."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.comparison.change_sources import interaction, shapley_values


def subsets(parts: int) -> list[frozenset[int]]:
    return [frozenset(chosen) for k in range(parts + 1) for chosen in combinations(range(parts), k)]


def test_two_parts_by_hand() -> None:
    """Alone 1 and 2, together 5: the 2 beyond the sum are halved."""
    totals = {frozenset(): 10.0, frozenset({0}): 11.0, frozenset({1}): 12.0, frozenset({0, 1}): 15.0}
    assert shapley_values(totals, 2) == [2.0, 3.0]
    assert interaction(totals, 2) == 2.0


@given(st.integers(0, 5), st.integers(0, 1000))
def test_it_is_the_mean_over_all_orders(parts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    totals = {chosen: float(rng.normal()) for chosen in subsets(parts)}
    expected = np.zeros(parts)
    for order in permutations(range(parts)):
        for place, part in enumerate(order):
            before = frozenset(order[:place])
            expected[part] += totals[before | {part}] - totals[before]
    values = shapley_values(totals, parts)
    assert values == pytest.approx((expected / math.factorial(parts)).tolist())
    assert math.fsum(values) == pytest.approx(totals[frozenset(range(parts))] - totals[frozenset()])


def test_more_than_six_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 6"):
        shapley_values({}, 7)
