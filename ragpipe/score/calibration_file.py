"""`calibration.json`: how far a judge's scores agree with labels by people, and what exactly that was found for.

`task=calibrate` writes it, `scoring.calibration` names it. It holds for the scores of a run only where everything in
`bound_to` is the same there: judge, jury, metric, prompts, form of the answers and threshold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ragpipe.core.digest import changed_keys, sha256, short_value
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.settings import NoOrigins, validated
from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.core.version import FORMAT, format_mismatch
from ragpipe.core.yaml_files import named_text
from ragpipe.store.run_tables import read_columns

State = Literal["passed", "failed", "not_enough_labels"]
TargetStatistic = Literal["kappa", "quadratic_kappa"]
LabelPart = Literal["random", "stratified", "recorded"]
Count = Annotated[int, Field(ge=0)]
_TITLE = "the calibration cannot be used"
_FIX = "make it again: python -m ragpipe task=calibrate run=RUN"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class CalibrationInterval(_Part):
    """An interval as `stats/intervals.py` gives it."""

    level: float
    low: float
    high: float
    method: str
    too_few: bool


class CalibrationStatistic(_Part):
    """A statistic over `n` cases of `clusters` questions. `reason` says why it has no value or no interval."""

    n: Count
    clusters: Count
    value: float | None = None
    interval: CalibrationInterval | None = None
    reason: str | None = None


Statistics = dict[str, CalibrationStatistic]


class Binding(_Part):
    """What a calibration holds for.

    `judge` is the identity of the judge as it stands in the manifest; None for a score that asks none. `jury` is None: one
    judge. `settings` are the class, parameters and files of the metric, `prompts` the sha256 of its templates by step,
    `answer_shape` the type of the answer with the hash of its schema by step, `threshold` the value from which a case
    passes, None without one.
    """

    judge: dict[str, Any] | None
    jury: None = None
    metric_version: int
    settings: dict[str, Any]
    prompts: dict[str, str]
    answer_shape: dict[str, str]
    threshold: float | None


class CalibrationTarget(_Part):
    """What agreement has to exceed."""

    statistic: TargetStatistic
    above: float = Field(gt=0, lt=1)


class ConfusionTable(_Part):
    """Counts of cases: a row per class by people, a column per class by the judge, in the order of `classes`."""

    classes: list[str]
    counts: list[list[Count]]


class CalibrationCeiling(_Part):
    """How far people agree with each other: the statistics of all pairs of labels of one case by two people.

    `annotators` counts the people, `cases` those with two labels or more. `reference_reliability` is the correlation that
    two such sets of labels would have (Spearman and Brown), `judge_reliability` that of two iterations, None for a single
    one; `highest_correlation` is the root of their product, beyond which no judge can correlate with these labels.
    """

    annotators: Count
    cases: Count
    statistics: Statistics
    reference_reliability: float | None
    judge_reliability: float | None
    highest_correlation: float | None


class CalibrationSlice(_Part):
    """The cases of which a field has a value. `difference` is the mean of judge - people in the scale of the score."""

    field: str
    value: str
    statistics: Statistics
    difference: CalibrationStatistic


class LengthBaseline(_Part):
    """How well the length of the answer alone tells passed from failed answers: the AUROC of a shorter answer (or a longer
    one, whichever is better here), and the judge's AUROC less that."""

    shorter_passes: bool
    auroc: CalibrationStatistic
    difference: CalibrationStatistic


class CalibrationLabel(_Part):
    """The reference label of one case in the scale of the score; `annotators` counts the labels that it is made of.

    `part` is how the case was drawn (`random`, `stratified`), or `recorded` for scores of people in the data set.
    `probability` is that of being drawn among the cases of the run; None where it is unknown. `passed` is what people say by the
    threshold, `judge_passed` what most iterations of the judge say; None without a threshold, for a tie and without a value.
    """

    sample_id: str
    method: str
    repeat: int
    answer_sha256: str
    label: float
    annotators: int = Field(ge=1)
    part: LabelPart
    stratum: str | None
    probability: Annotated[float, Field(gt=0, le=1)] | None
    passed: bool | None = None
    judge_passed: bool | None = None

    @property
    def may_correct(self) -> bool:
        """Whether it is of a case drawn at random, or of a data set in which every case has one."""
        return self.part == "random" or (self.part == "recorded" and self.probability == 1)


