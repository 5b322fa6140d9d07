"""McNemar's exact test: whether paired yes-or-no verdicts changed more in one direction than in the other."""

from __future__ import annotations

import math


def mcnemar_p(gained: int, lost: int) -> float | None:
    """The two-sided p of McNemar's test in its exact form (McNemar 1947): under no difference each of the changed pairs goes
    either way with probability 1/2, so p = min(1, 2 * P(X <= min(gained, lost))) for X binomial(gained + lost, 1/2).

    `gained` pairs changed from wrong to right, `lost` from right to wrong. 0 to 1; None where none changed.
    """
    changed = gained + lost
    if not changed:
        return None
    tail = sum(math.comb(changed, k) for k in range(min(gained, lost) + 1))
    return min(1.0, tail / (1 << (changed - 1)))
