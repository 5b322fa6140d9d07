"""`task=calibrate`: how far to trust the judge: its scores compared with labels by people. Asks no judge."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ragpipe.calibrating.people_labels import TITLE, unused_lines
from ragpipe.calibrating.run_calibration import CalibratedRun, calibrate_run, member_lines, score_evidence
from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.runs.finished_run import FinishedRun, open_run
from ragpipe.engine.task_settings import FinishedRunKeys, FinishedRunTask, task_settings
from ragpipe.labelling.drawn_cases import more_labels_words
from ragpipe.labelling.label_files import LABELS_FOLDER, read_draw
from ragpipe.reports.calibration_report import (
    advice_lines,
    calibration_markdown,
    calibration_table,
    replaced_lines,
    verdict_line,
    width_lines,
)
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings
from ragpipe.scoring.calibration_file import (
    Calibration,
    CalibrationTarget,
    ScoreCalibration,
    TargetStatistic,
    read_calibration,
)
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.seal_run import seal_added
from ragpipe.store.files.atomic import json_unless_same, write_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import make_folder

SECTION = "calibrate"
CALIBRATION_FOLDER, CALIBRATION_FILE = "calibration", "calibration.json"
CHANGEABLE = ("scoring.thresholds", "scoring.slices", "scoring.level")
_TITLE = "task=calibrate is wrong; nothing was written"
_NOT_BLIND = (
    "not blind: these verdicts were given on report.html, beside the judge's, on cases that people picked. The agreement is "
    "flattered and is not that of the run: no calibration is written, and no gate or corrected mean goes by it"
)


class TargetSettings(Settings):
    """What agreement has to exceed before a score counts as calibrated."""

    statistic: TargetStatistic = Field(
        default="kappa",
        description="kappa: of the verdicts passed and failed. quadratic_kappa: of the values, for graded labels.",
    )
    above: float = Field(
        default=0.8, gt=0, lt=1, description="Value, 0 to 1, that all of the interval has to lie above."
    )


class CalibrateSettings(Settings):
    """Which labels, and what agreement has to exceed.

    `scores` chooses; by default every score with labels. `recorded` takes scores of people in the data set as labels: the
    judged score, then the recorded one.
    """

    scores: list[str] = Field(default_factory=list, description="Scores to calibrate. Default: all that have labels.")
    draw: str | None = Field(
        default=None, description="Draw whose labels count (a folder in `labels/`). null: the only one with labels."
    )
    open_labels: bool = Field(
        default=False,
        description=(
            "Whether verdicts given on report.html are the labels. They are not blind: agreement is shown, and no calibration written."
        ),
    )
    recorded: dict[str, str] = Field(
        default_factory=dict,
        description="Recorded scores of people that serve as labels, by judged score. Default: none.",
    )
    verdicts: Literal["annotators", "parts"] = Field(
        default="annotators",
        description=(
            "What an object of recorded verdicts holds. annotators: one of each person, each a label; parts: one of each "
            "part of the answer, together one label."
        ),
    )
    target: TargetSettings = Field(default_factory=TargetSettings, description="What agreement has to exceed.")
    width: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description=(
            "How wide the interval of a corrected mean may be, as a share of the scale: says whether to label more. null: not "
            "asked."
        ),
    )


class Keys(FinishedRunKeys):
    calibrate: CalibrateSettings = Field(description="Which labels, and what agreement has to exceed.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[CalibrateSettings]:
    """The run and the settings of this task. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    settings = task_settings(CalibrateSettings, plain, origins, title=_TITLE, section=SECTION)
    finished = open_run(plain, origins, changeable=CHANGEABLE, task="calibrate", task_keys=(SECTION,))
    if settings.open_labels:
        others = {"draw": settings.draw, "recorded": settings.recorded}
        place, expected = (
            origins.location("calibrate.open_labels"),
            "labels that are blind: leave out calibrate.open_labels",
        )
        faults = [Problem(place, f"calibrate.{key}", str(value), expected) for key, value in others.items() if value]
        if faults:
            raise ConfigError(_TITLE, faults)
    return FinishedRunTask(finished, settings)


def run(task: FinishedRunTask[CalibrateSettings], console: Console) -> int:
    """Print the table and a verdict per score, and write `calibration/calibration.json` and `calibration.md` into the run; nothing
    is written where the labels are not blind. Returns 0. Raises DataError for a run or a score without labels, OutputError."""
    settings, folder = task.settings, task.finished.folder
    held = calibrated_run(task.finished)
    if not settings.open_labels:
        for line in unused_lines(folder, settings.scores or held.scores):
            console.say(line)
    evidence = score_evidence(
        held,
        scores=settings.scores,
        recorded=settings.recorded,
        by_annotators=settings.verdicts == "annotators",
        draw_id=settings.draw,
        open_verdicts=settings.open_labels,
    )
    target, widest = CalibrationTarget(**settings.target.model_dump()), None if settings.open_labels else settings.width
    calibration = calibrate_run(held, evidence, target, widest)
    console.folded(*calibration_table(calibration), title="judge against people")
    for name, score in calibration.scores.items():
        asked = more_labels_command(folder.root, score)
        for line in (*advice_lines(name, score), *width_lines(name, score, widest, asked), verdict_line(name, score)):
            console.say(line)
    for line in member_lines(held, evidence):
        console.say(line)
    if settings.open_labels:
        console.say(_NOT_BLIND)
        return 0
    parent = folder.root / CALIBRATION_FOLDER
    document, page = parent / CALIBRATION_FILE, parent / "calibration.md"
    for line in _replaced(document, calibration):
        console.say(line)
    with FolderLock(folder.root):
        make_folder(parent)
        json_unless_same(document, calibration.as_json())
        write_unless_same(page, calibration_markdown(calibration))
        seal_added(folder, [document, page])
    console.say(f"written: {document}")
    console.say(f"written: {page}")
    return 0


def more_labels_command(run: Path, score: ScoreCalibration) -> str:
    """The command that adds to the draw of a score the cases that its corrected mean asks for; empty where it asks for none."""
    if score.corrected is None or not score.corrected.more or score.draw_id is None:
        return ""
    draw = read_draw(run / LABELS_FOLDER / score.draw_id)
    return shlex.join(["python", "-m", "ragpipe", *more_labels_words(draw, run, score.corrected.more)])


def calibrated_run(finished: FinishedRun) -> CalibratedRun:
    """What a calibration reads of a finished run. Raises DataError where no iteration of it is scored."""
    config, folder = finished.config, finished.folder
    iterations = scored_iterations(folder)
    if not iterations:
        problem = Problem(
            str(folder.root), "run", "no iteration that is scored", "a finished run", "start its command again"
        )
        raise DataError(TITLE, [problem])
    scores = {spec.name: (metric.name, spec) for metric in config.metrics.values() for spec in metric.scores()}
    return CalibratedRun(
        folder=folder,
        run_id=finished.run_id,
        identity=finished.manifest["identity"],
        judge=config.judge.label,
        iterations=iterations,
        scores=scores,
        thresholds=config.scoring.thresholds,
        slices=config.scoring.slices,
        level=config.scoring.level,
    )


def _replaced(path: Path, calibration: Calibration) -> list[str]:
    """What stands in the file that the calibration is about to be written to, and is not in it."""
    if not path.is_file():
        return []
    try:
        return list(replaced_lines(read_calibration(path), calibration))
    except DataError:
        return [f"replaces: {path}, which is no calibration that can be read"]
