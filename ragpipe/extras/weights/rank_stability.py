"""Which method is first, over all weights that could have been chosen and all questions that could have been asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement import questions_of
from ragpipe.stats.intervals import in_all

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

DRAWS, SEED = 10_000, 0
"""A share of one half has a standard error of .005 then."""
_VALUES_AT_ONCE = 2**22  # of one block: small enough for the cache of most processors to help


@dataclass(frozen=True, slots=True)
class RankStability:
    """Shares of `draws` weight sets, each over `questions` questions drawn anew.

    `ranks[m][r]` is the share in which method m has rank r + 1; equal methods share their ranks. `first_by_weights[m]` is the
    share in which it is first with the questions as they are: what the choice of weights alone does.
    """

    draws: int
    questions: int
    methods: tuple[int, ...]
    ranks: tuple[tuple[float, ...], ...]
    first_by_weights: tuple[float, ...]


def rank_stability(scores: Floats, methods: Whole, questions: Whole, *, draws: int = DRAWS) -> RankStability:
    """How often each method is first, second ... by the mean over its cases of the weighted mean of their scores.

    `scores` has one row per case, one column per score, all on one scale; NaN where a score does not apply, whose weight then
    goes to the others. A row without a score is left out. `methods` and `questions` are the numbers of each row's method and
    question; only questions that every method has count. `draws` is how many weight sets there are.

    Weights are uniform over all that add up to 1 (Dirichlet with all parameters 1). Each draw takes as many questions as
    there are, with replacement, the same ones for all methods: weights alone would claim more than the questions can say.
    Less than two methods, or no shared question, is a ValueError.
    """
    has_score = ~np.all(np.isnan(scores), axis=1)
    names = np.unique(methods)
    shared = in_all([questions[has_score & (methods == name)] for name in names])
    if len(names) < 2 or not len(shared):
        raise ValueError(f"{len(names)} methods with {len(shared)} shared questions: nothing to rank")
    kept = np.flatnonzero(has_score & np.isin(questions, shared))
    kept = kept[np.argsort(methods[kept], kind="stable")]
    starts = np.searchsorted(methods[kept], names)
    sizes = np.diff([*starts, len(kept)])
    codes, groups = questions_of(len(kept), questions[kept])
    rng = np.random.default_rng(SEED)
    resampled, as_they_are = np.zeros((2, len(names), len(names)))
    at_once = max(1, _VALUES_AT_ONCE // len(kept))
    for start in range(0, draws, at_once):
        size = min(at_once, draws - start)
        overall = _overall(scores[kept], rng.dirichlet(np.ones(scores.shape[1]), size))
        times = _times_drawn(rng, size, groups)[:, codes]
        as_they_are += _rank_counts(np.add.reduceat(overall, starts, axis=1) / sizes)
        resampled += _rank_counts(np.add.reduceat(overall * times, starts, axis=1) / np.add.reduceat(times, starts, axis=1))
    ranks, first = tuple(map(tuple, (resampled / draws).tolist())), tuple((as_they_are[:, 0] / draws).tolist())
    return RankStability(draws, groups, tuple(names.tolist()), ranks, first)


def weighted_means(scores: Floats, weights: Floats) -> Floats:
    """For each row the weighted mean of the scores that it has; NaN where it has none of weight. Weights are not negative."""
    means: Floats = _overall(scores, weights[None, :])[0]
    return means


def _overall(scores: Floats, weights: Floats) -> Floats:
    """The weighted mean of each row (columns of the result) under each set of weights (rows of the result)."""
    is_there = ~np.isnan(scores)
    sums: Floats = weights @ np.where(is_there, scores, 0.0).T
    of_all: Floats = np.sum(weights, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        means: Floats = sums / (of_all if is_there.all() else weights @ is_there.T.astype(np.float64))
    return means


def _times_drawn(rng: np.random.Generator, draws: int, questions: int) -> Floats:
    """How often each question is drawn, in each of several draws of as many as there are."""
    places = rng.integers(0, questions, (draws, questions)) + np.arange(draws)[:, None] * questions
    return np.bincount(places.ravel(), minlength=draws * questions).reshape(draws, questions).astype(np.float64)


def _rank_counts(means: Floats) -> Floats:
    """In how many rows each column has each rank, the highest first; equal columns share the ranks they take up."""
    means = np.round(means, 12)  # equal but for rounding is equal
    higher = np.sum(means[:, None, :] > means[:, :, None], axis=2)
    equal = np.sum(means[:, None, :] == means[:, :, None], axis=2)
    counts = np.zeros((means.shape[1], means.shape[1]))
    for rank in range(means.shape[1]):
        takes_up = (higher <= rank) & (rank < higher + equal)
        counts[:, rank] = np.sum(takes_up / equal, axis=0)
    return counts
