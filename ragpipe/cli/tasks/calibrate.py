"""`task=calibrate`: how far to trust the judge: its scores compared with labels by people. Asks no judge."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from ragpipe.calibration.people_labels import TITLE
from ragpipe.calibration.run_calibration import CalibratedRun, calibrate_run, member_lines, score_evidence
from ragpipe.core.settings import ConfigOrigins, Settings
from ragpipe.report.calibration_report import (
    advice_lines,
    calibration_plots,
    calibration_report,
    calibration_table,
    verdict_line,
)
from ragpipe.report.console import Console
from ragpipe.report.model import Report, Table
from ragpipe.report.section_page import write_sections
from ragpipe.report.settings import ReportSettings
from ragpipe.report.terminal import print_table
from ragpipe.runs.finished_run import FinishedRun, FinishedRunKeys, FinishedRunTask, open_finished_run
from ragpipe.runs.manifest import scored_iterations
from ragpipe.runs.write_reports import seal_pages
from ragpipe.score.calibration_file import Calibration, CalibrationTarget, TargetStatistic
from ragpipe.store.files import json_unless_same
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.run_folder import RunFolder, make_folder

SECTION = "calibrate"
CHANGEABLE = ("scoring.thresholds", "scoring.slices", "scoring.level")
_TITLE = "task=calibrate is wrong; nothing was written"


class TargetSettings(Settings):
    """What agreement has to exceed before a score counts as calibrated."""

    statistic: TargetStatistic = Field(
        default="kappa",
        description="kappa: of the verdicts passed and failed. quadratic_kappa: of the values, for graded labels.",
    )
    above: float = Field(default=0.8, gt=0, lt=1, description="Value, 0 to 1, that all of the interval has to lie above.")


class CalibrateSettings(Settings):
    """Which labels, and what agreement has to exceed.

    `scores` chooses; by default every score with labels. `recorded` takes scores of people in the data set as labels: the
    judged score, then the recorded one.
    """

    scores: list[str] = Field(default_factory=list, description="Scores to calibrate. Default: all that have labels.")
    draw: str | None = Field(
        default=None, description="Draw whose labels count (a folder in `labels/`). null: the only one with labels."
    )
    recorded: dict[str, str] = Field(
        default_factory=dict, description="Recorded scores of people that serve as labels, by judged score. Default: none."
    )
    verdicts: Literal["annotators", "parts"] = Field(
        default="annotators",
        description=(
            "What an object of recorded verdicts holds. annotators: one of each person, each a label; parts: one of each "
            "part of the answer, together one label."
        ),
    )
    target: TargetSettings = Field(default_factory=TargetSettings, description="What agreement has to exceed.")


class Keys(FinishedRunKeys):
    calibrate: CalibrateSettings = Field(description="Which labels, and what agreement has to exceed.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[CalibrateSettings]:
    """The run and the settings of this task. Raises ConfigError and DataError."""
    return open_finished_run(
        plain, origins, CalibrateSettings, task="calibrate", title=_TITLE, section=SECTION, changeable=CHANGEABLE
    )


def run(task: FinishedRunTask[CalibrateSettings], console: Console) -> int:
    """Print a verdict per score, then the table, and write `calibration/calibration.json` and `calibration.md` into the run, by which
    `task=rescore` then goes. Returns 0. Raises DataError for a run or a score without labels, OutputError."""
    settings, folder = task.settings, task.finished.folder
    held = calibrated_run(task.finished)
    evidence = score_evidence(
        held,
        scores=settings.scores,
        recorded=settings.recorded,
        by_annotators=settings.verdicts == "annotators",
        draw_id=settings.draw,
    )
    calibration = calibrate_run(held, evidence, CalibrationTarget(**settings.target.model_dump()))
    for name, score in calibration.scores.items():  # the verdicts first: the table says what they rest on
        console.say(verdict_line(name, score))
    print_table(Table.of(*calibration_table(calibration), title="judge against people"), console)
    advice = (line for name, score in calibration.scores.items() for line in advice_lines(name, score))
    for line in (*advice, *member_lines(held, evidence)):
        console.say(line)
    report = calibration_report(calibration, calibration_plots(evidence))
    _write(calibration, report, folder, task.finished.config.report, console)
    return 0


def _write(calibration: Calibration, report: Report, folder: RunFolder, settings: ReportSettings, console: Console) -> None:
    """Write the document and its pages into the run, and say how its report and its gates go by them."""
    document = folder.own_calibration
    with FolderLock(folder.root):
        make_folder(document.parent)
        json_unless_same(document, calibration.as_json())
        pages = write_sections(document, report)
        seal_pages(folder, [document, *pages], settings)
    console.say(f"written: {', '.join([str(document), *(page.name for page in pages)])}")
    console.say("into report and gates:")
    console.say(f"  {shlex.join(['python', '-m', 'ragpipe', 'task=rescore', f'run={folder.root}'])}")


def calibrated_run(finished: FinishedRun) -> CalibratedRun:
    """What a calibration reads of a finished run. Raises DataError where no iteration of it is scored."""
    config, folder = finished.config, finished.folder
    iterations = scored_iterations(folder, or_error=TITLE)
    scores = {spec.name: (metric.name, spec) for metric in config.metrics.values() for spec in metric.scores()}
    return CalibratedRun(
        folder=folder,
        run_id=finished.run_id,
        identity=finished.manifest["identity"],
        judge=config.judge.label,
        iterations=iterations,
        scores=scores,
        thresholds={name: config.scoring.threshold(spec) for name, (_, spec) in scores.items()},
        slices=config.scoring.slices,
        level=config.scoring.level,
    )
