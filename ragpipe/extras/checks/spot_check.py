"""`task=spot_check`: some cases of a finished run, drawn at random, before a second judge or other prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.core.score import ScoreSpec
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings
from ragpipe.extras.checks import check
from ragpipe.extras.checks.changed_cases import HAIR, ChangedCases
from ragpipe.report.console import Console
from ragpipe.report.model import TERMINAL, CaseName, Note, RunVerdict, Section, Verbatim
from ragpipe.report.styled_text import decimal, plural
from ragpipe.runs.finished_run import FinishedRun, FinishedRunKeys, FinishedRunTask
from ragpipe.runs.manifest import scored_iterations
from ragpipe.runs.spec import RunSpec
from ragpipe.score.records import verdict_column
from ragpipe.stats.agreement import cohen_kappa
from ragpipe.store.run_tables import read_columns, read_json

APART = 0.1
"""Share of a score's range by which two values without a verdict may differ and still agree."""
WARN_ABOVE = 0.2
"""Share of disagreeing judgements above which there is a warning."""
_LISTED = 10  # disagreeing cases that are shown; all of them stand in the document
_FOUND = "found: cases in which the judges disagree. shift: the mean difference, second less first. left out: a value from one judge alone."
SECTION = "spot_check"


class SpotCheckSettings(Settings):
    """How many cases are judged again."""

    n: int = Field(default=30, ge=1, le=10_000, description="Cases that are judged again, at most, 1 to 10,000.")


