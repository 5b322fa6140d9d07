"""Weights fitted to people's ratings of answers, a score of the run, and whether to take them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.extras.weights.rank_stability import Floats, Whole, weighted_means
from ragpipe.score.iterations import cases_of
from ragpipe.stats.agreement import Kept, jackknife_error, pearson, questions_of
from ragpipe.stats.intervals import t_quantile
from ragpipe.store.run_tables import numbers_of, open_parquet_file, reading_table


def weights_from_ratings(cases: CaseScores, ratings: Floats, weights: Mapping[str, float], *, level: float) -> dict[str, Any]:
    """Weights fitted to people's ratings, one per case, NaN where a case has none; and whether they are advised. `weights` are
    those in use, by score name, `level` is how sure the gain has to be.

    Only rated cases in which every weighted score has a value are fitted: `n_rated` are rated, `n` are fitted, `absent`
    counts per score the rated cases without it.
    """
    names = [name for name, weight in weights.items() if weight > 0]
    scores, is_rated = cases.matrix(names), ~np.isnan(ratings)
    fitted = is_rated & ~np.any(np.isnan(scores), axis=1)
    in_use = np.array([weights[name] for name in names])
    fit = fit_weights(scores[fitted], ratings[fitted], in_use / np.sum(in_use), cases.questions[fitted], level=level)
    absent = {name: int(np.sum(is_rated & np.isnan(cases.values[name]))) for name in names}
    return {
        "n_rated": int(np.sum(is_rated)),
        "n": fit.n,
        "questions": fit.clusters,
        "absent": {name: count for name, count in absent.items() if count},
        "ask_for": max(0, RATINGS_TO_ASK - fit.n),
        "in_use": dict(zip(names, (in_use / np.sum(in_use)).tolist(), strict=True)),
        "fitted": dict(zip(names, fit.weights, strict=True)) if fit.weights else {},
        "correlation": fit.correlation,
        "fitted_correlation": fit.fitted_correlation,
        "gain": fit.gain,
        "advised": fit.is_advised,
        "reason": fit.reason,
    }


FEWEST_RATINGS = 30
RATINGS_TO_ASK = 100
"""A true gain of .14 in correlation is found in .22, .51, .86 and 1.0 of samples of 30, 60, 100 and 300 ratings."""
_FOLDS = 5
_REPEATS = 5
_SLACK = 1e-10  # a gradient so small, of its largest possible value, is none


@dataclass(frozen=True, slots=True)
class WeightFit:
    """Weights fitted to `n` ratings of `clusters` questions, and whether to take them.

    `weights` add up to 1, one per score. `correlation` is Pearson's of the ratings with the scores as they are weighted now,
    `fitted_correlation` that with weights fitted to other questions (never to the rated case itself), `gain` their difference.
    `is_advised`: the gain is surely above 0. `reason` says why there is nothing to say: `few_ratings` (under 30),
    `no_spread` (the ratings, or the weighted scores, never vary), or what `jackknife_error` names.
    """

    n: int
    clusters: int
    weights: tuple[float, ...] = ()
    correlation: float | None = None
    fitted_correlation: float | None = None
    gain: float | None = None
    is_advised: bool = False
    reason: str | None = None


def fit_weights(
    scores: Floats, ratings: Floats, weights: Floats, questions: Whole | None = None, *, seed: int = 0, level: float = 0.95
) -> WeightFit:
    """Weights that follow the ratings best, and whether they do so on questions that they have not seen.

    Args:
        scores: one row per rated case, one column per score, all brought to one scale.
        ratings: people's ratings of the cases, on any scale; higher is better.
        weights: the weights in use, one per score.
        questions: the number of each case's question; None where all are independent.
        seed: of the folds.
        level: how sure the gain has to be.

    The fit is by least squares without negative weights on centred columns. For the gain, the questions are put into five
    folds, five times anew; each case is predicted by weights of the other folds. Gain = Pearson's correlation of the ratings
    with the sums of these predictions, less that with the weights in use; advised where gain - t(G-1) * s > 0, s its
    jackknife error over the G questions. Where nothing is to be gained it was advised in 1 of 1,200 samples. As an
    interval of the gain this does not hold (.68 to .91 instead of .95), so none is given. Raises ValueError where rows or columns do not fit.
    """
    codes, groups = questions_of(len(ratings), questions)
    if len(scores) != len(ratings) or scores.shape[1:] != weights.shape:
        raise ValueError(f"{scores.shape} scores do not fit {len(ratings)} ratings and {len(weights)} weights")
    if len(ratings) < FEWEST_RATINGS:
        return WeightFit(len(ratings), groups, reason="few_ratings")
    in_use = scores @ weights
    predicted = _out_of_fold(scores, ratings, codes, groups, seed)
    now, fitted = pearson(in_use, ratings), pearson(predicted, ratings)
    best = tuple(_normalised(scores, ratings).tolist())
    if now.value is None or fitted.value is None:
        return WeightFit(len(ratings), groups, best, reason=now.reason or fitted.reason)

    def gain_of(kept: Kept) -> float | None:
        one, two = pearson(predicted[kept], ratings[kept]).value, pearson(in_use[kept], ratings[kept]).value
        return None if one is None or two is None else one - two

    gain = fitted.value - now.value
    error, reason = jackknife_error(gain_of, codes, groups)
    is_sure = error is not None and reason is None and gain - t_quantile(level, groups - 1) * error > 0
    return WeightFit(len(ratings), groups, best, now.value, fitted.value, gain, is_sure, reason)


def non_negative_least_squares(columns: Floats, target: Floats) -> Floats:
    """The x >= 0 for which columns @ x is nearest to the target, by squares (Lawson and Hanson 1974, chapter 23).

    One column after another becomes free, the one that helps most first; where the least squares of the free ones make one
    negative, the step goes as far as none is, and what has come to 0 is held there again.
    """
    free = np.zeros(columns.shape[1], dtype=np.bool_)
    x = np.zeros(columns.shape[1])
    slack = _SLACK * max(float(np.max(np.abs(columns.T @ target), initial=0.0)), 1e-300)
    for _ in range(3 * len(x) + 10):
        gradient = np.where(free, -math.inf, columns.T @ (target - columns @ x))
        if np.max(gradient, initial=-math.inf) <= slack:
            break
        free[int(np.argmax(gradient))] = True
        while True:
            solved = np.zeros(len(x))
            solved[free] = np.linalg.lstsq(columns[:, free], target, rcond=None)[0]
            if np.all(solved[free] > 0):
                break
            falling = free & (solved <= 0)
            step = float(np.min(x[falling] / (x[falling] - solved[falling]), initial=1.0))
            x = x + step * (solved - x)
            free &= x > _SLACK * np.max(np.abs(x), initial=0.0)
            x[~free] = 0.0
        x = solved
    return x


def _out_of_fold(scores: Floats, ratings: Floats, codes: Whole, groups: int, seed: int) -> Floats:
    """For each case the sum of five predictions by weights of other questions, each less the mean of its fit."""
    rng = np.random.default_rng(seed)
    predicted = np.zeros(len(ratings))
    for _ in range(_REPEATS):
        fold = (rng.permutation(groups) % _FOLDS)[codes]
        for number in range(_FOLDS):
            is_tested = fold == number
            seen = scores[~is_tested]
            weights = _normalised(seen, ratings[~is_tested])
            predicted[is_tested] += scores[is_tested] @ weights - float(np.mean(seen @ weights))
    return predicted


def _normalised(scores: Floats, ratings: Floats) -> Floats:
    """Fitted weights that add up to 1; equal ones where no score rises with the ratings."""
    x = non_negative_least_squares(scores - np.mean(scores, axis=0), ratings - np.mean(ratings))
    total = float(np.sum(x))
    return x / total if total > 0 else np.full(len(x), 1 / len(x))


@dataclass(frozen=True)
class CaseScores:
    """A row per case. `keys` has its sample id, method and repeat, `questions` and `methods` their numbers.

    `values[name]` is the mean over the iterations, NaN where none has a value; `failed[name]` says where that is because
    the judgement failed, and not because the score does not apply.
    """

    keys: pa.Table
    questions: Whole
    methods: Whole
    method_names: tuple[str, ...]
    values: Mapping[str, Floats]
    failed: Mapping[str, NDArray[np.bool_]]

    def matrix(self, names: Sequence[str]) -> Floats:
        """One column per score. A case in which one of them failed has none: it has no overall score."""
        scores = np.stack([self.values[name] for name in names], axis=1)
        scores[np.any([self.failed[name] for name in names], axis=0)] = np.nan
        return scores

    def overall(self, weights: Mapping[str, float]) -> Floats:
        """The overall score of each case under these weights, as the run computes it; NaN where it has none."""
        names = [name for name, weight in weights.items() if weight > 0]
        return weighted_means(self.matrix(names), np.array([weights[name] for name in names]))


def fails_a_gate(records: Sequence[Path], names: Sequence[str]) -> NDArray[np.bool_]:
    """Of each case whether it misses the threshold of one of these critically gated scores, in any iteration."""
    failing = np.zeros(len(cases_of(records)), dtype=np.bool_)
    for path in records:
        with open_parquet_file(path) as file, reading_table(path):
            for column in {f"{name}.passed" for name in names} & {*file.schema_arrow.names}:
                failing |= numbers_of(file, column) == 0
    return failing


def read_case_scores(records: Sequence[Path], names: Sequence[str]) -> CaseScores:
    """Read these scores of all cases from `records.parquet` of each iteration. Raises DataError for tables that do not fit."""
    cases = cases_of(records)
    methods = cases.names["method"].combine_chunks().dictionary_encode()
    values, failed = dict[str, Floats](), dict[str, NDArray[np.bool_]]()
    for name in names:
        sums, counts, errors = np.zeros(len(cases)), np.zeros(len(cases)), np.zeros(len(cases), dtype=np.bool_)
        for path in records:
            with open_parquet_file(path) as file, reading_table(path):
                scores = numbers_of(file, f"{name}.score")
                status = file.read(columns=[f"{name}.status"])[0].combine_chunks()
            is_there = ~np.isnan(scores)
            sums[is_there] += scores[is_there]
            counts += is_there
            errors |= status.fill_null("error").to_numpy(zero_copy_only=False) == "error"
        with np.errstate(invalid="ignore"):
            values[name] = sums / counts
        failed[name] = errors & (counts == 0)
    numbers = methods.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return CaseScores(cases.names, cases.samples, numbers, tuple(methods.dictionary.to_pylist()), values, failed)
