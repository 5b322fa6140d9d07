"""`task=rescore`: a finished run under another scoring, or with metric parameters that change no question. Asks no judge."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from ragpipe.core.errors import DataError
from ragpipe.core.validation import ConfigOrigins
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.run_policies import RescorePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.comparison_files import compare_scoring
from ragpipe.engine.runs.finished_run import FinishedRun
from ragpipe.engine.sources.case_sources import RunSource
from ragpipe.engine.task_settings import FinishedRunKeys, FinishedRunTask, open_finished_run
from ragpipe.reports.agreement_report import absent_lines, changed_rows
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings
from ragpipe.store.run.run_folder import RunFolder

CHANGEABLE = ("scoring", "metrics", "report", "system.prices", "judge.prices", "embedder.prices")
FIX = "this parameter decides what is asked: task=rejudge (or task=evaluate) asks for what is missing"
COLUMNS = ("score", "mean", "threshold", "passed", "flips")


class RescoreSettings(Settings):
    """`task=rescore` has no settings of its own."""


Keys = FinishedRunKeys


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[RescoreSettings]:
    """The run with the user's scoring over its own. Raises ConfigError and DataError."""
    return open_finished_run(plain, origins, RescoreSettings, task="rescore", changeable=CHANGEABLE)


def run(task: FinishedRunTask[RescoreSettings], console: Console) -> int:
    """Score again. Returns the exit code that an evaluation with this scoring would have. A scoring that changes nothing
    leads to the run's own folder.

    Raises DataError, and leaves nothing behind, when a changed parameter needs a reply that the run does not have.
    """
    finished = task.finished
    identity, recorded = finished.identity(), finished.manifest["identity"]
    # the order of metrics is that of the rows
    keeps_scores = all(identity[key] == recorded[key] for key in ("metrics", "metric_order"))
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
    comparison = compare_scoring(old, new)
    if comparison is None:
        console.say(f"{name} was never scored: there is nothing to compare with")
        return
    rows, unchanged = changed_rows(comparison)
    if rows:
        console.folded(COLUMNS, rows, title=f"changed against {name}")
        console.say("flips: verdicts that became passed (+) and failed (-)")
    console.say(f"{unchanged:,} scores as in {name}")
    for line in absent_lines(comparison):
        console.say(line)
