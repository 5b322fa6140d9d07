"""Agreement of two raters or more: Gwet's AC1 and AC2 and Krippendorff's alpha, where some may have skipped a unit; Fleiss' kappa.

Ratings are a matrix with one row per unit (an answer that was rated) and one column per rater, NaN where a rater skipped
it. Classes are unordered, or grades whose disagreement is the squared difference (`squared`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement import Coefficient, mapped_bounds, outer_interval, questions_of
from ragpipe.stats.intervals import Estimate, check_scale

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def gwet_ac(ratings: Floats, classes: Floats, *, squared: bool = False) -> Coefficient:
    """Agreement beyond chance that stays near the raw agreement where almost everything is of one class, -1 to 1.

    AC = (p_a - p_e) / (1 - p_e): p_a the mean over units of the share of pairs of raters that agree,
    p_e = T / (k (k-1)) * sum over the k classes of pi (1 - pi), pi a class's mean share of a unit's ratings, T the sum of
    the agreements of all pairs of classes: AC1, and with `squared` AC2 (Gwet 2008, "Computing inter-rater reliability
    and its variance in the presence of high agreement"; 2014).

    `classes` are all classes that could have been used, used or not. A rating outside them, or under two of
    them, is a ValueError. `n` counts units with two ratings or more; without one: `no_pairs`.
    """
    disagreement = _ac_disagreement(ratings, classes, squared=squared)
    between = mean_distances(ratings[_raters(ratings) > 1], squared=squared) / _span(classes, squared=squared) ** 2
    if not len(between):
        return Coefficient(0, reason="no_pairs")
    return Coefficient(len(between), 1 - float(np.mean(between)) / disagreement)


def fleiss_kappa(ratings: Floats) -> Coefficient:
    """Agreement beyond chance of two raters or more that all rated every unit, -1 to 1 (Fleiss 1971).

    kappa = (P - P_e) / (1 - P_e): P the mean over units of the share of pairs of raters that agree, P_e the sum of the squared
    shares of the classes among all ratings. Alpha for nominal classes less what it adds for few units; with two
    raters it is Scott's pi. A skipped rating, or a single rater, is a ValueError. Not defined without a unit (`no_pairs`)
    and where every rating is the same (`one_class`).
    """
    if not len(ratings):
        return Coefficient(0, reason="no_pairs")
    if ratings.shape[1] < 2 or np.isnan(ratings).any():
        raise ValueError("Fleiss' kappa needs every unit rated by the same raters, at least two: use alpha")
    _, counts = np.unique(ratings, return_counts=True)
    by_chance = float(np.sum((counts / ratings.size) ** 2))
    if len(counts) == 1:
        return Coefficient(len(ratings), reason="one_class")
    return Coefficient(len(ratings), 1 - float(np.mean(mean_distances(ratings))) / (1 - by_chance))


def krippendorff_alpha(ratings: Floats, *, squared: bool = False) -> Coefficient:
    """Agreement beyond chance of however many raters, -1 to 1: 1 - D_o / D_e (Krippendorff 2004).

    D_o is the disagreement of the ratings of a unit, each unit weighing as many as it has; D_e that of all ratings with all.
    Alpha for nominal classes, and with `squared` for intervals. `n` counts units with two ratings or more, the others
    are left out; without one: `no_pairs`. Not defined where every rating is the same (`one_class`).
    """
    raters = _raters(ratings)
    paired, raters = ratings[raters > 1], raters[raters > 1]
    if not len(paired):
        return Coefficient(0, reason="no_pairs")
    by_chance = _distance_of_all(paired, squared=squared)
    if by_chance == 0:
        return Coefficient(len(paired), reason="one_class")
    observed = float(np.sum(raters * mean_distances(paired, squared=squared))) / int(np.sum(raters))
    return Coefficient(len(paired), 1 - observed / by_chance)


def estimate_ac(
    ratings: Floats, classes: Floats, questions: Whole | None = None, *, squared: bool = False, level: float = 0.95
) -> Estimate:
    """`gwet_ac` with its interval, the outer bounds of the jackknife and of the raw agreement, method `jackknife_wilson`.

    Args:
        ratings: one row per unit, one column per rater.
        classes: all classes that could have been used.
        questions: the number of each unit's question; None where all units are independent.
        squared: whether classes are grades whose disagreement is the squared difference.
        level: the level of the interval.

    Never undefined but without a pair (`no_pairs`): where every rating is the same it is 1. Units without a rating are left out.
    """
    codes, _ = questions_of(len(ratings), questions)
    is_rated = _raters(ratings) > 0
    ratings, (codes, groups) = ratings[is_rated], questions_of(int(np.sum(is_rated)), codes[is_rated])
    estimated = gwet_ac(ratings, classes, squared=squared)
    if estimated.value is None:
        return Estimate(estimated.n, groups, reason=estimated.reason)
    is_paired = _raters(ratings) > 1
    agreement = 1 - mean_distances(ratings[is_paired], squared=squared) / _span(classes, squared=squared) ** 2
    by_agreement = mapped_bounds(agreement, _ac_disagreement(ratings, classes, squared=squared), codes[is_paired], level)
    return outer_interval(
        estimated, lambda kept: gwet_ac(ratings[kept], classes, squared=squared), by_agreement, codes, groups, level
    )


def estimate_alpha(
    ratings: Floats, questions: Whole | None = None, *, scale: tuple[float, float] | None = None, level: float = 0.95
) -> Estimate:
    """`krippendorff_alpha` with its interval.

    Args:
        ratings: one row per unit, one column per rater.
        questions: the number of each unit's question; None where all units are independent.
        scale: the ends of the scale of grades whose disagreement is the squared difference; None for unordered classes.
        level: the level of the interval.

    Where all units have equally many ratings: the outer bounds of the jackknife and of the raw agreement, method
    `jackknife_wilson`. Else the units weigh differently and the interval is by the jackknife alone, method `jackknife_z`:
    none where leaving out questions changes nothing, as when all agree (`no_spread`). A grade off the scale is a ValueError.
    """
    squared = scale is not None
    codes, _ = questions_of(len(ratings), questions)
    is_paired = _raters(ratings) > 1
    paired, (codes, groups) = ratings[is_paired], questions_of(int(np.sum(is_paired)), codes[is_paired])
    if scale is not None:
        check_scale(paired[~np.isnan(paired)], *scale)
    estimated = krippendorff_alpha(paired, squared=squared)
    if estimated.value is None:
        return Estimate(estimated.n, groups, reason=estimated.reason)
    by_agreement = None
    if np.ptp(_raters(paired)) == 0:
        span = (scale[1] - scale[0]) ** 2 if scale is not None else 1.0
        agreement = 1 - mean_distances(paired, squared=squared) / span
        by_agreement = mapped_bounds(agreement, _distance_of_all(paired, squared=squared) / span, codes, level)
    return outer_interval(
        estimated, lambda kept: krippendorff_alpha(paired[kept], squared=squared), by_agreement, codes, groups, level
    )


def mean_distances(ratings: Floats, *, squared: bool = False) -> Floats:
    """For each row, the mean distance of two different ratings in it: the share of pairs that differ, or with `squared` the
    mean squared difference. Each row has two ratings or more."""
    raters = _raters(ratings)
    if squared:
        deviations = ratings - (np.nansum(ratings, axis=1) / raters)[:, None]
        distances: Floats = 2 * np.nansum(deviations**2, axis=1) / (raters - 1)
        return distances
    equal = np.zeros(len(ratings))
    for one_class in np.unique(ratings[~np.isnan(ratings)]):
        count = np.sum(ratings == one_class, axis=1)
        equal += count * (count - 1)
    shares: Floats = 1 - equal / (raters * (raters - 1))
    return shares


def _distance_of_all(ratings: Floats, *, squared: bool) -> float:
    return float(mean_distances(ratings.reshape(1, -1), squared=squared)[0])


def _ac_disagreement(ratings: Floats, classes: Floats, *, squared: bool) -> float:
    """1 - p_e of `gwet_ac`."""
    if len(set(classes.tolist())) != len(classes) or len(classes) < 2:
        raise ValueError(f"expected two different classes or more, found {classes.tolist()}")
    rated = ratings[_raters(ratings) > 0]
    if not np.isin(rated[~np.isnan(rated)], classes).all():
        raise ValueError(f"a rating is none of the classes {classes.tolist()}")
    shares = np.array([float(np.mean(np.sum(rated == c, axis=1) / _raters(rated))) for c in classes]) if len(rated) else 0.0
    apart = np.subtract.outer(classes, classes)
    distances = (apart / _span(classes, squared=squared)) ** 2 if squared else apart != 0
    k = len(classes)
    return 1 - float(np.sum(1 - distances)) / (k * (k - 1)) * float(np.sum(shares * (1 - shares)))


def _span(classes: Floats, *, squared: bool) -> float:
    return float(np.ptp(classes)) if squared else 1.0


def _raters(ratings: Floats) -> Whole:
    counts: Whole = np.sum(~np.isnan(ratings), axis=1)
    return counts
