"""`task=rescore`: a finished run under another scoring, or with metric parameters that change no question. Asks no judge."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from ragpipe.core.errors import DataError
from ragpipe.core.settings import ConfigOrigins, Settings
from ragpipe.report.agreement_report import absent_lines, changed_rows
from ragpipe.report.console import Console
from ragpipe.report.model import Table
from ragpipe.report.terminal import print_table
from ragpipe.runs.case_sources import RunSource
from ragpipe.runs.comparison_files import compare_runs
from ragpipe.runs.evaluation import Evaluation
from ragpipe.runs.finished_run import FinishedRun, FinishedRunKeys, FinishedRunTask, open_finished_run
from ragpipe.runs.spec import RescorePolicy, RunSpec
from ragpipe.store.run_folder import RunFolder

CHANGEABLE = ("scoring", "metrics", "report", "system.prices", "judge.prices", "embedder.prices")
FIX = "this parameter decides what is asked: task=rejudge (or task=evaluate) asks for what is missing"
COLUMNS = ("score", "mean", "threshold", "passed", "flips")


Keys = FinishedRunKeys


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[Settings]:
    """The run with the user's scoring over its own. Raises ConfigError and DataError."""
    return open_finished_run(plain, origins, Settings, task="rescore", changeable=CHANGEABLE)


def run(task: FinishedRunTask[Settings], console: Console) -> int:
    """Score again. Returns the exit code that an evaluation with this scoring would have. A scoring that changes nothing
    leads to the run's own folder.

    Raises DataError, and leaves nothing behind, when a changed parameter needs a reply that the run does not have.
    """
    finished = task.finished
    identity, recorded = finished.identity(), finished.manifest["identity"]
    # the order of metrics is that of the rows
    keeps_scores = all(identity[key] == recorded[key] for key in ("metrics", "metric_order", "judge_identity"))
    source = RunSource(finished.folder, finished.manifest, scores=keeps_scores)
    spec = RunSpec.of_finished_run(finished, source)
    existed = spec.folder.manifest.exists()
    try:
        return Evaluation(
            spec,
            RescorePolicy(finished, fix=FIX),
            console,
            before_result=lambda: _print_changes(finished, spec.folder, console),
        ).run()
    except DataError:
        if not existed:
            shutil.rmtree(spec.folder.root, ignore_errors=True)
        raise


def _print_changes(finished: FinishedRun, new: RunFolder, console: Console) -> None:
    old, name = finished.folder, finished.run_id
    if old == new:
        console.say(f"nothing differs from {name}: this is the run itself")
        return
    comparison = compare_runs(old, new, scoring_only=True)
    if comparison is None:
        console.say(f"{name} was never scored: there is nothing to compare with")
        return
    rows, unchanged = changed_rows(comparison)
    if rows:
        print_table(Table.of(COLUMNS, rows, title=f"changed against {name}"), console)
        console.say("flips: cases that pass now (+) and no longer do (-)")
    console.say(f"{unchanged:,} scores as in {name}")
    for line in absent_lines(comparison):
        console.say(line)
