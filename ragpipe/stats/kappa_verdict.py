"""Whether a judge agrees with people's labels well enough, decided by the interval of kappa and not by its value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement_intervals import agreement_of_rows, estimate_kappa, estimate_quadratic_kappa
from ragpipe.stats.intervals import clustering, design_effect
from ragpipe.stats.jackknife import EstimatedStatistic
from ragpipe.stats.student_t import POWER, normal_quantile

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

TARGET = 0.8
"""Above it agreement counts as almost perfect (Landis and Koch 1977)."""
FEWEST_OUTSIDE = 5
"""With fewer labels outside the largest class kappa says next to nothing."""


@dataclass(frozen=True, slots=True)
class KappaVerdict:
    """Whether kappa lies above a target.

    `passed`: its whole interval does. `failed`: its whole interval lies below. `not_enough_labels`: neither.
    `outside_largest` counts people's labels that are not of their largest class.
    `labels_needed`: with about so many rows of this kind a true kappa of this value would pass in 8 of 10 samples; None
    where nothing is needed, where kappa is not above the target (more labels would not help) and where `reason` says why
    there is nothing to decide by: `few_outside_largest_class` (report the mean agreement and AC1 instead), or what
    `EstimatedStatistic` names.
    """

    state: Literal["passed", "failed", "not_enough_labels"]
    kappa: EstimatedStatistic
    outside_largest: int
    labels_needed: int | None = None
    reason: str | None = None


def decide_kappa(
    labels: Floats,
    verdicts: Floats,
    questions: Whole | None = None,
    *,
    scale: tuple[float, float] | None = None,
    target: float = TARGET,
    level: float = 0.95,
) -> KappaVerdict:
    """Whether kappa of people's labels and a judge's verdicts lies above `target`.

    Args:
        labels: the labels by people, one per row.
        verdicts: the judge's verdicts of the same rows.
        questions: the number of each row's question; None where all rows are independent.
        scale: the ends of the scale of grades, for quadratically weighted kappa; None for unordered classes.
        target: what kappa has to exceed, between 0 and 1.
        level: the level of the interval.

    Raises ValueError for a target that is not between 0 and 1, and for rows that `estimate_kappa` refuses.
    """
    if not 0 < target < 1:
        raise ValueError(f"a target of kappa lies between 0 and 1, found {target:g}")
    if scale is None:
        kappa = estimate_kappa(labels, verdicts, questions, level=level)
    else:
        kappa = estimate_quadratic_kappa(labels, verdicts, questions, low=scale[0], high=scale[1], level=level)
    outside = outside_largest_class(labels)
    reason = kappa.reason or ("few_outside_largest_class" if outside < FEWEST_OUTSIDE else None)
    if kappa.interval is None or reason is not None:
        return KappaVerdict("not_enough_labels", kappa, outside, reason=reason)
    if kappa.interval.low > target:
        return KappaVerdict("passed", kappa, outside)
    if kappa.interval.high < target:
        return KappaVerdict("failed", kappa, outside)
    agreement, by_chance = agreement_of_rows(labels, verdicts, None if scale is None else scale[1] - scale[0])
    effect = design_effect(agreement, *clustering(len(labels), questions))
    needed = _labels_needed(kappa, float(np.mean(agreement)), by_chance, effect, target, level)
    return KappaVerdict("not_enough_labels", kappa, outside, needed)


def outside_largest_class(labels: Floats) -> int:
    """How many labels are not of the class that most of them have; 0 without labels."""
    return len(labels) - int(np.max(np.unique(labels, return_counts=True)[1])) if len(labels) else 0


def _labels_needed(
    kappa: EstimatedStatistic, agreement: float, by_chance: float, effect: float, target: float, level: float
) -> int | None:
    """The larger of what both intervals of kappa need; None where kappa is not above the target.

    By the jackknife: n * ((z + z') * s / (1 - kappa^2) / (atanh(kappa) - atanh(target)))^2 with z' for the power. By the
    mean agreement A, whose limit at the target is L = 1 - (1 - target) * E, with the design effect D:
    D * ((z sqrt(L (1 - L)) + z' sqrt(A (1 - A))) / (A - L))^2.
    """
    value, error = kappa.value, kappa.error
    limit = 1 - (1 - target) * by_chance
    if value is None or error is None or value <= target or agreement <= limit:
        return None
    z, of_power = normal_quantile(level), normal_quantile(2 * POWER - 1)
    room = 1 - value * value
    by_jackknife = 0.0
    if room > 0 and error > 0:
        by_jackknife = kappa.n * ((z + of_power) * error / room / (math.atanh(value) - math.atanh(target))) ** 2
    spreads = z * math.sqrt(limit * (1 - limit)), of_power * math.sqrt(agreement * (1 - agreement))
    by_mean = effect * (sum(spreads) / (agreement - limit)) ** 2
    return max(kappa.n + 1, math.ceil(max(by_jackknife, by_mean)))
