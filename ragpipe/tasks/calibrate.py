"""`task=calibrate`: how far to believe the judge: its scores held against labels by people. Asks no judge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from ragpipe.calibrating.people_labels import TITLE
from ragpipe.calibrating.run_calibration import CalibratedRun, calibrate_run
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.finished_run import FinishedRun, open_run
from ragpipe.engine.task_settings import FinishedRunTask, task_settings
from ragpipe.reports.calibration_report import (
    CALIBRATION_HEADS,
    advice_lines,
    calibration_markdown,
    calibration_rows,
    verdict_line,
)
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings
from ragpipe.scoring.calibration_file import Calibration, CalibrationTarget, TargetStatistic
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.seal_run import seal_added
from ragpipe.store.files.write_if_changed import json_unless_same, write_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder, make_folder

SECTION = "calibrate"
CHANGEABLE = ("scoring.thresholds", "scoring.slices", "scoring.level")
_TITLE = "task=calibrate is wrong; nothing was written"


class TargetSettings(Settings):
    """What agreement has to exceed before a score counts as calibrated."""

    statistic: TargetStatistic = Field(
        default="kappa",
        description="kappa: of the verdicts passed and failed. quadratic_kappa: of the values, for graded labels.",
    )
    above: float = Field(
        default=0.8, gt=0, lt=1, description="Value, 0 to 1, that all of the interval has to lie above."
    )
    relative_to_ceiling: bool = Field(
        default=False, description="Whether `above` is multiplied by the agreement of people with each other."
    )


class CalibrateSettings(Settings):
    """Which labels, and what agreement has to exceed.

    `scores` chooses; by default every score with labels. `recorded` takes scores of people in the data set as labels: the
    judged score, then the recorded one. `out` names a second file for the calibration, for a run to name.
    """

    scores: list[str] = Field(default_factory=list, description="Scores to calibrate. Default: all that have labels.")
    draw: str | None = Field(
        default=None, description="Draw whose labels count (a folder in `labels/`). null: the only one with labels."
    )
    recorded: dict[str, str] = Field(
        default_factory=dict,
        description="Recorded scores of people that serve as labels, by judged score. Default: none.",
    )
    target: TargetSettings = Field(default_factory=TargetSettings, description="What agreement has to exceed.")
    out: str | None = Field(
        default=None, min_length=1, description="File for a second copy of calibration.json. null: none."
    )


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[CalibrateSettings]:
    """The run and the settings of this task. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    settings = task_settings(CalibrateSettings, plain, origins, title=_TITLE, section=SECTION)
    finished = open_run(plain, origins, changeable=CHANGEABLE, task="calibrate", task_keys=(SECTION,))
    return FinishedRunTask(finished, settings)


def run(task: FinishedRunTask[CalibrateSettings], console: Console) -> int:
    """Print the table and a verdict per score, and write `calibration/calibration.json` and `calibration.md` into the run.
    Returns 0. Raises DataError for a run or a score without labels, OutputError."""
    settings, folder = task.settings, task.finished.folder
    target = CalibrationTarget(**settings.target.model_dump())
    calibration = calibrate_run(
        calibrated_run(task.finished), target, scores=settings.scores, recorded=settings.recorded, draw_id=settings.draw
    )
    console.folded(CALIBRATION_HEADS, calibration_rows(calibration), title="judge against people")
    for name, score in calibration.scores.items():
        for line in (*advice_lines(name, score), verdict_line(name, score)):
            console.say(line)
    for path in _write(folder, calibration, settings.out):
        console.say(f"written: {path}")
    return 0


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


def _write(folder: RunFolder, calibration: Calibration, out: str | None) -> list[Path]:
    """Write and seal both files; with `out` the document once more there."""
    parent = folder.root / "calibration"
    document, page = parent / "calibration.json", parent / "calibration.md"
    with FolderLock(folder.root):
        make_folder(parent)
        json_unless_same(document, calibration.as_json())
        write_unless_same(page, calibration_markdown(calibration))
        seal_added(folder, [document, page])
    if out is None:
        return [document, page]
    make_folder(Path(out).parent)
    json_unless_same(Path(out), calibration.as_json())
    return [document, page, Path(out)]
