"""How far two series of judgements on the same cases agree, with intervals clustered by question. Arrays in, numbers out.

Kappa is 1 - (1 - A) / E: A the mean agreement of the rows (0 or 1, or 1 less a squared distance), E the disagreement that
chance alone gives. Two intervals are made, and the outer bounds of both hold: by the jackknife over questions after Fisher's z,
which shrinks to nothing near perfect agreement; and from the interval of A on 0..1 (`estimate_mean`), brought through
1 - (1 - A) / E, which takes E as known. The jackknife leaves out whole questions, as rows of one are not independent: one pass
over the rows for every question, for labels by people, of which there are hundreds or thousands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.intervals import FEW, Estimate, Interval, check_scale, cluster_codes, estimate_mean, t_quantile

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient over `n` pairs, from -1 to 1; `value` None with the `reason` why it is not defined: `no_pairs`,
    `one_pair`, `one_class` (only one class occurs where two are needed) or `no_spread` (one series never varies)."""

    n: int
    value: float | None = None
    reason: str | None = None


def equal_share(old: Floats, new: Floats) -> float | None:
    """Share of pairs whose values are equal, 0 to 1; None without pairs. Equal but for the last bits of a mean."""
    check_pairs(old, new)
    return float(np.mean(np.abs(old - new) <= 1e-9)) if len(old) else None


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
    if (undefined := _undefined(old, new)) is not None:
        return undefined
    n = len(old)
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
    if (undefined := _undefined(old, new)) is not None:
        return undefined
    n = len(old)
    classes = (np.unique(series, return_inverse=True, return_counts=True)[1:] for series in (old, new))
    (few, sizes), (many, others) = sorted(classes, key=lambda series: len(series[1]))
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


def check_pairs(old: Floats, new: Floats) -> None:
    """ValueError where two series are not of the same cases, or a value is not finite."""
    if len(old) != len(new):
        raise ValueError(f"{len(old)} values against {len(new)}: they must be of the same cases")
    if not (np.isfinite(old).all() and np.isfinite(new).all()):
        raise ValueError("a pair without two finite values is no pair: leave it out")


def _undefined(old: Floats, new: Floats) -> Coefficient | None:
    """Why there is no correlation of two series; None where there is one."""
    check_pairs(old, new)
    if len(old) < 2:
        return Coefficient(len(old), reason="one_pair" if len(old) else "no_pairs")
    is_constant = any(np.all(values == values[0]) for values in (old, new))
    return Coefficient(len(old), reason="no_spread") if is_constant else None


def _within(value: float) -> float:
    """Rounding may leave the range by a hair."""
    return max(-1.0, min(1.0, value))


def estimate_kappa(
    labels: Floats,
    verdicts: Floats,
    questions: Whole | None = None,
    *,
    scale: tuple[float, float] | None = None,
    level: float = 0.95,
) -> Estimate:
    """Kappa of people's labels and a judge's verdicts, -1 to 1, with its interval, method `jackknife_wilson`.

    Args:
        labels: the labels by people, one per row.
        verdicts: the judge's verdicts of the same rows.
        questions: the number of each row's question; None where all rows are independent.
        scale: the ends of the scale of grades, for quadratically weighted kappa; None for Cohen's, of unordered classes. They
            matter to the interval alone: the agreement of a row is 1 - (difference / (high - low))^2.
        level: the level of the interval.

    Not defined where both only ever use one and the same class or grade (`one_class`). No interval for one question, and where
    kappa is not defined without one of them (`rests_on_one_question`). A grade off the scale is a ValueError.
    """
    check_pairs(labels, verdicts)
    if scale is not None:
        check_scale(np.concatenate([labels, verdicts]), *scale)
    statistic = cohen_kappa if scale is None else quadratic_kappa
    codes, groups = questions_of(len(labels), questions)
    kappa = statistic(labels, verdicts)
    if kappa.value is None:
        return Estimate(kappa.n, groups, reason=kappa.reason)
    agreement = agreement_of_rows(labels, verdicts, None if scale is None else scale[1] - scale[0])
    bounds = mapped_bounds(*agreement, codes, level)
    return outer_interval(kappa, lambda kept: statistic(labels[kept], verdicts[kept]), bounds, codes, groups, level)


