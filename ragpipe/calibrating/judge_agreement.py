"""How far two raters agree, by every statistic that applies: a judge with people, or one person with another.

Labels and scores are in the scale of the score. Classes are passed (1) and failed (0). Intervals go by questions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.calibration_file import CalibrationInterval, CalibrationStatistic, ConfusionTable, Statistics
from ragpipe.stats.agreement_coefficients import kendall, pearson, spearman
from ragpipe.stats.agreement_intervals import estimate_correlation, estimate_kappa, estimate_quadratic_kappa
from ragpipe.stats.detection import (
    estimate_auroc,
    estimate_balanced_accuracy,
    estimate_sensitivity,
    estimate_specificity,
)
from ragpipe.stats.intervals import Estimate, Interval, estimate_mean, estimate_rate
from ragpipe.stats.jackknife import EstimatedStatistic, VersionDifference
from ragpipe.stats.several_raters import estimate_ac, estimate_alpha

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
CORRELATIONS = {"pearson": pearson, "spearman": spearman, "kendall": kendall}
_CLASSES = np.array([0.0, 1.0])
_MOST_CLASSES = 10  # of a table of counts


@dataclass(frozen=True)
class RatedCases:
    """Cases that two raters rated, a row each: values and verdicts of both, NaN where one has none.

    `labels` and `label_verdicts` are people's, `scores` and `verdicts` the judge's (or those of a second person).
    """

    labels: Floats
    label_verdicts: Floats
    scores: Floats
    verdicts: Floats
    questions: Whole

    def where(self, kept: NDArray[np.bool_]) -> RatedCases:
        """Some of the rows."""
        return RatedCases(
            self.labels[kept],
            self.label_verdicts[kept],
            self.scores[kept],
            self.verdicts[kept],
            self.questions[kept],
        )

    def with_values(self) -> RatedCases:
        """The rows with a value of both raters."""
        return self.where(~np.isnan(self.labels) & ~np.isnan(self.scores))

    def with_verdicts(self) -> RatedCases:
        """The rows with a verdict of both raters."""
        return self.where(~np.isnan(self.label_verdicts) & ~np.isnan(self.verdicts))


def agreement_statistics(rated: RatedCases, spec: ScoreSpec, level: float) -> Statistics:
    """Every statistic of both raters' values and verdicts that applies, by name.

    Of values: `pearson`, `spearman`, `kendall`, and on a scale `quadratic_kappa`, `mae` (mean absolute difference) and
    `difference` (mean of score - label) in the scale of the score; `ac2` and `alpha_interval` of grades. Of verdicts: `agreement`,
    `kappa`, `ac1`, `alpha`, `sensitivity` and `specificity` (passed is the positive class), `balanced_accuracy`, and
    `auroc` of the scores against people's verdicts. What is not defined has a reason and no value; without one verdict of
    both raters there is none of these statistics.
    """
    statistics = _of_values(rated.with_values(), spec, level)
    both = rated.with_verdicts()
    if len(both.labels):
        statistics |= _of_verdicts(both, level)
    detected = rated.where(~np.isnan(rated.label_verdicts) & ~np.isnan(rated.scores))
    if len(detected.labels):
        statistics["auroc"] = judge_auroc(detected, spec, level)
    return statistics


def slice_statistics(rated: RatedCases, spec: ScoreSpec, level: float) -> Statistics:
    """`agreement`, `kappa` and `auroc` alone, as in `agreement_statistics`: the others take longer than all slices may."""
    statistics: Statistics = {}
    both = rated.with_verdicts()
    if len(both.labels):
        statistics |= _agreement_and_kappa(both, level)
    detected = rated.where(~np.isnan(rated.label_verdicts) & ~np.isnan(rated.scores))
    if len(detected.labels):
        statistics["auroc"] = judge_auroc(detected, spec, level)
    return statistics


def judge_auroc(rated: RatedCases, spec: ScoreSpec, level: float) -> CalibrationStatistic:
    """AUROC of the scores against people's verdicts, the better score first."""
    return statistic_of(
        estimate_auroc(rated.label_verdicts, better_first(rated.scores, spec), rated.questions, level=level)
    )


def better_first(scores: Floats, spec: ScoreSpec) -> Floats:
    """The scores with their sign turned where lower is better."""
    return scores if spec.higher_is_better else -scores


def confusion_of(rated: RatedCases, spec: ScoreSpec) -> ConfusionTable | None:
    """Counts of both raters' verdicts; without verdicts those of their grades, where both use the grades of the score or at
    most ten values. None where there is nothing to count."""
    both = rated.with_verdicts()
    if len(both.labels):
        return _counts(both.label_verdicts, both.verdicts, {0.0: "failed", 1.0: "passed"})
    values = rated.with_values()
    classes = np.unique(np.concatenate([values.labels, values.scores]))
    if not 0 < len(classes) <= _MOST_CLASSES:
        return None
    names = {value: name for name, value in spec.grades}
    return _counts(values.labels, values.scores, {float(value): names.get(value, f"{value:g}") for value in classes})


