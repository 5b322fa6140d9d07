"""Verdicts on a paired difference: is the candidate better, worse or the same, and did it drop by more than is allowed.

The printed interval decides, not the mean alone: of two identical runs a comparison of means calls one worse every other time.
How often each verdict is wrong: docs/statistics.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.differences import PairedDifference, paired_difference
from ragpipe.stats.intervals import POWER, Interval, normal_quantile, t_quantile

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
State = Literal["better", "worse", "same", "inconclusive"]
DropState = Literal["passed", "failed", "inconclusive"]

_MEAN_CHANGED = 7.906  # a Poisson count with this mean reaches 6 in 8 of 10 samples


@dataclass(frozen=True, slots=True)
class DifferenceVerdict:
    """What a comparison says of one score. `paired` is candidate less base on the score's own scale.

    `interval_90` decides `same`: at a level of .95 it has .90 (in general 2 * level - 1). `n_needed` is the number of rows, spread
    over questions as these are, with which an inconclusive comparison is expected to decide in 8 of 10 samples; None where
    nothing can be said. `p_adjusted` is the p-value among all scores of `decide_together`.

    `reason` says why it is inconclusive: `few_changed` (fewer than 6 questions changed, of too few to exclude the smallest
    effect), `too_wide` (neither 0 nor the smallest effect is excluded), `several_scores` (not certain enough among
    several scores), or the reason of `paired`.
    """

    state: State
    paired: PairedDifference
    interval_90: Interval | None
    smallest_effect: float
    higher_is_better: bool = True
    n_needed: int | None = None
    reason: str | None = None
    p_adjusted: float | None = None

    @property
    def wins(self) -> int:
        """Rows in which the candidate is better."""
        return self.paired.wins if self.higher_is_better else self.paired.losses

    @property
    def losses(self) -> int:
        """Rows in which the candidate is worse."""
        return self.paired.losses if self.higher_is_better else self.paired.wins

    @property
    def at_least(self) -> float | None:
        """How much better (or worse) it is at least, above 0: the bound next to 0; None for another verdict."""
        interval = self.paired.interval
        if self.state not in ("better", "worse") or interval is None:
            return None
        return min(abs(interval.low), abs(interval.high))


@dataclass(frozen=True, slots=True)
class DropVerdict:
    """Whether a candidate dropped against its baseline by more than is allowed.

    `drop` is how much worse the candidate is (below 0: better), `low` and `high` its bounds, all on the score's scale. `p_value` is
    one-sided, for a drop above 0; gates adjust it among several (`score.gate_rules.decide_gates`). `reason` says why it
    is inconclusive, as in `DifferenceVerdict`.
    """

    state: DropState
    drop: float | None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    reason: str | None = None


def decide_difference(
    base: Floats,
    candidate: Floats,
    questions: Whole | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
    smallest_effect: float,
    higher_is_better: bool = True,
    level: float = 0.95,
) -> DifferenceVerdict:
    """Whether the candidate is better, worse or the same as the base on the same rows.

    Args:
        base: the values of the base, one per row.
        candidate: the values of the candidate on the same rows.
        questions: the number of each row's question; None where all rows are independent.
        low, high: the ends of the scale; None for no scale. A value off the scale is a ValueError.
        smallest_effect: the smallest difference that matters, above 0, on the score's scale; else a ValueError.
        higher_is_better: the direction of the score.
        level: the level of the interval that decides `better` and `worse`.

    In this order: the 90 % interval inside +- the smallest effect is `same` (two one-sided tests, Schuirmann 1987), longer by
    2/3 t^2 `lean` on the side of few large changes; where fewer than 6 questions changed, so few changes must also exclude that
    effect (`decide_drop`); then fewer than 6 are `inconclusive`; the 95 % interval without 0 is `better` or `worse`; else
    `inconclusive`.
    """
    if not (smallest_effect > 0 and math.isfinite(smallest_effect)):
        raise ValueError(f"a smallest effect is above 0, found {smallest_effect!r}")
    paired = paired_difference(base, candidate, questions, low=low, high=high, level=level)
    narrow = paired_difference(base, candidate, questions, low=low, high=high, level=2 * level - 1).interval
    span = None if low is None or high is None else high - low
    state, reason = _state(paired, narrow, smallest_effect, span, higher_is_better)
    needed = rows_needed(paired, smallest_effect, level=level, span=span) if state == "inconclusive" else None
    return DifferenceVerdict(state, paired, narrow, smallest_effect, higher_is_better, needed, reason, paired.p_value)


def decide_together(
    verdicts: Sequence[DifferenceVerdict], *, level: float = 0.95, beside: Sequence[float | None] = ()
) -> list[DifferenceVerdict]:
    """The verdicts on several scores that are read together, in the same order, with p-values adjusted by Holm's method.

    `beside` are the p-values (`tested`) of what is read with them, other candidates say. Of two tests or more, `better` and `worse`
    stand only where the adjusted p-value is at most 1 - level. A single verdict stays. `same` and `inconclusive` stay.
    """
    tested_together = [*(tested(verdict) for verdict in verdicts), *beside]
    adjusted = holm(tested_together)[: len(verdicts)]
    tests = sum(p is not None for p in tested_together)
    decided = []
    for verdict, p in zip(verdicts, adjusted, strict=True):
        changed = replace(verdict, p_adjusted=p)
        if verdict.state in ("better", "worse") and tests > 1 and p is not None and p > 1 - level:
            needed = rows_needed(verdict.paired, verdict.smallest_effect, level=1 - (1 - level) / tests)
            changed = replace(changed, state="inconclusive", reason="several_scores", n_needed=needed)
        decided.append(changed)
    return decided


def tested(verdict: DifferenceVerdict) -> float | None:
    """The p-value of a verdict among several; None where so few questions changed that it cannot be rejected, and so counts for
    nothing (Tarone 1990)."""
    return verdict.p_adjusted if verdict.paired.can_decide else None


def decide_drop(paired: PairedDifference, max_drop: float, *, span: float | None = None) -> DropVerdict:
    """Whether a score dropped against its baseline by more than `max_drop`.

    Args:
        paired: candidate less baseline; its interval decides.
        max_drop: the drop that is allowed, on the score's scale, 0 or more; else a ValueError.
        span: the width of the score's scale; None for no scale.

    `passed`: no drop above `max_drop` is in the interval. `failed`: at least 6 questions changed, the interval lies below 0
    and the mean drop is above `max_drop`. Else `inconclusive`. A gate that failed only where the whole interval is beyond
    `max_drop` would find a quarter of the drops of twice that size among 100 cases.

    Where fewer than 6 questions changed the interval rests on the two added questions. To pass, so few changes must also be
    improbable (below (1 - level) / 2) if a share max_drop / span of the questions had dropped by the whole scale: the
    fewest changes by which the mean can drop so far.
    """
    if not max_drop >= 0:
        raise ValueError(f"the drop that is allowed is 0 or more, found {max_drop!r}")
    interval, difference = paired.interval, paired.difference
    if difference is None:
        return DropVerdict("inconclusive", None, reason=paired.reason)
    drop, p_value = -difference, paired.p_value
    if p_value is not None:  # signs and Student's t are symmetric: half of the two-sided one
        p_value = p_value / 2 if drop > 0 else 1 - p_value / 2
    if interval is None:
        return DropVerdict("inconclusive", drop, p_value=p_value, reason=paired.reason)
    ends = -interval.high, -interval.low
    state: DropState = "inconclusive"
    reason: str | None = "too_wide" if paired.can_decide else "few_changed"
    if ends[1] <= max_drop and (paired.can_decide or _rules_out(paired, max_drop, span, (1 - interval.level) / 2)):
        state, reason = "passed", None
    elif paired.can_decide and ends[0] > 0 and drop > max_drop:
        state, reason = "failed", None
    return DropVerdict(state, drop, *ends, p_value=p_value, reason=reason)


def rows_needed(paired: PairedDifference, effect: float, *, level: float = 0.95, span: float | None = None) -> int | None:
    """The rows with which such a comparison decides in 8 of 10 samples, more than there are; None where it cannot be said.

    With the measured spread and likeness of rows, n * ((z + z') * error / effect)^2 rows find a true difference of `effect`
    (2.80 for 95 %), and n * ((z90 + z'') * error / effect)^2 show that there is none (2.93, z'' for two one-sided tests that
    both must hold); the larger counts. If there are so many already, the true difference lies between: then what the measured
    difference needs. With fewer than 6 changed questions: the rows with which 6 are expected to change, or, on a scale of width
    `span`, with which as few changes would exclude `effect`, whichever are fewer.
    """
    if paired.error is None or paired.difference is None:
        return None
    if not paired.can_decide:
        questions = _questions_that_exclude(paired, effect, span, 1 - level)
        if paired.changed:
            questions = min(questions, paired.clusters * _MEAN_CHANGED / paired.changed)
        return math.ceil(questions * paired.n / paired.clusters) if math.isfinite(questions) else None
    z, z_same, of_power = (normal_quantile(share) for share in (level, 2 * level - 1, 2 * POWER - 1))
    needed = paired.n * (max(z + of_power, z_same + normal_quantile(POWER)) * paired.error / effect) ** 2
    if needed <= paired.n:
        size = abs(paired.difference)
        factors = [(z + of_power) / size] if size > 0 else []
        factors += [(z_same + of_power) / (effect - size)] if size < effect else []
        needed = paired.n * (min(factors) * paired.error) ** 2
    return max(paired.n + 1, math.ceil(needed))


def _state(
    paired: PairedDifference, narrow: Interval | None, effect: float, span: float | None, higher_is_better: bool
) -> tuple[State, str | None]:
    """The verdict, and why it is inconclusive."""
    wide = paired.interval
    if wide is None or narrow is None:
        return "inconclusive", paired.reason
    excluded = paired.can_decide or _rules_out(paired, effect, span, (1 - narrow.level) / 2)
    # where a few large changes decide, a symmetric interval ends too early on their side: twice what Johnson (1978) adds holds 5 %
    lean = paired.lean * t_quantile(narrow.level, paired.clusters - 1) ** 2 * 2 / 3 if paired.can_decide else 0.0
    if excluded and -effect < narrow.low + min(lean, 0.0) and narrow.high + max(lean, 0.0) < effect:
        return "same", None
    if not paired.can_decide:
        return "inconclusive", "few_changed"
    if wide.low > 0 or wide.high < 0:
        return ("better" if (wide.low > 0) == higher_is_better else "worse"), None
    return "inconclusive", "too_wide"


def _rules_out(paired: PairedDifference, max_drop: float, span: float | None, risk: float) -> bool:
    """Whether as few questions as changed are improbable if a share max_drop / span of them had dropped."""
    if span is None or max_drop == 0:
        return False
    return _at_most(paired.changed, paired.clusters, min(1.0, max_drop / span)) <= risk


def _at_most(changed: int, questions: int, share: float) -> float:
    """The probability that at most `changed` of the questions change, where each does with the probability `share`."""
    terms = (math.comb(questions, k) * share**k * (1 - share) ** (questions - k) for k in range(changed + 1))
    return math.fsum(terms)


def _questions_that_exclude(paired: PairedDifference, effect: float, span: float | None, risk: float) -> float:
    """More questions than there are, of which so many changes as were found would exclude the effect; infinite where none do."""
    if span is None or effect >= span:
        return math.inf
    share, fewest = effect / span, paired.clusters + 1
    enough = range(fewest, fewest + math.ceil(20 * (paired.changed + 1) / share))
    return enough[bisect_left(enough, True, key=lambda n: _at_most(paired.changed, n, share) <= risk)]


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Each p-value as it counts among all of them: rejecting where it is at most a keeps any false rejection at a.

    Of m p-values in rising order the i-th is multiplied by m - i + 1, is at least its predecessor's and at most 1 (Holm 1979).
    It holds however the tests depend on each other. None (no test) stays None and does not count in m. A value outside 0..1 is a
    ValueError. In the order of the input.
    """
    ordered = _rising(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, place) in enumerate(ordered):
        least = max(least, min(1.0, (len(ordered) - rank) * p))
        adjusted[place] = least
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Each p-value as a q-value: among all that are at most q, a share of q at most is expected to be false.

    Of m p-values in rising order the i-th is multiplied by m / i and is at most its successor's (Benjamini and Hochberg 1995).
    It holds for tests that are independent or positively dependent, as slices of one comparison are. None (no test) stays None
    and does not count in m. A value outside 0..1 is a ValueError. In the order of the input.
    """
    ordered = _rising(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    most = 1.0
    for rank, (p, place) in reversed(list(enumerate(ordered, 1))):
        most = min(most, p * len(ordered) / rank)
        adjusted[place] = most
    return adjusted


def _rising(p_values: Sequence[float | None]) -> list[tuple[float, int]]:
    """The p-values that exist, rising, with their places."""
    for p in p_values:
        if p is not None and not 0 <= p <= 1:
            raise ValueError(f"a p-value lies between 0 and 1, found {p!r}")
    return sorted((p, place) for place, p in enumerate(p_values) if p is not None)