class ScoreCalibration(_Part):
    """One score against people.

    `draw_id` or `recorded` says where the labels are from, `reference` how several labels of a case became one. `state`
    compares the interval of the target's statistic with that of the target;
    `labels_needed` and `reason` are those of `decide_kappa`. Statistics are over the labels of the random part of the draw;
    `labels` lists all; `by_method`: of a draw by method, all of them count in corrected means.
    `unjudged` counts labelled cases for which the judge gave no value.
    """

    metric: str
    draw_id: str | None
    recorded: str | None
    reference: Literal["single", "majority", "mean"]
    bound_to: Binding
    target: CalibrationTarget
    state: State
    labels_needed: int | None
    reason: str | None
    unjudged: Count
    statistics: Statistics
    confusion: ConfusionTable | None
    prevalence: CalibrationStatistic | None
    judged_prevalence: CalibrationStatistic | None
    ceiling: CalibrationCeiling | None
    slices: list[CalibrationSlice]
    length_baseline: LengthBaseline | None
    labels: list[CalibrationLabel]
    by_method: bool = False

    @property
    def correcting_labels(self) -> list[CalibrationLabel]:
        """The labels that a corrected mean goes by: of a draw by method those of all its parts, else those of the random part;
        labels of the data set where every case has one."""
        return [label for label in self.labels if label.may_correct or (self.by_method and label.part != "recorded")]

    @property
    def calibrated(self) -> bool | None:
        """True for a score that passed, False for one that failed, None where there are too few labels to tell."""
        return None if self.state == "not_enough_labels" else self.state == "passed"

    @property
    def random_labels(self) -> int:
        """How many labels are drawn at random, or of every case: those that may correct a mean."""
        return sum(label.may_correct for label in self.labels)


class CalibratedJudge(_Part):
    """The judge by its printed name, and the sha256 of its identity."""

    label: str
    identity: str


class Calibration(_Part):
    """The whole of `calibration.json`: by the name of the score, how far it agrees with people."""

    format: int
    run_id: str
    judge: CalibratedJudge
    scores: dict[str, ScoreCalibration]

    def as_json(self) -> dict[str, Any]:
        """The content of the file."""
        return self.model_dump(mode="json")


def read_calibration(path: Path) -> Calibration:
    """The calibration in a file.

    Raises DataError for a file that is missing or not what `task=calibrate` wrote, FormatMismatch for another format.
    """
    try:
        content = strict_loads(named_text(path))
    except OSError as error:
        raise _unusable(path, "file", error.strerror or str(error), "a calibration.json") from error
    except (InvalidJson, UnicodeDecodeError) as error:
        raise _unusable(path, "file", f"no readable JSON ({error})", "a calibration.json") from error
    if not isinstance(content, dict) or "scores" not in content:
        raise _unusable(path, "file", "another JSON document", "a calibration.json")
    if content.get("format") != FORMAT:
        raise format_mismatch(_TITLE, path, content.get("format"), content.get("ragpipe"), _FIX)
    problems: list[Problem] = []
    calibration = validated(Calibration, content, "", NoOrigins(), problems)
    if calibration is None:
        raise DataError(_TITLE, [Problem(str(path), p.key, p.found, p.expected, _FIX) for p in problems])
    return calibration


def binding_of(identity: Mapping[str, Any], metric: str, shapes: Mapping[str, str], threshold: float | None) -> Binding:
    """What a calibration of a score of `metric` in a run is bound to.

    `identity` is that of the run's manifest, `shapes` what `asked_shapes` says of the metric, `threshold` that of the score.
    """
    parts = dict(identity["metrics"][metric])
    version, prompts = parts.pop("version"), parts.pop("prompts")
    asks = bool(prompts or shapes)
    return Binding(
        judge=dict(identity["judge_identity"]) if asks else None,
        metric_version=version,
        settings=parts,
        prompts=prompts,
        answer_shape=dict(shapes),
        threshold=threshold,
    )


def asked_shapes(judge_inputs: Path) -> dict[str, dict[str, str]]:
    """By metric and step the form of the answer that was asked for in an iteration: the type with the first 12 digits of its
    schema's sha256, and the type alone where the run keeps no messages; of texts to an embedder its name. Raises DataError."""
    names = ["metric", "step", "answer", "schema", "judge"]
    table = read_columns(judge_inputs, names)
    shapes: dict[str, dict[str, str]] = {}
    for row in table.group_by(names).aggregate([]).sort_by([(name, "ascending") for name in names]).to_pylist():
        shape = row["answer"] or ""
        if row["step"] == "embed":
            shape = row["judge"]
        elif row["schema"]:
            shape += f"@{sha256(json.loads(row['schema']))[:12]}"
        shapes.setdefault(row["metric"], {})[row["step"]] = shape
    return shapes


def binding_differences(calibrated: Binding, run: Binding) -> list[str]:
    """What differs between what a calibration was made for and a run, a line per key: `judge.model: a -> b`. Empty: it holds.

    A step that only one of both ever asked says nothing, and neither does a schema that one of both did not keep.
    """
    before, after = calibrated.model_dump(), run.model_dump()
    for shapes, others in ((before, after), (after, before)):
        shapes["answer_shape"] = {
            step: shape if "@" in others["answer_shape"][step] else shape.partition("@")[0]
            for step, shape in shapes["answer_shape"].items()
            if step in others["answer_shape"]
        }
    return [f"{key}: {short_value(old)} -> {short_value(new)}" for key, old, new in changed_keys(before, after)]


def _unusable(path: Path, key: str, content: str, expected: str) -> DataError:
    return DataError(_TITLE, [Problem(str(path), key, content, expected, _FIX)])
