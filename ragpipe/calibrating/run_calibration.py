"""The scores of a finished run compared with people's labels: which have labels, and whether these are of its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.calibrating.corrected_width import corrected_width
from ragpipe.calibrating.judged_cases import judged_cases, labelled_answers
from ragpipe.calibrating.people_labels import (
    TITLE,
    PeopleLabels,
    drawn_labels,
    no_labels_problem,
    open_labels,
    recorded_labels,
)
from ragpipe.calibrating.score_calibration import ScoreEvidence, calibrate_score
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.calibration_file import (
    CalibratedJudge,
    Calibration,
    CalibrationTarget,
    ScoreCalibration,
    asked_shapes,
    binding_of,
)
from ragpipe.scoring.dimensions import DIMENSIONS
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import count_rows


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

    def threshold(self, score: str) -> float | None:
        """The value from which a case passes by a score; of a 0/1 score without one its better end."""
        spec = self.scores[score][1]
        value = self.thresholds.get(score)
        if value is None and spec.binary:
            return spec.high if spec.higher_is_better else spec.low
        return value


def calibrate_run(
    run: CalibratedRun,
    evidence: Mapping[str, ScoreEvidence],
    target: CalibrationTarget,
    widest: float | None = None,
) -> Calibration:
    """The calibration of the scores of `evidence`; `target` is what agreement has to exceed, `widest` the width of the corrected
    interval that is wanted, as a share of the scale (None: not asked)."""
    fields = [field for field in dict.fromkeys((*DIMENSIONS, *run.slices)) if "*" not in field]
    return Calibration(
        format=FORMAT,
        run_id=run.run_id,
        judge=CalibratedJudge(label=run.judge, identity=sha256(dict(run.identity["judge_identity"]))),
        scores={
            name: _with_width(run, of_score.spec, calibrate_score(of_score, target, fields, run.level), widest)
            for name, of_score in evidence.items()
        },
    )


def _with_width(run: CalibratedRun, spec: ScoreSpec, score: ScoreCalibration, widest: float | None) -> ScoreCalibration:
    if widest is None:
        return score
    width = corrected_width(run.folder, run.iterations, spec, score, widest=widest, level=run.level)
    return score.model_copy(update={"corrected": width})


def score_evidence(
    run: CalibratedRun,
    *,
    scores: Sequence[str] = (),
    recorded: Mapping[str, str] | None = None,
    by_annotators: bool = True,
    draw_id: str | None = None,
    open_verdicts: bool = False,
) -> dict[str, ScoreEvidence]:
    """By score, labels by people and judgements on the same cases, for every score of the run that has labels.

    Args:
        run: the run.
        scores: the scores to look for; none: those of `recorded` and those with labels of a draw.
        recorded: by score, the recorded score of people that it is compared with.
        by_annotators: whether an object of recorded verdicts has one of each annotator, and not of each part of the answer.
        draw_id: the draw whose labels count; None: the only one that has some.
        open_verdicts: whether verdicts given on the report page count, and no other labels.

    Raises DataError for a score without labels, and for labels that are not of this run's answers.
    """
    recorded = recorded or {}
    _check_names(run, [*scores, *recorded, *recorded.values()])
    labels = {
        name: of_people
        for name in scores or run.scores
        if (
            of_people := open_labels(run.folder, run.scores[name][1])
            if open_verdicts
            else _labels_of(run, name, recorded.get(name), by_annotators, draw_id)
        )
        is not None
        and of_people.cases
    }
    missing = [name for name in scores or recorded if name not in labels]
    if missing or not labels:
        raise DataError(TITLE, [no_labels_problem(str(run.folder.root), missing)])
    shapes = asked_shapes(run.folder.iteration(run.iterations[0]).judge_inputs)
    return {name: _evidence_of(run, name, of_people, shapes) for name, of_people in labels.items()}


def _evidence_of(
    run: CalibratedRun, name: str, labels: PeopleLabels, shapes: Mapping[str, Mapping[str, str]]
) -> ScoreEvidence:
    metric, spec = run.scores[name]
    keys = [case.key for case in labels.cases]
    answers = _checked_answers(run, labels)
    threshold = run.threshold(name)
    return ScoreEvidence(
        metric=metric,
        spec=spec,
        labels=labels,
        judged=judged_cases(run.folder, run.iterations, spec, threshold, keys),
        answers=answers,
        bound_to=binding_of(run.identity, metric, shapes.get(metric, {}), threshold),
    )


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
            problem = Problem(str(place), key, content, "a label of an answer of this run", fix)
            raise DataError(TITLE, [problem])
    return [digests[case.key] for case in labels.cases]


def _check_names(run: CalibratedRun, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in run.scores]
    if unknown:
        expected = f"a score of the run's metrics: {', '.join(run.scores)}"
        problems = [Problem(str(run.folder.root), "calibrate", name, expected) for name in unknown]
        raise DataError(TITLE, problems)