def _of_values(rated: RatedCases, spec: ScoreSpec, level: float) -> Statistics:
    labels, scores, questions = rated.labels, rated.scores, rated.questions
    statistics = {
        name: statistic_of(estimate_correlation(correlation, labels, scores, questions, level=level))
        for name, correlation in CORRELATIONS.items()
    }
    if spec.low is None or spec.high is None or not len(labels):
        return statistics
    low, high = spec.low, spec.high
    kappa = estimate_quadratic_kappa(labels, scores, questions, low=low, high=high, level=level)
    apart = scores - labels
    statistics |= {
        "quadratic_kappa": statistic_of(kappa),
        "mae": _of_mean(estimate_mean(np.abs(apart), questions, low=0.0, high=high - low, level=level)),
        "difference": _of_mean(estimate_mean(apart, questions, low=low - high, high=high - low, level=level)),
    }
    ratings, grades = np.stack([labels, scores], axis=1), np.array([value for _, value in spec.grades])
    if len(grades) > 1 and np.isin(ratings, grades).all():
        statistics["ac2"] = statistic_of(estimate_ac(ratings, np.sort(grades), questions, squared=True, level=level))
        statistics["alpha_interval"] = statistic_of(estimate_alpha(ratings, questions, scale=(low, high), level=level))
    return statistics


def _of_verdicts(rated: RatedCases, level: float) -> Statistics:
    labels, verdicts, questions = rated.label_verdicts, rated.verdicts, rated.questions
    ratings = np.stack([labels, verdicts], axis=1)
    rates = {"sensitivity": estimate_sensitivity, "specificity": estimate_specificity}
    return {
        **_agreement_and_kappa(rated, level),
        "ac1": statistic_of(estimate_ac(ratings, _CLASSES, questions, level=level)),
        "alpha": statistic_of(estimate_alpha(ratings, questions, level=level)),
        **{name: _of_mean(rate(labels, verdicts, questions, level=level)) for name, rate in rates.items()},
        "balanced_accuracy": statistic_of(estimate_balanced_accuracy(labels, verdicts, questions, level=level)),
    }


def _agreement_and_kappa(rated: RatedCases, level: float) -> Statistics:
    labels, verdicts, questions = rated.label_verdicts, rated.verdicts, rated.questions
    return {
        "agreement": _of_mean(estimate_rate((labels == verdicts).astype(float), questions, level=level)),
        "kappa": statistic_of(estimate_kappa(labels, verdicts, questions, level=level)),
    }


def share_passed(verdicts: Floats, questions: Whole, level: float) -> CalibrationStatistic | None:
    """The share of passed among the verdicts that exist; None without one."""
    known = ~np.isnan(verdicts)
    if not known.any():
        return None
    return _of_mean(estimate_rate(verdicts[known], questions[known], level=level))


def mean_difference(rated: RatedCases, spec: ScoreSpec, level: float) -> CalibrationStatistic:
    """The mean of score - label over the cases with both, in the scale of the score."""
    both = rated.with_values()
    scale = {} if spec.low is None or spec.high is None else {"low": spec.low - spec.high, "high": spec.high - spec.low}
    return _of_mean(estimate_mean(both.scores - both.labels, both.questions, level=level, **scale))


def statistic_of(estimated: EstimatedStatistic) -> CalibrationStatistic:
    """An estimate as it stands in the file."""
    return _statistic(estimated, estimated.value)


def difference_statistic(difference: VersionDifference) -> CalibrationStatistic:
    """A difference of two versions as it stands in the file."""
    return _statistic(difference, difference.difference)


def _of_mean(estimate: Estimate) -> CalibrationStatistic:
    return _statistic(estimate, estimate.mean)


def _statistic(
    estimated: EstimatedStatistic | VersionDifference | Estimate, value: float | None
) -> CalibrationStatistic:
    return CalibrationStatistic(
        n=estimated.n,
        clusters=estimated.clusters,
        value=value,
        interval=_interval(estimated.interval),
        reason=estimated.reason,
    )


def _interval(interval: Interval | None) -> CalibrationInterval | None:
    if interval is None:
        return None
    return CalibrationInterval(
        level=interval.level, low=interval.low, high=interval.high, method=interval.method, too_few=interval.too_few
    )


def _counts(labels: Floats, scores: Floats, names: dict[float, str]) -> ConfusionTable:
    counts = [[int(np.sum((labels == row) & (scores == column))) for column in names] for row in names]
    return ConfusionTable(classes=list(names.values()), counts=counts)
