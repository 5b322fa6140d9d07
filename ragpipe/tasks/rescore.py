"""`task=rescore`: a finished run under another scoring, or with metric parameters that change no question. Asks nobody."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError
from ragpipe.core.validation import ConfigOrigins
from ragpipe.engine.case_sources import RunSource
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.finished_run import FinishedRun, open_run
from ragpipe.engine.judge_access import open_replay
from ragpipe.engine.run_comparison import compare_scoring
from ragpipe.engine.run_identity import run_id
from ragpipe.reports.agreement_report import absent_lines, changed_rows
from ragpipe.reports.console import Console
from ragpipe.store.run.run_folder import RunFolder

CHANGEABLE = ("scoring", "metrics", "report", "system.prices", "judge.prices", "embedder.prices")
FIX = "this parameter decides what is asked: task=rejudge (or task=evaluate) asks for what is missing"
AGREEMENT_HEADS = ("score", "mean", "threshold", "passed", "flips")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRun:
    """The run with the user's scoring over its own. Raises ConfigError, DataError."""
    return open_run(plain, origins, allowed=CHANGEABLE, task="rescore")


def run(finished: FinishedRun, console: Console) -> int:
    """Score again. Returns the exit code that an evaluation with this scoring would have; asks nothing."""
    return rescore(finished, console)[0]


def rescore(finished: FinishedRun, console: Console) -> tuple[int, Path]:
    """As `run`, with the folder. A scoring that changes nothing leads to the run's own folder.

    Raises DataError, and leaves nothing behind, when a changed parameter needs a reply that the run does not have.
    """
    identity = finished.identity()
    before = finished.manifest["identity"]
    same_questions = identity["metrics"] == before["metrics"]
    in_order = identity["metric_order"] == before["metric_order"]  # it orders the rows
    target = finished.sibling(run_id(identity))
    known = target.manifest.exists()
    evaluation = Evaluation(
        finished.config,
        console,
        RunSource(finished.folder, finished.manifest, scores=same_questions and in_order),
        identity,
        folder=target,
        open_session=lambda: open_replay(finished.config, finished.replies(), fix=FIX),
        made_from=finished.manifest,
        plan=False,
        asks="nobody",
    )
    try:
        code = evaluation.evaluate()
    except DataError:
        if not known:
            shutil.rmtree(target.root, ignore_errors=True)
        raise
    _tell(finished, target, console)
    return code, target.root


def _tell(finished: FinishedRun, new: RunFolder, console: Console) -> None:
    """What this scoring changed against the run it was made from."""
    old, name = finished.folder, finished.run_id
    if old == new:
        console.say(f"nothing differs from {name}: this is the run itself")
        return
    found = compare_scoring(old, new)
    if found is None:
        console.say(f"{name} was never scored: there is nothing to compare with")
        return
    rows, others = changed_rows(found)
    if rows:
        console.folded(AGREEMENT_HEADS, rows, title=f"changed against {name}")
        console.say("flips: verdicts that became passed (+) and failed (-)")
    console.say(f"{others:,} scores as in {name}")
    for line in absent_lines(found):
        console.say(line)