def estimate_correlation(
    correlation: Callable[[Floats, Floats], Coefficient],
    labels: Floats,
    scores: Floats,
    questions: Whole | None = None,
    *,
    level: float = 0.95,
) -> Estimate:
    """A correlation of people's labels and a judge's scores, -1 to 1, with its interval by the jackknife, method `jackknife_z`.

    Args:
        correlation: `pearson`, `spearman` or `kendall`.
        labels: the labels by people, one per row.
        scores: the judge's scores of the same rows.
        questions: the number of each row's question; None where all rows are independent.
        level: the level of the interval.

    Not defined for no pair or one, and where a series never varies (`no_spread`). No interval for one question, where the
    correlation is not defined without one of them (`rests_on_one_question`), and where leaving out questions changes
    nothing, as at -1 and 1 (`no_spread`).
    """
    codes, groups = questions_of(len(labels), questions)
    estimated = correlation(labels, scores)
    if estimated.value is None:
        return Estimate(estimated.n, groups, reason=estimated.reason)
    return outer_interval(estimated, lambda kept: correlation(labels[kept], scores[kept]), None, codes, groups, level)


def agreement_of_rows(labels: Floats, verdicts: Floats, span: float | None = None) -> tuple[Floats, float]:
    """How far both raters agree on each row, 0 to 1, and the disagreement E that chance alone gives, 0 to 1.

    Without a `span` a row agrees or not; with one, its agreement is 1 - (difference / span)^2.
    """
    if span is None:
        return np.where(labels == verdicts, 1.0, 0.0), 1 - equal_by_chance(labels, verdicts)
    return 1 - ((labels - verdicts) / span) ** 2, squared_by_chance(labels, verdicts) / span**2


def outer_interval(
    estimated: Coefficient,
    without: Callable[[Kept], Coefficient],
    by_agreement: tuple[float, float] | None,
    codes: Whole,
    groups: int,
    level: float,
) -> Estimate:
    """A coefficient with the outer bounds of its interval by the jackknife (`without`: of the kept rows, by `codes` of
    questions) and of that `by_agreement`, the bounds of `mapped_bounds`; None for the jackknife alone."""
    value = estimated.value
    assert value is not None
    error, reason = jackknife_error(lambda kept: without(kept).value, codes, groups)
    if reason == "no_spread" and by_agreement is not None:
        reason = None  # the bounds by agreement never shrink to nothing
    if error is None or reason is not None:
        return Estimate(estimated.n, groups, value, reason=reason, error=error)
    low, high = fisher_bounds(value, error, t_quantile(level, groups - 1))
    if by_agreement is None and high <= low:
        return Estimate(estimated.n, groups, value, reason="no_spread", error=error)
    if by_agreement is not None:
        low, high = min(low, by_agreement[0]), max(high, by_agreement[1])
    method = "jackknife_z" if by_agreement is None else "jackknife_wilson"
    interval = Interval(level, min(low, value), max(high, value), method, too_few=groups < FEW)
    return Estimate(estimated.n, groups, value, interval, error=error)


def mapped_bounds(agreement: Floats, disagreement: float, codes: Whole, level: float) -> tuple[float, float] | None:
    """The bounds of the mean agreement A of rows on 0..1, brought through 1 - (1 - A) / E with the expected `disagreement`
    E above 0; cut at -1. None for a single question."""
    interval = estimate_mean(agreement, codes, low=0.0, high=1.0, level=level).interval
    if interval is None:
        return None
    return max(-1.0, 1 - (1 - interval.low) / disagreement), 1 - (1 - interval.high) / disagreement


