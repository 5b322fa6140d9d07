"""Looking at a comparison before all its cases are in, without more false alarms than one look at the end.

Who compares at a quarter, a half and three quarters of the planned cases and stops at the first difference finds one in 13 % of
comparisons of equal systems, not in 5 %. With bounds that are strict early (O'Brien and Fleming 1979) it stays at 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

LOOKS = ((0.25, 4.333), (0.5, 2.963), (0.75, 2.359), (1.0, 2.014))
"""Share of the plan, and how many standard errors a difference must be from 0 there, for 5 % over all four looks."""
_HAIR = 1e-9


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a plan: `share` of it at which the bound applies, `bound` in standard errors, `level` of its interval.

    Intervals of that level hold the true difference at all looks together in 95 % of comparisons, so a verdict of
    `decide_difference` at `level` stands whether or not one looks again.
    """

    share: float
    bound: float
    level: float

    @property
    def is_last(self) -> bool:
        """Whether all that was planned is in."""
        return self.share == 1.0


def look_at(n: int, planned: int) -> Look | None:
    """The look that `n` of `planned` cases are; None below a quarter of them, where nothing may be decided yet.

    Between two of the four shares the stricter bound applies, which is that of the earlier one: up to four looks at any
    places keep 5 %, a look at every twentieth of the plan has 5.4 %. The look at or beyond the plan is the last: going on until
    a difference appears is what the bounds do not cover. `planned` below 4 is a ValueError, for a quarter of it is no case.
    """
    if planned < 4:
        raise ValueError(f"a plan with four looks has 4 cases or more, found {planned}")
    reached = [(share, bound) for share, bound in LOOKS if n >= share * planned - _HAIR]
    if not reached:
        return None
    share, bound = reached[-1]
    return Look(share, bound, 2 * NormalDist().cdf(bound) - 1)
