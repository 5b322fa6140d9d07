"""One score of a finished run compared with people's labels: all statistics, the verdict, and what it is bound to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragpipe.calibrating.human_ceiling import human_ceiling
from ragpipe.calibrating.judge_agreement import (
    RatedCases,
    agreement_statistics,
    better_first,
    confusion_of,
    difference_statistic,
    mean_difference,
    share_passed,
    slice_statistics,
    statistic_of,
)
from ragpipe.calibrating.judged_cases import JudgedCases
from ragpipe.calibrating.people_labels import PeopleLabels
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.calibration_file import (
    Binding,
    CalibrationCeiling,
    CalibrationLabel,
    CalibrationSlice,
    CalibrationTarget,
    LengthBaseline,
    ScoreCalibration,
)
from ragpipe.scoring.normalisation import UNJUDGED, pass_fail
from ragpipe.stats.detection import auroc, estimate_auroc
from ragpipe.stats.jackknife import difference_of_versions
from ragpipe.stats.kappa_verdict import KappaVerdict, decide_kappa

Floats = NDArray[np.float64]
Reference = Literal["single", "majority", "mean"]
DRAWN_AT_RANDOM = ("random", "recorded")
"""The parts of a draw whose cases stand for all cases of the run. Others feed corrected means alone."""
AGREEMENT_PARTS = (*DRAWN_AT_RANDOM, "open")
"""The parts by which agreement goes: cases of verdicts that are not blind stand for themselves, and are in no draw with others."""
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
    """Everything that the calibration file says of a score.

    Args:
        evidence: labels and judgements of the score.
        target: what agreement has to exceed.
        slices: the fields by which the agreement is broken down.
        level: the level of the intervals.
    """
    spec, labels, judged = evidence.spec, evidence.labels, evidence.judged
    people = reference_of(labels, spec, evidence.bound_to.threshold)
    is_random = np.array([case.part in AGREEMENT_PARTS for case in labels.cases], dtype=np.bool_)
    rated_all = RatedCases(people.labels, people.verdicts, judged.values, judged.verdicts, judged.questions)
    rated = rated_all.where(is_random)
    ceiling = human_ceiling(
        labels.ratings[is_random],
        people.rating_verdicts[is_random],
        judged.questions[is_random],
        spec,
        judge_reliability=judged.reliability,
        level=level,
    )
    limit, verdict, reason = _verdict(rated, spec, target, ceiling, level)
    return ScoreCalibration(
        metric=evidence.metric,
        draw_id=labels.draw_id,
        recorded=labels.recorded,
        reference=people.rule,
        bound_to=evidence.bound_to,
        target=target,
        limit=limit,
        state=verdict.state if verdict else "not_enough_labels",
        labels_needed=verdict.labels_needed if verdict else None,
        reason=reason,
        unjudged=int(np.sum(np.isnan(rated.scores))),
        statistics=agreement_statistics(rated, spec, level),
        confusion=confusion_of(rated, spec),
        prevalence=share_passed(rated.label_verdicts, rated.questions, level),
        judged_prevalence=share_passed(rated.verdicts, rated.questions, level),
        ceiling=ceiling,
        slices=list(_slices(rated_all, is_random, evidence, slices, level)),
        length_baseline=length_baseline(rated, judged.lengths[is_random], spec, level),
        labels=list(_labels(evidence, people)),
        strata=labels.strata,
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
    ends = [end for end in (spec.low, spec.high) if end is not None]
    is_binary = bool(np.isin(ratings[known], ends).all())
    limit = labels.threshold if labels.threshold is not None else threshold
    if is_binary:
        limit = spec.high if spec.higher_is_better else spec.low
    by_rating = verdicts_of(ratings.ravel(), spec, limit).reshape(ratings.shape)
    verdicts = _majority(by_rating) if is_binary else verdicts_of(means, spec, limit)
    several = bool(np.any(np.sum(known, axis=1) > 1))
    rule: Reference = ("majority" if is_binary else "mean") if several else "single"
    return PeopleReference(means, verdicts, by_rating, rule)


def verdicts_of(values: Floats, spec: ScoreSpec, threshold: float | None) -> Floats:
    """1 passed, 0 failed, NaN without a value or a threshold."""
    verdicts = pass_fail(values, spec, threshold)
    return np.where(verdicts == UNJUDGED, np.nan, verdicts.astype(np.float64))


def _majority(verdicts: Floats) -> Floats:
    votes = np.nansum(2 * verdicts - 1, axis=1)
    return np.where(votes > 0, 1.0, np.where(votes < 0, 0.0, np.nan))


def _verdict(
    rated: RatedCases, spec: ScoreSpec, target: CalibrationTarget, ceiling: CalibrationCeiling | None, level: float
) -> tuple[float | None, KappaVerdict | None, str | None]:
    """The limit, the verdict, and why there is none: `no_ceiling`, `ceiling_of_zero`, `no_threshold` (the judge or people
    have no verdicts), `no_scale`, or a reason of `decide_kappa`."""
    limit = target.above
    if target.relative_to_ceiling:
        between = ceiling.statistics.get(target.statistic) if ceiling else None
        if between is None or between.value is None:
            return None, None, "no_ceiling"
        if between.value <= 0:
            return None, None, "ceiling_of_zero"
        limit = target.above * between.value
    if target.statistic == "kappa":
        both = rated.with_verdicts()
        if not len(both.labels):
            return limit, None, "no_threshold"
        verdict = decide_kappa(both.label_verdicts, both.verdicts, both.questions, target=limit, level=level)
        return limit, verdict, verdict.reason
    if spec.low is None or spec.high is None:
        return limit, None, "no_scale"
    both, scale = rated.with_values(), (spec.low, spec.high)
    verdict = decide_kappa(both.labels, both.scores, both.questions, scale=scale, target=limit, level=level)
    return limit, verdict, verdict.reason


def length_baseline(rated: RatedCases, lengths: Floats, spec: ScoreSpec, level: float) -> LengthBaseline | None:
    """The length of the answer against the judge, on the cases that have both and a verdict of people; None where these are
    all of one class. The better of both directions counts, so the baseline is a little flattered."""
    kept = ~np.isnan(rated.label_verdicts) & ~np.isnan(rated.scores) & ~np.isnan(lengths)
    both, lengths = rated.where(kept), lengths[kept]
    area = auroc(both.label_verdicts, -lengths)
    if area.value is None:
        return None
    shorter = area.value >= 0.5
    by_length = -lengths if shorter else lengths
    scores = better_first(both.scores, spec)
    difference = difference_of_versions(auroc, both.label_verdicts, by_length, scores, both.questions, level=level)
    estimated = estimate_auroc(both.label_verdicts, by_length, both.questions, level=level)
    return LengthBaseline(
        shorter_passes=shorter, auroc=statistic_of(estimated), difference=difference_statistic(difference)
    )


def _slices(
    rated: RatedCases, is_random: NDArray[np.bool_], evidence: ScoreEvidence, fields: Sequence[str], level: float
) -> Iterator[CalibrationSlice]:
    """The agreement by each value of each field that has several."""
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
                    statistics=slice_statistics(part, evidence.spec, level),
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
    return None if np.isnan(verdict) else bool(verdict)