Kept = NDArray[np.bool_]

HAIR = 1e-12
"""A standard error so small is one of rounding: an interval by it would claim a certainty that does not exist."""


def difference_of_versions(
    statistic: Callable[[Floats, Floats], Coefficient],
    labels: Floats,
    base: Floats,
    candidate: Floats,
    questions: Whole | None = None,
    *,
    level: float = 0.95,
) -> Estimate:
    """What a second version changes in how well scores or verdicts agree with labels, on the same answers: candidate less base.

    Args:
        statistic: of labels and scores, such as `auroc`, `cohen_kappa` or `balanced_accuracy`.
        labels: the labels, one per row.
        base: the first version's scores (or verdicts) of the same rows.
        candidate: the second version's.
        questions: the number of each row's question; None where all rows are independent.
        level: the level of the interval.

    The interval is difference +- t(G-1) * s for G questions, s the jackknife's standard error of the difference itself,
    method `jackknife_t`. Both versions meet the same labels, so this is narrower than two single intervals suggest.
    """
    codes, groups = questions_of(len(labels), questions)

    def change(kept: Kept) -> Coefficient:
        before, after = statistic(labels[kept], base[kept]), statistic(labels[kept], candidate[kept])
        if before.value is None or after.value is None:
            return Coefficient(before.n, reason=before.reason or after.reason)
        return Coefficient(before.n, after.value - before.value)

    difference = change(np.ones(len(labels), dtype=np.bool_))
    if difference.value is None:
        return Estimate(len(labels), groups, reason=difference.reason)
    error, reason = jackknife_error(lambda kept: change(kept).value, codes, groups)
    if error is None or reason is not None:
        return Estimate(len(labels), groups, difference.value, reason=reason, error=error)
    half = t_quantile(level, groups - 1) * error
    low, high = difference.value - half, difference.value + half
    interval = Interval(level, low, high, "jackknife_t", too_few=groups < FEW)
    return Estimate(len(labels), groups, difference.value, interval, error=error)


def jackknife_error(statistic: Callable[[Kept], float | None], codes: Whole, groups: int) -> tuple[float | None, str | None]:
    """Standard error of a statistic of the kept rows, by leaving out each of the `groups` questions of `codes` in turn.

    s = sqrt((G-1)/G * sum of (value without a question - mean of these values)^2). Beside it stands why it makes no
    interval: `one_sample`, `rests_on_one_question` (no error then) or `no_spread` (it is 0 but for rounding).
    """
    if groups < 2:
        return None, "one_sample"
    without: list[float] = []
    for group in range(groups):
        value = statistic(codes != group)
        if value is None:
            return None, "rests_on_one_question"
        without.append(value)
    centre = math.fsum(without) / groups
    error = math.sqrt((groups - 1) / groups * math.fsum((value - centre) ** 2 for value in without))
    return error, "no_spread" if error <= HAIR else None


def fisher_bounds(value: float, error: float, t: float) -> tuple[float, float]:
    """Bounds of a coefficient in -1..1, symmetric after Fisher's z: tanh(atanh(value) +- t * error / (1 - value^2)).

    The divisor brings the standard error to the scale of z (delta method). At -1 and 1 both bounds are the value.
    """
    room = 1 - value * value
    if room <= HAIR:
        return value, value
    centre, half = math.atanh(value), t * error / room
    return math.tanh(centre - half), math.tanh(centre + half)


def questions_of(n: int, questions: Whole | None) -> tuple[Whole, int]:
    """The questions of `n` rows, numbered from 0 without gaps, and how many there are; None: each row is another question. Raises
    ValueError where there are not `n` question numbers."""
    if questions is None:
        return np.arange(n, dtype=np.int64), n
    if len(questions) != n:
        raise ValueError(f"{n} values but {len(questions)} question numbers")
    return cluster_codes(questions) if n else (np.empty(0, dtype=np.int64), 0)