class Keys(FinishedRunKeys):
    spot_check: SpotCheckSettings = Field(description="How many cases, which of them, and what is too much.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[SpotCheckSettings]:
    """The run with the second judge or prompts over its own. Raises ConfigError and DataError."""
    changeable = ("judge", "embedder", "metrics", "report")
    task = check.open_check(SpotCheckSettings, plain, origins, SECTION, changeable=changeable)
    if _asks_the_same(task.finished):
        where, found = ((origins or NoOrigins()).location("judge"), f"that of the run ({task.finished.config.judge.label})")
        fix = "judge=... for a second judge, metrics.NAME.prompts.STEP=VERSION for another prompt, judge.season=again for the same one anew"
        title = f"task={SECTION} is wrong; nothing was started"
        raise ConfigError(title, [Problem(where, "judge", found, "another judge or prompt", fix)])
    return task


def _asks_the_same(finished: FinishedRun) -> bool:
    """Whether every question would be one that the run has asked: then its own replies would answer."""
    before, now = finished.manifest["identity"], finished.identity()
    asked = {name: its["prompts"] for name, its in before["metrics"].items()}
    same_prompts = all(asked.get(name) == its["prompts"] for name, its in now["metrics"].items())
    return same_prompts and before["judge_identity"] == now["judge_identity"]


def run(task: FinishedRunTask[SpotCheckSettings], console: Console) -> int:
    """Judge the drawn cases in a run of their own, compare, and write the result beside the calibration of the finished run.

    Returns 0, or 4 where judgements failed beyond the coverage floor. Raises what an evaluation raises.
    """
    finished, settings = task.finished, task.settings
    source = ChangedCases(finished, SECTION, "spot check", recipe=[settings.n], pool=settings.n)
    metrics = check.judged_metrics(finished.config)
    spec = RunSpec.of_changed_cases(finished, source, metrics=metrics, iterations=1)
    code = check.judge_cases(spec, finished, console)
    shared = [number for number in scored_iterations(spec.folder) if number in scored_iterations(finished.folder)]
    if not shared:
        return code
    first, second = (folder.iteration(shared[0]) for folder in (finished.folder, spec.folder))
    scores = [score for metric in spec.config.metrics.values() for score in metric.scores()]
    first_judge = read_json(first.metrics)["judge"]["label"]
    figures = {"first_judge": first_judge, **judge_reliability(first.records, second.records, scores)}
    kept = {"n": settings.n, "warn_above": WARN_ABOVE}
    check.write_check(SECTION, "Spot check", finished, spec.folder, kept, answer, sections, console, **figures)
    return code


def judge_reliability(first: Path, second: Path, specs: Sequence[ScoreSpec]) -> dict[str, Any]:
    """How often two judges of the same cases disagree, from `records.parquet` of the run and of the spot check.

    Two judgements disagree where one passes and the other does not; a score without a threshold, where the values are more than a tenth of
    its range apart (without a range: where they differ). Compared are the cases with a value in both.

    Returns `judge_reliability` (`spot_check_n` cases, and the `disagreement_rate` over all compared judgements, None without one),
    `results` (by score the rate of disagreement, the `kappa` of the verdicts, the `rule`, the mean `difference` second less first, and
    `one_sided`, the cases with a value from one judge alone) and `cases`, those that disagree.
    """
    columns = [*OUTPUT_KEY, *(column for spec in specs for column in (spec.name, verdict_column(spec.name)))]
    tables = [read_columns(path, columns).to_pylist() for path in (first, second)]
    runs = [{tuple(row[name] for name in OUTPUT_KEY): row for row in rows} for rows in tables]
    keys = [key for key in runs[1] if key in runs[0]]

    def column(name: str) -> list[NDArray[np.float64]]:
        """The values or verdicts (1, 0) of both, NaN where there is none."""
        return [np.array([rows[key][name] for key in keys], dtype=np.float64) for rows in runs]

    results, cases = list[dict[str, Any]](), list[dict[str, Any]]()
    for spec in specs:
        (before, after), (passed, passes) = column(spec.name), column(verdict_column(spec.name))
        both = np.flatnonzero(~np.isnan(before) & ~np.isnan(after))
        if not len(both):
            continue
        by_verdict = not (np.isnan(passed[both]).any() or np.isnan(passes[both]).any())
        span = 0.0 if spec.low is None or spec.high is None else spec.high - spec.low
        apart = np.abs(before - after) > APART * span + HAIR
        disagree = (passed != passes)[both] if by_verdict else apart[both]
        row: dict[str, Any] = {"score": spec.name, "expected": "same"}
        row |= check.rate_json(disagree.tolist(), [keys[place][0] for place in both])
        row["kappa"] = cohen_kappa(passed[both], passes[both]).value if by_verdict else None
        row["rule"] = "verdict" if by_verdict else "distance"
        row["difference"] = float(np.mean(after[both] - before[both]))
        row["one_sided"] = int(np.sum(np.isnan(before) != np.isnan(after)))
        results.append(row)
        for place in both[disagree].tolist():
            values = {"first": before[place].item(), "second": after[place].item()}
            cases.append({**dict(zip(OUTPUT_KEY, keys[place], strict=True)), "score": spec.name, **values})
    judged = sum(row["n"] for row in results)
    rates = {"spot_check_n": len(keys), "disagreement_rate": len(cases) / judged if judged else None}
    return {"judge_reliability": rates, "results": results, "cases": cases}


def sections(document: Mapping[str, Any]) -> list[Section]:
    """What is printed and stands in `spot_check.<run_id>.md`."""
    cases = document["cases"]
    listed = [
        Note((CaseName.of(case), " ", Verbatim(case["score"]), f": {case['first']:g}, then {case['second']:g}"))
        for case in cases[:_LISTED]
    ]
    listed += [Note(f"and {len(cases) - _LISTED:,} more")] if len(cases) > _LISTED else []
    return check.result_sections(document, _FOUND, *listed, _result(document))


def answer(document: Mapping[str, Any]) -> RunVerdict:
    """The result: good where the judges agree."""
    said, rate = _result(document), document["judge_reliability"]["disagreement_rate"]
    return RunVerdict("good" if rate is not None and rate <= WARN_ABOVE else "warn", "", said.text)


def _result(document: Mapping[str, Any]) -> Note:
    """The result in one sentence."""
    reliability = document["judge_reliability"]
    rate, cases = reliability["disagreement_rate"], plural(reliability["spot_check_n"], "case")
    if rate is None:
        return Note(f"spot check: no score has a value from both judges in {cases}", shown_in=TERMINAL)
    said = f"spot check: the judges disagree in {decimal(rate, 2)} of the judgements of {cases}"
    if rate <= WARN_ABOVE:
        return Note(f"{said}, not more than {WARN_ABOVE:g}", shown_in=TERMINAL)
    advice = "at least one of them is not to be trusted here; label these cases (task=label) and calibrate"
    return Note(f"{said}, more than {WARN_ABOVE:g}: {advice}", kind="warning", shown_in=TERMINAL)
