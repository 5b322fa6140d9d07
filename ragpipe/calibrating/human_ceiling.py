"""How far people agree with each other on the labelled cases: what a judge can be expected to reach."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from ragpipe.calibrating.judge_agreement import RatedCases, agreement_statistics, statistic_of
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.calibration_file import CalibrationCeiling, CalibrationStatistic, Statistics
from ragpipe.stats.agreement_coefficients import correlation_ceiling
from ragpipe.stats.several_raters import estimate_ac, estimate_alpha

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
_SYMMETRIC = ("pearson", "spearman", "quadratic_kappa", "mae", "agreement", "kappa")


def human_ceiling(
    ratings: Floats,
    verdicts: Floats,
    questions: Whole,
    spec: ScoreSpec,
    *,
    judge_reliability: float | None,
    level: float,
) -> CalibrationCeiling | None:
    """How far people agree with each other; None where no case has two labels.

    Args:
        ratings: a row per case and a column per annotator, NaN where one gave no label; in the scale of the score.
        verdicts: what each rating says, 1 passed and 0 failed, NaN for none.
        questions: the number of each case's question.
        spec: the score.
        judge_reliability: the correlation of two iterations of the judge, None for a single one.
        level: the level of the intervals.

    Pearson, Spearman, quadratic kappa, mean absolute difference, agreement and kappa are over all pairs of labels of one
    case, each pair in both orders, so that it does not matter who comes first; `n` counts the pairs once. Alpha and AC are
    those of all annotators together. The labels that a judge is compared with are means of k people, whose reliability is
    k r / (1 + (k-1) r) for the correlation r of two people (Spearman 1910, Brown 1910), k the mean number of labels.
    """
    several = np.sum(~np.isnan(ratings), axis=1) > 1
    if not several.any():
        return None
    ratings, verdicts, questions = ratings[several], verdicts[several], questions[several]
    of_pairs = agreement_statistics(_pairs(ratings, verdicts, questions), spec, level)
    statistics = {name: _once(of_pairs[name]) for name in _SYMMETRIC if name in of_pairs}
    statistics |= _of_all(ratings, verdicts, questions, spec, level)
    reliability = _reference_reliability(
        statistics["pearson"].value, float(np.mean(np.sum(~np.isnan(ratings), axis=1)))
    )
    highest = None
    if reliability is not None:
        highest = correlation_ceiling(reliability, 1.0 if judge_reliability is None else judge_reliability)
    return CalibrationCeiling(
        annotators=int(np.sum(~np.isnan(ratings).all(axis=0))),
        cases=int(np.sum(several)),
        statistics=statistics,
        reference_reliability=reliability,
        judge_reliability=judge_reliability,
        highest_correlation=highest,
    )


def _pairs(ratings: Floats, verdicts: Floats, questions: Whole) -> RatedCases:
    """Every ordered pair of two people's labels of a case as a row."""
    orders = list(permutations(range(ratings.shape[1]), 2))
    first, second = (np.array([order[side] for order in orders]) for side in (0, 1))
    pairs = RatedCases(
        ratings[:, first].ravel(),
        verdicts[:, first].ravel(),
        ratings[:, second].ravel(),
        verdicts[:, second].ravel(),
        np.repeat(questions, len(orders)),
    )
    return pairs.with_values()


def _once(statistic: CalibrationStatistic) -> CalibrationStatistic:
    """A statistic over pairs in both orders, its `n` counting each pair once."""
    return statistic.model_copy(update={"n": statistic.n // 2})


def _of_all(ratings: Floats, verdicts: Floats, questions: Whole, spec: ScoreSpec, level: float) -> Statistics:
    """Krippendorff's alpha and Gwet's AC of all annotators."""
    statistics: Statistics = {}
    if spec.low is not None and spec.high is not None:
        scale = (spec.low, spec.high)
        statistics["alpha_interval"] = statistic_of(estimate_alpha(ratings, questions, scale=scale, level=level))
    if np.any(np.sum(~np.isnan(verdicts), axis=1) > 1):
        statistics["alpha"] = statistic_of(estimate_alpha(verdicts, questions, level=level))
        statistics["ac1"] = statistic_of(estimate_ac(verdicts, np.array([0.0, 1.0]), questions, level=level))
    return statistics


def _reference_reliability(correlation: float | None, raters: float) -> float | None:
    """Spearman and Brown's formula; None without a correlation, 0 for one below 0."""
    if correlation is None:
        return None
    correlation = max(0.0, correlation)
    return raters * correlation / (1 + (raters - 1) * correlation)
