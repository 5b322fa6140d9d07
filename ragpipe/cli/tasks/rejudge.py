"""`task=rejudge`: the frozen cases of a finished run before another judge, with a comparison of old and new at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.errors import ConfigError
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, task_settings
from ragpipe.metrics.base import computed_scores
from ragpipe.report.agreement_report import agreement_report
from ragpipe.report.console import Console
from ragpipe.report.model import Report
from ragpipe.report.section_page import write_sections
from ragpipe.report.terminal import print_report
from ragpipe.runs.case_sources import RunSource
from ragpipe.runs.comparison_files import compare_runs
from ragpipe.runs.evaluation import Evaluation
from ragpipe.runs.finished_run import FinishedRun, FinishedRunKeys, FinishedRunTask, open_run, unnamed_judge
from ragpipe.runs.spec import RejudgePolicy, RunSpec, StoredRejudgePolicy
from ragpipe.runs.write_reports import seal_pages
from ragpipe.store.files import json_unless_same
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.run_folder import RunFolder

CHANGEABLE = ("judge", "embedder", "metrics", "scoring", "report")
SECTION = "rejudge"
_TITLE = "task=rejudge is wrong; nothing was started"


class RejudgeSettings(Settings):
    """How to ask again.

    `mode`: `replay` runs the metrics over the frozen cases and asks what has no reply yet; `stored` does so without a
    network, over the replies of the run and of the call store alone. `prompts`: the templates that travelled with the run, or those of
    now (`current`).
    """

    mode: Literal["replay", "stored"] = Field(
        default="replay", description="replay: the metrics ask again. stored: no network, stored replies only."
    )
    prompts: Literal["run", "current"] = Field(
        default="run", description="Which templates are used: those of the run, or the current ones."
    )


class Keys(FinishedRunKeys):
    rejudge: RejudgeSettings = Field(description="How the judge is asked again.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[RejudgeSettings]:
    """The run with the user's judge over its own. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    settings = task_settings(RejudgeSettings, plain, origins, title=_TITLE, section=SECTION)
    finished = open_run(
        plain,
        origins,
        changeable=CHANGEABLE,
        task="rejudge",
        task_keys=(SECTION,),
        current_prompts=settings.prompts == "current",
    )
    task = FinishedRunTask(finished, settings)
    problem = unnamed_judge(finished, origins, without_a_call="rejudge.mode=stored")
    if problem and settings.mode != "stored":
        raise ConfigError(_TITLE, [problem])
    return task


def run(task: FinishedRunTask[RejudgeSettings], console: Console) -> int:
    """Judge again. Returns the exit code that an evaluation by this judge would have.

    The same judge asks nothing and leads to the run's own folder.
    """
    finished = task.finished
    spec = RunSpec.of_finished_run(finished, RunSource(finished.folder, finished.manifest))
    policy = StoredRejudgePolicy(finished) if task.settings.mode == "stored" else RejudgePolicy(finished)
    comparisons: list[dict[str, Any]] = []

    def before_result() -> None:
        if (comparison := _compare(finished, spec.folder, console, calls=evaluation.calls)) is not None:
            comparisons.append(comparison)

    evaluation = Evaluation(spec, policy, console, before_result=before_result)
    code = evaluation.run()
    for comparison in comparisons:  # no longer under the lock of the run, which sealed its own files first
        document = spec.folder.root / "agreement.json"  # with all scores
        with FolderLock(spec.folder.root):
            json_unless_same(document, comparison)
            pages = write_sections(document, _judged(comparison, finished))
            seal_pages(spec.folder, [document, *pages], spec.config.report)
    return code


def _compare(finished: FinishedRun, new: RunFolder, console: Console, *, calls: int) -> dict[str, Any] | None:
    """Print the comparison of both judges; returns what `agreement.json` holds, None where there is nothing to compare."""
    old, name = finished.folder, finished.run_id
    if old == new:
        effort = f"{calls:,} calls, for what had no reply" if calls else "asked nothing again"
        console.say(f"this is {name} itself, by the same judge: {effort}")
        return None
    comparison = compare_runs(old, new)
    if comparison is None:
        console.say(f"{name} was never scored: there is nothing to compare with")
        return None
    print_report(replace(_judged(comparison, finished), verdict=None), console)
    console.say(f"agreement: {new.root / 'agreement.html'}")
    return comparison


def _judged(comparison: Mapping[str, Any], finished: FinishedRun) -> Report:
    """The comparison without the scores that no judge decides."""
    computed = computed_scores(finished.config.metrics.values())
    scores = {score: values for score, values in comparison["scores"].items() if score not in computed}
    return agreement_report({**comparison, "scores": scores})
