"""`task=spot_check`: some cases of a finished run, drawn at random, before a second judge or other prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.safe_text import on_one_line
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.run_policies import RejudgePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.finished_run import FinishedRun
from ragpipe.engine.task_settings import FinishedRunKeys, FinishedRunTask
from ragpipe.extras.checks.changed_cases import ChangedCases
from ragpipe.extras.checks.check_run import document_of_check, judged_metrics, open_check, write_check
from ragpipe.extras.checks.judge_disagreement import judge_reliability
from ragpipe.reports.console import Console
from ragpipe.reports.number_format import bracketed, decimal, plural, whole
from ragpipe.schema.settings import Settings
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.store.run.run_tables import read_json

SPOT_CHECK_HEADS = ("score", "cases", "disagree", "kappa", "second less first")
LISTED = 10
"""Disagreeing cases that are printed; all of them stand in the file."""
_ID = 60  # characters of a case's id
CHANGEABLE = ("judge", "embedder", "metrics", "report")
SECTION = "spot_check"
_TITLE = "task=spot_check is wrong; nothing was started"


class SpotCheckSettings(Settings):
    """How many cases, which of them, and what is too much."""

    n: int = Field(default=30, ge=1, le=10_000, description="Cases that are judged again, at most, 1 to 10,000.")
    seed: int = Field(default=1, ge=0, description="Seed of the draw: the same seed draws the same cases.")
    warn_above: float = Field(
        default=0.2, ge=0, le=1, description="Share of disagreeing judgements above which there is a warning, 0 to 1."
    )


class Keys(FinishedRunKeys):
    spot_check: SpotCheckSettings = Field(description="How many cases, which of them, and what is too much.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[SpotCheckSettings]:
    """The run with the second judge or prompts over its own. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    task = open_check(SpotCheckSettings, plain, origins, task=SECTION, changeable=CHANGEABLE, needs_prompts=True)
    finished = task.finished
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
    return task


def run(task: FinishedRunTask[SpotCheckSettings], console: Console) -> int:
    """Judge the drawn cases in a run of their own, compare, and write the result beside the calibration of the finished run.

    Returns 0, or 4 where judgements failed beyond the coverage floor. The same start again asks nothing. Raises what an
    evaluation raises.
    """
    finished, settings = task.finished, task.settings
    source = ChangedCases(
        finished, task=SECTION, word="spot check", recipe=[settings.n], seed=settings.seed, pool=settings.n
    )
    spec = RunSpec.of_changed_cases(finished, source, metrics=judged_metrics(finished.config), iterations=1)
    code = Evaluation(spec, RejudgePolicy(finished), console).run()
    shared = [number for number in scored_iterations(spec.folder) if number in scored_iterations(finished.folder)]
    if not shared:
        return code
    scores = [score for metric in spec.config.metrics.values() for score in metric.scores()]
    number = shared[0]
    reliability = judge_reliability(
        finished.folder.iteration(number).records, spec.folder.iteration(number).records, scores
    )
    document = document_of_check(
        finished,
        spec.folder,
        settings.model_dump(),
        first_judge=read_json(finished.folder.iteration(number).metrics)["judge"]["label"],
        judge_reliability=reliability,
    )
    console.folded(SPOT_CHECK_HEADS, spot_check_rows(reliability), title="spot check")
    for line in disagreeing_lines(reliability):
        console.say(line)
    words = spot_check_words(reliability, settings.warn_above)
    rate = reliability["disagreement_rate"]
    (console.warn if rate is not None and rate > settings.warn_above else console.say)(words)
    for path in write_check(finished.folder, f"calibration/{SECTION}.{spec.run_id}", document):
        console.say(f"written: {path}")
    return code


def _asks_the_same(finished: FinishedRun) -> bool:
    """Whether every question would be one that the run has asked: then its own replies would answer."""
    before, now = finished.manifest["identity"], finished.identity()
    prompts = [{name: its["prompts"] for name, its in identity["metrics"].items()} for identity in (before, now)]
    same_prompts = all(prompts[0].get(name) == steps for name, steps in prompts[1].items())
    return same_prompts and before["judge_identity"] == now["judge_identity"]


def spot_check_rows(reliability: Mapping[str, Any]) -> list[list[str]]:
    """A row per score that both judges gave."""
    return [
        [
            name,
            whole(score["n"]),
            f"{decimal(score['disagreement_rate'], 2)} {bracketed(score['interval'], 1.0, 2)}"
            if score["interval"]
            else decimal(score["disagreement_rate"], 2),
            "-" if score["kappa"] is None else decimal(score["kappa"], 2),
            f"{score['difference']:+.2f}",
        ]
        for name, score in reliability["scores"].items()
    ]


def disagreeing_lines(reliability: Mapping[str, Any]) -> Iterator[str]:
    """The first cases on which the judges disagree."""
    cases = reliability["cases"]
    for case in cases[:LISTED]:
        name = on_one_line(f"{case['sample_id']}/{case['method']}", _ID)
        yield f"  {name} {case['score']}: {case['first']:g}, then {case['second']:g}"
    if len(cases) > LISTED:
        yield f"  and {len(cases) - LISTED:,} more"
    for name, score in reliability["scores"].items():
        if score["one_sided"]:
            yield f"{name}: {plural(score['one_sided'], 'case')} with a value from one judge alone"


def spot_check_words(reliability: Mapping[str, Any], limit: float) -> str:
    """The result in one sentence."""
    rate, cases = reliability["disagreement_rate"], plural(reliability["spot_check_n"], "case")
    if rate is None:
        return f"spot check: no score has a value from both judges in {cases}"
    said = f"spot check: the judges disagree in {decimal(rate, 2)} of the judgements of {cases}"
    if rate <= limit:
        return f"{said}, not more than spot_check.warn_above={limit:g}"
    return (
        f"{said}, more than spot_check.warn_above={limit:g}: at least one of them is not to be trusted here; label these cases "
        "(task=label) and calibrate"
    )
