"""Judging the same cases several times: what varies from case to case, what the judge adds, and what to buy next.

The variance of a case's value between judgings is the judge's; that of the cases' true values is the questions'. More judgings
lower the first, more cases both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.intervals import normal_quantile

Floats = NDArray[np.float64]
Counts = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """Variances of one score over `n` cases, in squared units of the score, and the noise floor in its units.

    `judge_variance` is that of one judging of a case, `item_variance` that of the cases without the judge's part, never below 0.
    `floor`: two runs that judge the same answers as often as these differ in their means by less in 95 % of pairs. `repeats` is
    the mean number of judgings per case (harmonic, as that is what counts in a mean).

    `reason` says why figures are missing: `no_case_with_two_values`; for `item_variance` alone `one_case`.
    """

    n: int
    repeats: float | None = None
    judge_variance: float | None = None
    item_variance: float | None = None
    floor: float | None = None
    reason: str | None = None

    @property
    def judge_share(self) -> float | None:
        """The judge's share of the variance of one judging of one case, 0 to 1; None without both parts or any variance."""
        if self.judge_variance is None or self.item_variance is None:
            return None
        total = self.judge_variance + self.item_variance
        return self.judge_variance / total if total > 0 else None


def noise_floor(means: Floats, squares: Floats, counts: Counts, *, level: float = 0.95) -> NoiseFloor:
    """Item variance, judge variance and noise floor of a score.

    Args:
        means: each case's mean over its judgings.
        squares: each case's sum of squared deviations from it.
        counts: each case's judgings that gave a value; cases with none are skipped.
        level: the level of the floor.

    With r judgings per case: judge s_j^2 = sum of squares / sum of (r - 1), pooled over cases; items
    max(0, var(means) - s_j^2 * mean(1 / r)) (variance components of a one-way random model, Searle et al. 1992); floor
    z * sqrt(2 s_j^2 * mean(1 / r) / n).
    """
    measured = counts > 0
    values, numbers = means[measured], counts[measured].astype(np.float64)
    freedom = float(np.sum(numbers - 1))
    if freedom == 0:
        return NoiseFloor(len(values), reason="no_case_with_two_values")
    judge = math.fsum(squares[measured].tolist()) / freedom
    of_mean = judge * float(np.mean(1 / numbers))
    floor = normal_quantile(level) * math.sqrt(2 * of_mean / len(values))
    repeats = 1 / float(np.mean(1 / numbers))
    if len(values) < 2:
        return NoiseFloor(len(values), repeats, judge, None, floor, "one_case")
    items = max(0.0, float(np.var(values, ddof=1)) - of_mean)
    return NoiseFloor(len(values), repeats, judge, items, floor)


def flip_rate(passed: Counts, judged: Counts) -> float | None:
    """How often two judgings of the same case give different verdicts, 0 to 1; None where no case was judged twice.

    The mean over cases with r >= 2 verdicts, k of them passes, of 2 k (r - k) / (r (r - 1)), which is unbiased. The share
    of cases that ever flipped is no such rate: it grows with r.
    """
    twice = judged > 1
    if not np.any(twice):
        return None
    k, r = passed[twice].astype(np.float64), judged[twice].astype(np.float64)
    return math.fsum((2 * k * (r - k) / (r * (r - 1))).tolist()) / len(k)


def second_judging_from(floor: NoiseFloor) -> float | None:
    """How many judgings one more case must cost for judging each case twice to pay: 2 s_i^2 / s_j^2, 0 or more.

    From there on a budget gives a more precise mean with fewer cases, each judged twice: (s_i^2 + s_j^2 / 2) (c + 2) is below
    (s_i^2 + s_j^2) (c + 1) for a cost c in judgings. None where the judge does not vary, or a variance is unknown.
    """
    if floor.item_variance is None or not floor.judge_variance:
        return None
    return 2 * floor.item_variance / floor.judge_variance
