"""How far two series of judgements on the same cases agree: pure arrays in, numbers out.

Every coefficient says over how many pairs it is, and why there is none where it is not defined. No value is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient over `n` pairs, from -1 to 1; `value` None with the `reason` why it is not defined: `no_pairs`,
    `one_pair`, `one_class` (only one class occurs where two are needed) or `no_spread` (one series never varies)."""

    n: int
    value: float | None = None
    reason: str | None = None


def equal_share(old: Floats, new: Floats, *, tolerance: float = 1e-9) -> float | None:
    """Share of pairs whose values are equal, 0 to 1; None without pairs. `tolerance` allows for the last bits of a mean."""
    check_pairs(old, new)
    return float(np.mean(np.abs(old - new) <= tolerance)) if len(old) else None


def cohen_kappa(old: Floats, new: Floats) -> Coefficient:
    """Agreement of two raters on unordered classes beyond what their own habits give by chance.

    kappa = (p_o - p_e) / (1 - p_e), p_o the share of equal pairs, p_e the sum over classes of the product of both
    raters' shares (Cohen 1960, "A coefficient of agreement for nominal scales"). Not defined where p_e is 1: both
    raters used one and the same class for everything.
    """
    check_pairs(old, new)
    n = len(old)
    if n == 0:
        return Coefficient(0, reason="no_pairs")
    by_chance = equal_by_chance(old, new)
    if by_chance == 1:
        return Coefficient(n, reason="one_class")
    return Coefficient(n, _within((float(np.mean(old == new)) - by_chance) / (1 - by_chance)))


def equal_by_chance(old: Floats, new: Floats) -> float:
    """p_e of Cohen's kappa, 0 to 1: the share of all pairs of an old and a new value, of whatever cases, that are equal."""
    n = len(old)
    classes, codes = np.unique(np.concatenate([old, new]), return_inverse=True)
    first, second = (np.bincount(part, minlength=len(classes)) for part in (codes[:n], codes[n:]))
    return float(first @ second) / n**2


def quadratic_kappa(old: Floats, new: Floats) -> Coefficient:
    """Agreement of two raters on an ordinal scale, where a difference counts with its square.

    kappa = 1 - mean of (a_i - b_i)^2 / mean over all i, j of (a_i - b_j)^2: Cohen's weighted kappa with quadratic
    weights (Cohen 1968; Fleiss and Cohen 1973). The grades' own values are the distances, so a grade that was not given
    changes nothing. Not defined where both raters gave one and the same grade to everything.
    """
    check_pairs(old, new)
    n = len(old)
    if n == 0:
        return Coefficient(0, reason="no_pairs")
    expected = squared_by_chance(old, new)
    if expected == 0:  # also where the grades differ by less than a float can square
        return Coefficient(n, reason="one_class")
    return Coefficient(n, _within(1 - float(np.mean((old - new) ** 2)) / expected))


def squared_by_chance(old: Floats, new: Floats) -> float:
    """Mean squared difference over all pairs of an old and a new value, of whatever cases."""
    return float(np.var(old) + np.var(new) + (np.mean(old) - np.mean(new)) ** 2)


def pearson(old: Floats, new: Floats) -> Coefficient:
    """Linear correlation (Pearson 1895): the sum of the products of both deviations over the root of both sums of squares."""
    check_pairs(old, new)
    n = len(old)
    if n < 2:
        return Coefficient(n, reason="no_pairs" if n == 0 else "one_pair")
    if _constant(old) or _constant(new):
        return Coefficient(n, reason="no_spread")
    a, b = old - math.fsum(old.tolist()) / n, new - math.fsum(new.tolist()) / n
    a, b = a / np.max(np.abs(a)), b / np.max(np.abs(b))  # neither squares nor their product leave the range of a float
    top = math.fsum((a * b).tolist())
    return Coefficient(n, _within(top / math.sqrt(math.fsum((a * a).tolist()) * math.fsum((b * b).tolist()))))


def spearman(old: Floats, new: Floats) -> Coefficient:
    """Rank correlation (Spearman 1904): Pearson's over the ranks, equal values sharing the mean of their ranks."""
    return pearson(ranks(old), ranks(new))


def kendall(old: Floats, new: Floats) -> Coefficient:
    """Rank correlation by pairs of cases (Kendall 1945, tau-b): pairs that both series put in the same order less those
    that they put in opposite orders, over the geometric mean of the pairs that each series puts in any order at all.
    """
    check_pairs(old, new)
    n = len(old)
    if n < 2:
        return Coefficient(n, reason="no_pairs" if n == 0 else "one_pair")
    if _constant(old) or _constant(new):
        return Coefficient(n, reason="no_spread")
    (few, sizes), (many, others) = sorted(map(_classes, (old, new)), key=lambda series: len(series[1]))
    same_less_opposite, seen = 0, np.zeros(len(others), dtype=np.int64)
    for members in np.split(many[np.argsort(few, kind="stable")], np.cumsum(sizes)[:-1]):
        up_to = np.cumsum(seen)  # how many rows of lower classes have at most this value
        below, above = up_to[members] - seen[members], up_to[-1] - up_to[members]
        same_less_opposite += int(np.sum(below - above))
        seen += np.bincount(members, minlength=len(seen))
    ordered = [n * (n - 1) // 2 - int(np.sum(counts * (counts - 1) // 2)) for counts in (sizes, others)]
    return Coefficient(n, _within(same_less_opposite / math.sqrt(ordered[0]) / math.sqrt(ordered[1])))


def ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: Floats = ((ends - counts + 1 + ends) / 2)[codes] if len(values) else np.empty(0)
    return shared


def correlation_ceiling(human_reliability: float, judge_reliability: float) -> float:
    """The highest correlation, 0 to 1, that a judge can reach with labels: sqrt(r_hh * r_jj) (Spearman 1904).

    `human_reliability` is the correlation of two people's labels of the same cases, `judge_reliability` that of two judgements
    by the same judge; -1 to 1, and one below 0 counts as 0. What labels hold by chance nobody can agree with. Raises ValueError
    for a reliability that is not from -1 to 1.
    """
    for reliability in (human_reliability, judge_reliability):
        if not -1 <= reliability <= 1:
            raise ValueError(f"a reliability is a correlation from -1 to 1, found {reliability:g}")
    return math.sqrt(max(0.0, human_reliability) * max(0.0, judge_reliability))


def check_pairs(old: Floats, new: Floats) -> None:
    """ValueError where two series are not of the same cases, or a value is not finite."""
    if len(old) != len(new):
        raise ValueError(f"{len(old)} values against {len(new)}: they must be of the same cases")
    if not (np.isfinite(old).all() and np.isfinite(new).all()):
        raise ValueError("a pair without two finite values is no pair: leave it out")


def _classes(values: Floats) -> tuple[Whole, Whole]:
    """The class of each value, numbered from 0 in rising order, and how many values each class has."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    return codes.astype(np.int64), counts.astype(np.int64)


def _constant(values: Floats) -> bool:
    return not np.any(values != values[0])


def _within(value: float) -> float:
    """Rounding may leave the range by a hair."""
    return max(-1.0, min(1.0, value))
