"""One score of a finished run compared with people's labels: all statistics, the verdict, and what it is bound to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragpipe.calibration.people_labels import JudgedCases, PeopleLabels, majority, verdicts_of
from ragpipe.core.score import ScoreSpec
from ragpipe.score.calibration_file import (
    Binding,
    CalibrationCeiling,
    CalibrationInterval,
    CalibrationLabel,
    CalibrationSlice,
    CalibrationStatistic,
    CalibrationTarget,
    ConfusionTable,
    LengthBaseline,
    ScoreCalibration,
    Statistics,
)
from ragpipe.stats.agreement import difference_of_versions, estimate_correlation, estimate_kappa, kendall, pearson, spearman
from ragpipe.stats.detection import (
    KappaVerdict,
    auroc,
    decide_kappa,
    estimate_auroc,
    estimate_balanced_accuracy,
    estimate_sensitivity,
    estimate_specificity,
)
from ragpipe.stats.intervals import Estimate, estimate_mean, estimate_rate
from ragpipe.stats.several_raters import estimate_ac, estimate_alpha

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Reference = Literal["single", "majority", "mean"]
AGREEMENT_PARTS = ("random", "recorded")
"""The parts of a draw by which agreement goes: their cases stand for all cases of the run. Others feed corrected means alone."""
_PLACES = 9


@dataclass(frozen=True)
class ScoreEvidence:
    """What is known of one score: its declaration, people's labels, and what the run says of the same cases in the same
    order. `answers` are the digests of the labelled answers."""

    metric: str
    spec: ScoreSpec
    labels: PeopleLabels
    judged: JudgedCases
    answers: Sequence[str]
    bound_to: Binding


def calibrate_score(
    evidence: ScoreEvidence, target: CalibrationTarget, slices: Sequence[str], level: float
) -> ScoreCalibration:
    """Everything that the calibration file says of a score: `target` is what agreement has to exceed, `slices` are the fields by which
    it is broken down, `level` is that of the intervals."""
    spec, labels, judged = evidence.spec, evidence.labels, evidence.judged
    people = reference_of(labels, spec, evidence.bound_to.threshold)
    is_random = np.array([case.part in AGREEMENT_PARTS for case in labels.cases], dtype=np.bool_)
    by_judge = choices(judged.values) if spec.choice else judged.verdicts
    rated_all = RatedCases(people.labels, people.verdicts, judged.values, by_judge, judged.questions)
    rated = rated_all.where(is_random)
    verdict, reason = _verdict(rated, spec, target, level)
    return ScoreCalibration(
        metric=evidence.metric,
        draw_id=labels.draw_id,
        recorded=labels.recorded,
        reference=people.rule,
        bound_to=evidence.bound_to,
        target=target,
        state=verdict.state if verdict else "not_enough_labels",
        labels_needed=verdict.labels_needed if verdict else None,
        reason=reason,
        unjudged=int(np.sum(np.isnan(rated.scores))),
        statistics=agreement_statistics(rated, spec, level),
        confusion=confusion_of(rated, spec),
        prevalence=share_passed(rated.label_verdicts, rated.questions, level),
        judged_prevalence=share_passed(rated.verdicts, rated.questions, level),
        ceiling=human_ceiling(
            labels.ratings[is_random],
            people.rating_verdicts[is_random],
            judged.questions[is_random],
            spec,
            judge_reliability=judged.reliability,
            level=level,
        ),
        slices=list(_slices(rated_all, is_random, evidence, slices, level)),
        length_baseline=length_baseline(rated, judged.lengths[is_random], spec, level),
        labels=list(_labels(evidence, people)),
        by_method=labels.by_method,
    )


@dataclass(frozen=True)
class PeopleReference:
    """One label of people per case: `labels` in the scale of the score, `verdicts` 1 and 0 (NaN for none); `rule` is how
    several labels became one, `rating_verdicts` what each single label says."""

    labels: Floats
    verdicts: Floats
    rating_verdicts: Floats
    rule: Reference


def reference_of(labels: PeopleLabels, spec: ScoreSpec, threshold: float | None) -> PeopleReference:
    """One label per case. Labels that are all at the ends of the scale are passes and fails: the verdict is that of most
    annotators, and a tie has none. Of grades it is that of their mean by the threshold of the labels, else of the score."""
    ratings = labels.ratings
    known = ~np.isnan(ratings)
    # rounded, so that equal means are equal whatever the order of the ratings: ranks depend on ties
    means = np.round(np.nansum(ratings, axis=1) / np.sum(known, axis=1), _PLACES)
    several = bool(np.any(np.sum(known, axis=1) > 1))
    if spec.choice:
        return PeopleReference(means, most_chosen(ratings), ratings, "majority" if several else "single")
    ends = [end for end in (spec.low, spec.high) if end is not None]
    is_binary = bool(np.isin(ratings[known], ends).all())
    limit = labels.threshold if labels.threshold is not None else threshold
    if is_binary:
        limit = spec.high if spec.higher_is_better else spec.low
    by_rating = verdicts_of(ratings.ravel(), spec, limit).reshape(ratings.shape)
    verdicts = majority(by_rating) if is_binary else verdicts_of(means, spec, limit)
    rule: Reference = ("majority" if is_binary else "mean") if several else "single"
    return PeopleReference(means, verdicts, by_rating, rule)


def choices(values: Floats) -> Floats:
    """Values of pairs as what was chosen: 1 a win, 0 a loss, .5 a tie; NaN stays. A mean above one half is a win."""
    return np.asarray(0.5 + 0.5 * np.sign(values - 0.5))


def most_chosen(ratings: Floats) -> Floats:
    """What most annotators of each case chose; NaN where two choices have as many, or nobody chose."""
    counts = np.stack([np.sum(ratings == value, axis=1) for value in (0.0, 0.5, 1.0)], axis=1)
    is_tied = np.sum(counts == np.max(counts, axis=1, keepdims=True), axis=1) > 1
    return np.where(is_tied, np.nan, np.argmax(counts, axis=1) / 2)


def _verdict(
    rated: RatedCases, spec: ScoreSpec, target: CalibrationTarget, level: float
) -> tuple[KappaVerdict | None, str | None]:
    """The verdict, or why there is none: `no_threshold`, `no_scale`, or a reason of `decide_kappa`."""
    if target.statistic == "kappa":
        both = rated.with_verdicts()
        if not len(both.labels):
            return None, "no_threshold"
        verdict = decide_kappa(both.label_verdicts, both.verdicts, both.questions, target=target.above, level=level)
        return verdict, verdict.reason
    if spec.low is None or spec.high is None:
        return None, "no_scale"
    both, scale = rated.with_values(), (spec.low, spec.high)
    verdict = decide_kappa(both.labels, both.scores, both.questions, scale=scale, target=target.above, level=level)
    return verdict, verdict.reason


def length_baseline(rated: RatedCases, lengths: Floats, spec: ScoreSpec, level: float) -> LengthBaseline | None:
    """The length of the answer against the judge, on the cases that have both and a verdict of people; None where these are
    all of one class. The better of both directions counts, so the baseline is a little flattered."""
    decided = (rated.label_verdicts == 0) | (rated.label_verdicts == 1)
    kept = decided & ~np.isnan(rated.scores) & ~np.isnan(lengths)
    both, lengths = rated.where(kept), lengths[kept]
    area = auroc(both.label_verdicts, -lengths)
    if area.value is None:
        return None
    shorter = area.value >= 0.5
    by_length = -lengths if shorter else lengths
    scores = better_first(both.scores, spec)
    difference = difference_of_versions(auroc, both.label_verdicts, by_length, scores, both.questions, level=level)
    estimated = estimate_auroc(both.label_verdicts, by_length, both.questions, level=level)
    return LengthBaseline(shorter_passes=shorter, auroc=statistic_of(estimated), difference=statistic_of(difference))


def _slices(
    rated: RatedCases, is_random: NDArray[np.bool_], evidence: ScoreEvidence, fields: Sequence[str], level: float
) -> Iterator[CalibrationSlice]:
    for field in fields:
        coded = evidence.judged.fields.of(field)
        for code, value in enumerate(coded.names) if len(coded.names) > 1 else ():
            kept = np.zeros(len(is_random), dtype=np.bool_)
            kept[coded.cases[coded.codes == code]] = True
            part = rated.where(kept & is_random)
            if len(part.labels):
                yield CalibrationSlice(
                    field=field,
                    value=value,
                    statistics=agreement_statistics(part, evidence.spec, level, few=True),
                    difference=mean_difference(part, evidence.spec, level),
                )


def _labels(evidence: ScoreEvidence, people: PeopleReference) -> Iterator[CalibrationLabel]:
    counts = np.sum(~np.isnan(evidence.labels.ratings), axis=1)
    for place, case in enumerate(evidence.labels.cases):
        sample_id, method, repeat = case.key
        yield CalibrationLabel(
            sample_id=sample_id,
            method=method,
            repeat=repeat,
            answer_sha256=evidence.answers[place],
            label=float(people.labels[place]),
            annotators=int(counts[place]),
            part=case.part,
            stratum=case.stratum,
            probability=case.probability,
            passed=_verdict_of(people.verdicts[place]),
            judge_passed=_verdict_of(evidence.judged.verdicts[place]),
        )


def _verdict_of(verdict: float) -> bool | None:
    return bool(verdict) if verdict in (0, 1) else None


_SYMMETRIC = ("pearson", "spearman", "quadratic_kappa", "mae", "agreement", "kappa")


def human_ceiling(
    ratings: Floats, verdicts: Floats, questions: Whole, spec: ScoreSpec, *, judge_reliability: float | None, level: float
) -> CalibrationCeiling | None:
    """How far people agree with each other; None where no case has two labels.

    `ratings` (in the scale of the score) and `verdicts` (1 passed, 0 failed) have a row per case and a column per annotator, NaN for
    none; `judge_reliability` is the correlation of two iterations of the judge, None for a single one.

    Pearson, Spearman, quadratic kappa, mean absolute difference, agreement and kappa are over all pairs of labels of one
    case, each pair in both orders, so that it does not matter who comes first; `n` counts the pairs once. Alpha and AC are
    those of all annotators together. The labels that a judge is compared with are means of k people, whose reliability is
    k r / (1 + (k-1) r) for the correlation r of two people (Spearman 1910, Brown 1910), k the mean number of labels. The highest
    correlation that a judge can reach with them is the root of that reliability times the judge's (Spearman 1904).
    """
    several = np.sum(~np.isnan(ratings), axis=1) > 1
    if not several.any():
        return None
    ratings, verdicts, questions = ratings[several], verdicts[several], questions[several]
    of_pairs = agreement_statistics(_pairs(ratings, verdicts, questions), spec, level)
    statistics = {
        name: of_pairs[name].model_copy(update={"n": of_pairs[name].n // 2}) for name in _SYMMETRIC if name in of_pairs
    }
    statistics |= _of_all(ratings, verdicts, questions, spec, level)
    reliability = highest = None
    correlation = statistics.get("pearson")
    if correlation is not None and (of_two := correlation.value) is not None:
        of_two, raters = max(0.0, of_two), float(np.mean(np.sum(~np.isnan(ratings), axis=1)))
        reliability = raters * of_two / (1 + (raters - 1) * of_two)
        highest = math.sqrt(reliability * (1.0 if judge_reliability is None else max(0.0, judge_reliability)))
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
    one, other = ((ratings[:, side].ravel(), verdicts[:, side].ravel()) for side in (first, second))
    return RatedCases(*one, *other, np.repeat(questions, len(orders))).with_values()


def _of_all(ratings: Floats, verdicts: Floats, questions: Whole, spec: ScoreSpec, level: float) -> Statistics:
    """Krippendorff's alpha and Gwet's AC of all annotators."""
    statistics: Statistics = {}
    if spec.low is not None and spec.high is not None:
        scale = (spec.low, spec.high)
        statistics["alpha_interval"] = statistic_of(estimate_alpha(ratings, questions, scale=scale, level=level))
    if not spec.choice and np.any(np.sum(~np.isnan(verdicts), axis=1) > 1):
        statistics["alpha"] = statistic_of(estimate_alpha(verdicts, questions, level=level))
        statistics["ac1"] = statistic_of(estimate_ac(verdicts, np.array([0.0, 1.0]), questions, level=level))
    return statistics


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
        return RatedCases(*(column[kept] for column in vars(self).values()))

    def with_values(self) -> RatedCases:
        """The rows with a value of both raters."""
        return self.where(~np.isnan(self.labels) & ~np.isnan(self.scores))

    def with_verdicts(self) -> RatedCases:
        """The rows with a verdict of both raters."""
        return self.where(~np.isnan(self.label_verdicts) & ~np.isnan(self.verdicts))


def agreement_statistics(rated: RatedCases, spec: ScoreSpec, level: float, *, few: bool = False) -> Statistics:
    """Every statistic of both raters' values and verdicts that applies, by name.

    Of values: `pearson`, `spearman`, `kendall`, and on a scale `quadratic_kappa`, `mae` (mean absolute difference) and
    `difference` (mean of score - label) in the scale of the score; `ac2` and `alpha_interval` of grades. Of verdicts: `agreement`,
    `kappa`, `ac1`, `alpha`, `sensitivity` and `specificity` (passed is the positive class), `balanced_accuracy`, and
    `auroc` of the scores against people's verdicts. Of a choice `agreement`, `kappa` and `agreement_without_ties` alone. What is not defined has a reason and no value; without one verdict of
    both raters there is none of these statistics. With `few` there are `agreement`, `kappa` and `auroc` alone: the others take
    longer than all slices may.
    """
    both = rated.with_verdicts()
    if spec.choice:
        return _of_choices(both, level) if len(both.labels) else {}
    statistics = {} if few else _of_values(rated.with_values(), spec, level)
    if len(both.labels):
        statistics |= _agreement_and_kappa(both, level) if few else _of_verdicts(both, level)
    detected = rated.where(~np.isnan(rated.label_verdicts) & ~np.isnan(rated.scores))
    if len(detected.labels):
        scores = better_first(detected.scores, spec)
        statistics["auroc"] = statistic_of(estimate_auroc(detected.label_verdicts, scores, detected.questions, level=level))
    return statistics


def better_first(scores: Floats, spec: ScoreSpec) -> Floats:
    """The scores with their sign turned where lower is better."""
    return scores if spec.higher_is_better else -scores


def confusion_of(rated: RatedCases, spec: ScoreSpec) -> ConfusionTable | None:
    """Counts of both raters' verdicts; without verdicts those of their grades, where both use the grades of the score or at
    most ten values. None where there is nothing to count."""
    both = rated.with_verdicts()
    if len(both.labels):
        names = {value: name for name, value in spec.grades} if spec.choice else {0.0: "failed", 1.0: "passed"}
        return _counts(both.label_verdicts, both.verdicts, names)
    values = rated.with_values()
    classes = np.unique(np.concatenate([values.labels, values.scores]))
    if not 0 < len(classes) <= _MOST_CLASSES:
        return None
    named = {value: name for name, value in spec.grades}
    return _counts(values.labels, values.scores, {float(value): named.get(value, f"{value:g}") for value in classes})


def _of_values(rated: RatedCases, spec: ScoreSpec, level: float) -> Statistics:
    labels, scores, questions = rated.labels, rated.scores, rated.questions
    statistics = {
        name: statistic_of(estimate_correlation(correlation, labels, scores, questions, level=level))
        for name, correlation in (("pearson", pearson), ("spearman", spearman), ("kendall", kendall))
    }
    if spec.low is None or spec.high is None or not len(labels):
        return statistics
    low, high = spec.low, spec.high
    kappa = estimate_kappa(labels, scores, questions, scale=(low, high), level=level)
    apart = scores - labels
    statistics |= {
        "quadratic_kappa": statistic_of(kappa),
        "mae": statistic_of(estimate_mean(np.abs(apart), questions, low=0.0, high=high - low, level=level)),
        "difference": statistic_of(estimate_mean(apart, questions, low=low - high, high=high - low, level=level)),
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
        "ac1": statistic_of(estimate_ac(ratings, np.array([0.0, 1.0]), questions, level=level)),
        "alpha": statistic_of(estimate_alpha(ratings, questions, level=level)),
        **{name: statistic_of(rate(labels, verdicts, questions, level=level)) for name, rate in rates.items()},
        "balanced_accuracy": statistic_of(estimate_balanced_accuracy(labels, verdicts, questions, level=level)),
    }


def _of_choices(rated: RatedCases, level: float) -> Statistics:
    """Agreement and kappa of wins, ties and losses, and the agreement where neither rater chose a tie."""
    decided = rated.where((rated.label_verdicts != 0.5) & (rated.verdicts != 0.5))
    without_ties = (decided.label_verdicts == decided.verdicts).astype(float)
    rate = estimate_rate(without_ties, decided.questions, level=level)
    return {**_agreement_and_kappa(rated, level), "agreement_without_ties": statistic_of(rate)}


def _agreement_and_kappa(rated: RatedCases, level: float) -> Statistics:
    labels, verdicts, questions = rated.label_verdicts, rated.verdicts, rated.questions
    return {
        "agreement": statistic_of(estimate_rate((labels == verdicts).astype(float), questions, level=level)),
        "kappa": statistic_of(estimate_kappa(labels, verdicts, questions, level=level)),
    }


def share_passed(verdicts: Floats, questions: Whole, level: float) -> CalibrationStatistic | None:
    """The share of passed among the verdicts that exist; None without one."""
    known = ~np.isnan(verdicts)
    return None if not known.any() else statistic_of(estimate_rate(verdicts[known], questions[known], level=level))


def mean_difference(rated: RatedCases, spec: ScoreSpec, level: float) -> CalibrationStatistic:
    """The mean of score - label over the cases with both, in the scale of the score."""
    both = rated.with_values()
    scale = {} if spec.low is None or spec.high is None else {"low": spec.low - spec.high, "high": spec.high - spec.low}
    return statistic_of(estimate_mean(both.scores - both.labels, both.questions, level=level, **scale))


def statistic_of(estimated: Estimate) -> CalibrationStatistic:
    """An estimate as it stands in the file."""
    interval = None if estimated.interval is None else CalibrationInterval(**asdict(estimated.interval))
    return CalibrationStatistic(
        n=estimated.n, clusters=estimated.clusters, value=estimated.value, interval=interval, reason=estimated.reason
    )


def _counts(labels: Floats, scores: Floats, names: dict[float, str]) -> ConfusionTable:
    counts = [[int(np.sum((labels == row) & (scores == column))) for column in names] for row in names]
    return ConfusionTable(classes=list(names.values()), counts=counts)
