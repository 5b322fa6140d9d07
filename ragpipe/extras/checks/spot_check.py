"""`task=spot_check`: some cases of a finished run, drawn at random, before a second judge or other prompts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.run_policies import RejudgePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.finished_run import FinishedRun, open_run
from ragpipe.engine.task_settings import FinishedRunTask, task_settings, unnamed_judge
from ragpipe.extras.checks.judge_disagreement import judge_reliability
from ragpipe.extras.checks.spot_check_report import (
    SPOT_CHECK_HEADS,
    disagreeing_lines,
    spot_check_rows,
    spot_check_words,
)
from ragpipe.extras.checks.spot_check_source import SpotCheckSource
from ragpipe.metrics.base import Metric
from ragpipe.reports.console import Console
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.settings import Settings
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.seal_run import seal_added
from ragpipe.store.files.write_if_changed import json_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder, make_folder
from ragpipe.store.run.run_tables import read_json

CHANGEABLE = ("judge", "embedder", "metrics", "report")
SECTION = "spot_check"
FOLDER = "calibration"
_TITLE = "task=spot_check is wrong; nothing was started"


class SpotCheckSettings(Settings):
    """How many cases, which of them, and what is too much."""

    n: int = Field(default=30, ge=1, le=10_000, description="Cases that are judged again, at most, 1 to 10,000.")
    seed: int = Field(default=1, ge=0, description="Seed of the draw: the same seed draws the same cases.")
    warn_above: float = Field(
        default=0.2, ge=0, le=1, description="Share of disagreeing judgements above which there is a warning, 0 to 1."
    )


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[SpotCheckSettings]:
    """The run, with the second judge or the other prompts over its own. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    settings = task_settings(SpotCheckSettings, plain, origins, title=_TITLE, section=SECTION)
    finished = open_run(plain, origins, changeable=CHANGEABLE, task=SECTION, task_keys=(SECTION,))
    if problem := unnamed_judge(finished, origins, without_a_call="transport=stored"):
        raise ConfigError(_TITLE, [problem])
    if not _judged(finished):
        metrics = ", ".join(finished.config.metrics) or "none"
        raise ConfigError(
            _TITLE, [Problem(origins.location("metrics"), "metrics", metrics, "a metric that asks a judge")]
        )
    if _asks_the_same(finished):
        fix = "judge=... for a second judge, metrics.NAME.prompts.STEP=VERSION for another prompt, judge.season=again for the same one anew"
        problem = Problem(
            origins.location("judge"),
            "judge",
            f"that of the run ({finished.config.judge.label})",
            "another judge or prompt",
            fix,
        )
        raise ConfigError(_TITLE, [problem])
    return FinishedRunTask(finished, settings)


def run(task: FinishedRunTask[SpotCheckSettings], console: Console) -> int:
    """Judge the drawn cases in a run of their own, compare, and write the result beside the calibration of the finished run.

    Returns 0, or 4 where judgements failed beyond the coverage floor. The same start again asks nothing. Raises what an
    evaluation raises.
    """
    finished, settings = task.finished, task.settings
    source = SpotCheckSource(finished.folder, finished.manifest, n=settings.n, seed=settings.seed)
    spec = RunSpec.of_changed_cases(finished, source, metrics=_judged(finished), iterations=1)
    code = Evaluation(spec, RejudgePolicy(finished), console).run()
    shared = [number for number in scored_iterations(spec.folder) if number in scored_iterations(finished.folder)]
    if not shared:
        return code
    scores = [score for metric in spec.config.metrics.values() for score in metric.scores()]
    number = shared[0]
    reliability = judge_reliability(
        finished.folder.iteration(number).records, spec.folder.iteration(number).records, scores
    )
    document = {
        "format": FORMAT,
        "run_id": spec.run_id,
        "source_run": finished.run_id,
        "judge": read_json(finished.folder.iteration(number).metrics)["judge"]["label"],
        "second_judge": spec.config.judge.label,
        "settings": settings.model_dump(),
        "judge_reliability": reliability,
    }
    console.folded(SPOT_CHECK_HEADS, spot_check_rows(reliability), title="spot check")
    for line in disagreeing_lines(reliability):
        console.say(line)
    words = spot_check_words(reliability, settings.warn_above)
    rate = reliability["disagreement_rate"]
    (console.warn if rate is not None and rate > settings.warn_above else console.say)(words)
    console.say(f"written: {_write(finished.folder, document)}")
    return code


def _judged(finished: FinishedRun) -> dict[str, Metric]:
    """The metrics with prompts: only what asks a judge can be checked."""
    return {name: metric for name, metric in finished.config.metrics.items() if metric.prompts()}


def _asks_the_same(finished: FinishedRun) -> bool:
    """Whether every question would be one that the run has asked: then its own replies would answer."""
    before, now = finished.manifest["identity"], finished.identity()
    prompts = [{name: its["prompts"] for name, its in identity["metrics"].items()} for identity in (before, now)]
    same_prompts = all(prompts[0].get(name) == steps for name, steps in prompts[1].items())
    return same_prompts and before["judge_identity"] == now["judge_identity"]


def _write(folder: RunFolder, document: Mapping[str, Any]) -> Path:
    """Write and seal `calibration/spot_check.<run_id>.json` in the finished run; the id is that of the spot check's run."""
    parent = folder.root / FOLDER
    path = parent / f"spot_check.{document['run_id']}.json"
    with FolderLock(folder.root):
        make_folder(parent)
        json_unless_same(path, document)
        seal_added(folder, [path])
    return path
