"""Attribution of a total to parts that were changed together: the Shapley value."""

from __future__ import annotations

import math
from collections.abc import Mapping

Swapped = frozenset[int]
"""The numbers of the parts that were swapped."""


def shapley_values(totals: Mapping[Swapped, float], parts: int) -> list[float]:
    """What each of `parts` parts adds, as the mean over all orders in which they can be swapped one after another.

    `totals` is the figure after each set of swaps, all 2^parts of them. The values add up to the total of all swaps less that
    of none. In the unit of the totals. (Shapley 1953; of at most 6 parts, 64 totals. More are a ValueError.)
    """
    if parts > 6:
        raise ValueError(f"at most 6 parts, found {parts}")
    values = []
    for part in range(parts):
        terms = [
            math.factorial(len(before)) * math.factorial(parts - len(before) - 1) * (totals[before | {part}] - total)
            for before, total in totals.items()
            if part not in before
        ]
        values.append(math.fsum(terms) / math.factorial(parts))
    return values


def interaction(totals: Mapping[Swapped, float], parts: int) -> float:
    """What all swaps together do beyond the sum of each alone; 0 where the parts do not depend on each other."""
    nothing = totals[frozenset()]
    alone = [totals[frozenset({part})] - nothing for part in range(parts)]
    return totals[frozenset(range(parts))] - nothing - math.fsum(alone)
