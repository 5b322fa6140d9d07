"""The overall score of each method under several weight sets, and how sure its rank is over all weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.extras.weights.case_scores import CaseScores
from ragpipe.scoring.estimates import interval_of
from ragpipe.stats.clusters import in_all
from ragpipe.stats.intervals import estimate_mean
from ragpipe.stats.rank_stability import rank_stability

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_HAIR = 1e-12  # means that are equal but for rounding share a rank


def methods_by_weight_set(cases: CaseScores, sets: Mapping[str, Mapping[str, float]], level: float) -> dict[str, Any]:
    """For each weight set: the weights as shares, the questions that all methods share, and for each method `n`, `mean`,
    `interval` and `rank` (1 is best; equal means share one).

    Only questions on which every method has an overall score count: else a method would be ranked by what it was asked.
    """
    return {name: _under(cases, weights, level) for name, weights in sets.items()}


def _under(cases: CaseScores, weights: Mapping[str, float], level: float) -> dict[str, Any]:
    total = sum(weights.values())
    overall = cases.overall(weights)
    is_there = ~np.isnan(overall)
    by_method = [is_there & (cases.methods == number) for number in range(len(cases.method_names))]
    shared = in_all([cases.questions[rows] for rows in by_method])
    figures: dict[str, dict[str, Any]] = {}
    for name, rows in zip(cases.method_names, by_method, strict=True):
        rows = rows & np.isin(cases.questions, shared)
        estimate = estimate_mean(overall[rows], cases.questions[rows], low=0.0, high=1.0, level=level)
        figures[name] = {"n": estimate.n, "mean": estimate.mean, **interval_of("interval", estimate)}
    means = [figure["mean"] for figure in figures.values() if figure["mean"] is not None]
    for figure in figures.values():
        mean = figure["mean"]
        figure["rank"] = None if mean is None else 1 + sum(other > mean + _HAIR for other in means)
    shares = {name: weight / total for name, weight in weights.items() if weight > 0}
    return {"weights": shares, "questions": len(shared), "methods": figures}


def ranks_over_weights(cases: CaseScores, names: Sequence[str], *, draws: int, seed: int) -> dict[str, Any]:
    """The shares of weight sets, each over questions drawn anew, in which a method is first, second ...; `reason` where
    there is nothing to rank: `one_method`, `one_score` or `no_shared_question`."""
    about: dict[str, Any] = {"scores": list(names), "draws": draws, "seed": seed, "questions": 0, "methods": {}}
    scores = cases.matrix(names)
    is_there = ~np.all(np.isnan(scores), axis=1)
    shared = in_all(
        [cases.questions[is_there & (cases.methods == number)] for number in range(len(cases.method_names))]
    )
    for holds, reason in (
        (len(cases.method_names) < 2, "one_method"),
        (len(names) < 2, "one_score"),
        (not len(shared), "no_shared_question"),
    ):
        if holds:
            return {**about, "reason": reason}
    ranking = rank_stability(scores, cases.methods, cases.questions, draws=draws, seed=seed)
    methods = {
        cases.method_names[number]: {
            "first": ranks[0],
            "first_by_weights": by_weights,
            "ranks": list(ranks),
            "mean_rank": sum(place * share for place, share in enumerate(ranks, 1)),
        }
        for number, ranks, by_weights in zip(ranking.methods, ranking.ranks, ranking.first_by_weights, strict=True)
    }
    return {**about, "questions": ranking.questions, "methods": methods, "reason": None}
