"""The scores of a finished run compared with people's labels: which have labels, and whether these are of its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.calibration.label_files import labelled_answers
from ragpipe.calibration.people_labels import (
    TITLE,
    PeopleLabels,
    drawn_labels,
    judged_cases,
    no_labels_problem,
    recorded_labels,
)
from ragpipe.calibration.score_calibration import ScoreEvidence, calibrate_score, reference_of
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.score import ScoreSpec
from ragpipe.core.version import FORMAT
from ragpipe.score.calibration_file import CalibratedJudge, Calibration, CalibrationTarget, asked_shapes, binding_of
from ragpipe.score.dimensions import DIMENSIONS
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import batches, count_rows


@dataclass(frozen=True)
class CalibratedRun:
    """The run: its folder, id and identity, the judge's printed name, the numbers of its scored iterations, its scores with
    the metric that gives each, their thresholds, the breakdowns that it has beside the usual ones, and the level of intervals."""

    folder: RunFolder
    run_id: str
    identity: Mapping[str, Any]
    judge: str
    iterations: Sequence[int]
    scores: Mapping[str, tuple[str, ScoreSpec]]
    thresholds: Mapping[str, float | None]
    slices: Sequence[str]
    level: float


def calibrate_run(run: CalibratedRun, evidence: Mapping[str, ScoreEvidence], target: CalibrationTarget) -> Calibration:
    """The calibration of the scores of `evidence`; `target` is what agreement has to exceed."""
    fields = [field for field in dict.fromkeys((*DIMENSIONS, *run.slices)) if "*" not in field]
    scores = {name: calibrate_score(of_score, target, fields, run.level) for name, of_score in evidence.items()}
    judge = CalibratedJudge(label=run.judge, identity=sha256(dict(run.identity["judge_identity"])))
    return Calibration(format=FORMAT, run_id=run.run_id, judge=judge, scores=scores)


def score_evidence(
    run: CalibratedRun,
    *,
    scores: Sequence[str] = (),
    recorded: Mapping[str, str] | None = None,
    by_annotators: bool = True,
    draw_id: str | None = None,
) -> dict[str, ScoreEvidence]:
    """By score, labels by people and judgements on the same cases, for every score of the run that has labels.

    `scores` are those to look for; none: those of `recorded` (by score the recorded one of people that it is compared with, read
    as by `recorded_labels`) and those with labels of the draw `draw_id`, by default the only one that has some.

    Raises DataError for a score without labels, and for labels that are not of this run's answers.
    """
    recorded = recorded or {}
    if unknown := [name for name in [*scores, *recorded, *recorded.values()] if name not in run.scores]:
        expected = f"a score of the run's metrics: {', '.join(run.scores)}"
        raise DataError(TITLE, [Problem(str(run.folder.root), "calibrate", name, expected) for name in unknown])
    labels = {}
    for name in scores or run.scores:
        of_people = _labels_of(run, name, recorded.get(name), by_annotators, draw_id)
        if of_people is not None and of_people.cases:
            labels[name] = of_people
    missing = [name for name in scores or recorded if name not in labels]
    if missing or not labels:
        raise DataError(TITLE, [no_labels_problem(str(run.folder.root), missing)])
    shapes = asked_shapes(run.folder.iteration(run.iterations[0]).judge_inputs)
    return {name: _evidence_of(run, name, of_people, shapes) for name, of_people in labels.items()}


def _evidence_of(run: CalibratedRun, name: str, labels: PeopleLabels, shapes: Mapping[str, Mapping[str, str]]) -> ScoreEvidence:
    metric, spec = run.scores[name]
    threshold = spec.passing_from(run.thresholds.get(name))
    answers = _checked_answers(run, labels)
    judged = judged_cases(run.folder, run.iterations, spec, threshold, [case.key for case in labels.cases])
    bound_to = binding_of(run.identity, metric, shapes.get(metric, {}), threshold)
    return ScoreEvidence(metric, spec, labels, judged, answers, bound_to)


def _labels_of(
    run: CalibratedRun, name: str, recorded: str | None, by_annotators: bool, draw_id: str | None
) -> PeopleLabels | None:
    if recorded is None:
        return drawn_labels(run.folder, name, draw_id)
    human = run.scores[recorded][1]
    return recorded_labels(
        run.folder.iteration(run.iterations[0]).scores,
        human,
        run.scores[name][1],
        threshold=run.thresholds.get(human.name),
        cases=count_rows(run.folder.outputs),
        by_annotators=by_annotators,
    )


def _checked_answers(run: CalibratedRun, labels: PeopleLabels) -> list[str]:
    """The digests of the labelled answers. Raises DataError where a label is of another answer, or of no case of the run."""
    digests = labelled_answers(run.folder, [case.key for case in labels.cases])
    for case in labels.cases:
        digest = digests.get(case.key)
        if digest is None or case.answer_sha256 not in (None, digest):
            content = "no such case in the run" if digest is None else "the label of another answer"
            key = f"{'/'.join(map(str, case.key[:2]))} repeat {case.key[2]}"
            fix = "draw and label the cases of this run: task=label run=RUN"
            place = run.folder.root / "labels" / (labels.draw_id or "")
            raise DataError(TITLE, [Problem(str(place), key, content, "a label of an answer of this run", fix)])
    return [digests[case.key] for case in labels.cases]


Floats = NDArray[np.float64]

POINTS_APART = 0.05
"""Agreement with people by which two members may differ: beyond it a majority was worse than its best member in simulations and on
recorded judges (docs/judges.md)."""


def member_lines(run: CalibratedRun, evidence: Mapping[str, ScoreEvidence]) -> Iterator[str]:
    """How far each member of a jury agrees with people, and the jury; then a warning where the members are more than 5 points apart.
    Nothing for a run by one judge. Agreement is one minus the mean distance as a share of the range, 0 to 1: for scores of 0 and 1
    the share of equal verdicts. The cases are those that all members judged."""
    for name, of_score in evidence.items():
        spec = of_score.spec
        values = _member_values(run, name, of_score)
        if len(values) < 2 or spec.low is None or spec.high is None:
            continue
        labels = reference_of(of_score.labels, spec, of_score.bound_to.threshold).labels
        judges = {**values, "jury": of_score.judged.values}
        usable = ~np.isnan(np.stack([labels, *judges.values()])).any(axis=0)
        if not usable.any():
            continue
        span = spec.high - spec.low
        apart = {judge: float(np.mean(np.abs(labels - given)[usable])) for judge, given in judges.items()}
        agreement = {judge: 1 - distance / span for judge, distance in apart.items()}
        listed = ", ".join(f"{judge} {share:.2f}" for judge, share in agreement.items())
        yield f"{name}: agreement with people on {int(usable.sum()):,} cases: {listed}"
        alone = {judge: share for judge, share in agreement.items() if judge in values}
        best = max(alone, key=lambda judge: alone[judge])
        if alone[best] - min(alone.values()) > POINTS_APART:
            yield (
                f"{name}: the members differ by more than 5 points: {best} alone is likely better than the jury, and costs less "
                f"(metrics.{of_score.metric}.judge={best})"
            )


def _member_values(run: CalibratedRun, score: str, evidence: ScoreEvidence) -> dict[str, Floats]:
    """By member its values of the labelled cases in the first iteration, NaN where it gave none."""
    places = {case.key: place for place, case in enumerate(evidence.labels.cases)}
    values: dict[str, Floats] = {}
    columns = ("sample_id", "method", "repeat", "score_name", "details")
    for batch in batches(run.folder.iteration(run.iterations[0]).scores, columns):
        for row in batch.to_pylist():
            place = places.get((row["sample_id"], row["method"], row["repeat"]))
            if place is None or row["score_name"] != score:
                continue
            jury: Mapping[str, Any] = json.loads(row["details"] or "{}").get("jury", {})
            for member, opinion in jury.get("members", {}).items():
                column = values.setdefault(member, np.full(len(places), np.nan))
                column[place] = np.nan if opinion.get("value") is None else opinion["value"]
    return values
