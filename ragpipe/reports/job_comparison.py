"""The jobs of a sweep compared: a row per job, method and score, with the standing of the job where it can be decided."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.comparing.judging_shift import Shifts
from ragpipe.comparing.run_differences import ChangedKey
from ragpipe.reports.job_standings import set_standings
from ragpipe.reports.number_format import plural
from ragpipe.reports.shared_questions import SharedKey, SharedQuestions
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.score_declarations import unit_value

TEXT, WHOLE, REAL, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()

_JOB = (
    ("job", WHOLE, "number of the job in the sweep, from 0"),
    ("overrides", TEXT, "all overrides of the job, as typed on the command line"),
    ("label", TEXT, "the words that not all jobs share"),
    ("run_id", TEXT, "the run's folder beside `sweeps`; null when the job never had one"),
    ("exit_code", WHOLE, "how the job ended; null = not started"),
    ("state", TEXT, "the exit code in words"),
    ("reason", TEXT, "why it did not end well"),
    ("iterations", WHOLE, "iterations that the figures are of"),
    ("calls_used", WHOLE, "judge replies that the results use"),
    ("usd_used", REAL, "their price; null = not all prices are known"),
    ("usd_known", REAL, "the part of it that is known"),
    ("calls_spent", WHOLE, "calls that this run's own processes paid"),
    ("usd_spent", REAL, "what they paid; null = unknown"),
)
_SCORE = (
    ("method", TEXT, "the RAG variant; null = all cases"),
    ("score", TEXT, "the score's name; null for a job without results"),
    ("mean", REAL, "mean over the iterations of their means, in the native scale"),
    ("interval_low", REAL, "lower end of the mean's interval"),
    ("interval_high", REAL, "upper end of the mean's interval"),
    ("n_shared", WHOLE, "questions for which every job has a value; null where fewer than two jobs have one"),
    ("shared_mean", REAL, "mean over these questions alone, of the cases' means over the iterations"),
    ("shared_low", REAL, "lower end of its interval"),
    ("shared_high", REAL, "upper end of its interval"),
    ("to_best", REAL, "this job's mean less that of the highest one, question by question on the shared ones"),
    ("to_best_low", REAL, "lower end of that difference's interval"),
    ("to_best_high", REAL, "upper end of that difference's interval"),
    (
        "standing",
        TEXT,
        "on the shared questions, among the jobs of the same `ranked_with`: best, not_separable (from the highest), behind, or "
        "equal; null where nothing can be said",
    ),
    (
        "ranked_with",
        WHOLE,
        "the first job that was judged in the same way: judge, embedder, prompts, reading of replies and parameters of metrics; "
        "for a composite also with the same weights",
    ),
    ("shift_from", WHOLE, "a job that was judged otherwise, with the same answers; null where there is none"),
    (
        "shift",
        REAL,
        "this job's mean less that of the job `shift_from`, on the same answers: the difference is that of the judging",
    ),
    (
        "shift_low",
        REAL,
        "lower end of that difference's interval; null for too few questions, and where no value differs",
    ),
    ("shift_high", REAL, "upper end of that difference's interval"),
    ("shift_n", WHOLE, "cases with the same answer in both jobs"),
    ("mean_score", REAL, "the mean brought to 0..1, 1 = best"),
    ("pass_rate", REAL, "share of judged cases that reached the threshold"),
    ("pass_low", REAL, "lower end of the pass rate's interval"),
    ("pass_high", REAL, "upper end of the pass rate's interval"),
    ("threshold", REAL, "in the native scale"),
    ("n_cases", WHOLE, "cases of the run or of the method"),
    ("n_ok", WHOLE, "judgements with a value, over all iterations"),
    ("n_judged", WHOLE, "cases with a verdict, over all iterations: what pass_rate is of"),
    ("n_error", WHOLE, "judgements that failed, over all iterations"),
    ("coverage", REAL, "n_ok / (n_ok + n_error + n_system_error + n_not_recorded)"),
    ("spread_sd", REAL, "standard deviation of the iterations' means; null with one iteration"),
    ("flip_rate", REAL, "how often two iterations give a case different verdicts, 0 to 1; null with one iteration"),
    ("higher_is_better", FLAG, "direction of the score"),
)
COMPARISON_SCHEMA = pa.schema(
    [pa.field(name, kind, metadata={"description": text}) for name, kind, text in (*_JOB, *_SCORE)]
)  # of comparison.parquet


_JUDGING = ("ranked_with", "shift_from", "shift", "shift_low", "shift_high", "shift_n")
FIGURES = [name for name, _, _ in _SCORE if name not in _JUDGING]
"""The columns that are the same for jobs between which what was varied has no effect on a score."""
_Group = tuple[str | None, str, Mapping[str, Any], Mapping[str, Any]]
_NOTHING: Mapping[SharedKey, SharedQuestions] = {}
_ONE_WAY: Mapping[int, OtherJudging] = {}


@dataclass(frozen=True)
class Job:
    """One job of a sweep. `folder` is the run's, None when it never had one; `code` None when it was not started.

    `metrics` and `cost` are its `final/metrics.json` and `final/cost.json`, None before the run has them.
    """

    number: int
    words: Sequence[str]
    code: int | None
    state: str
    reason: str = ""
    folder: Path | None = None
    metrics: Mapping[str, Any] | None = None
    cost: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class OtherJudging:
    """How a job was judged that was not judged like the first job of the sweep with results.

    `first` is the first job that was judged like this one, `base` a job of the first way with the same answers as that where there is
    one. `differences` are those of `first` from `base`; `shifts`, of `first` alone, say how far it lies from `base` on the same answers.
    """

    first: int
    base: int
    differences: Sequence[ChangedKey]
    shifts: Shifts


def job_labels(jobs: Sequence[Job]) -> list[list[str]]:
    """For each job the words that not all jobs share."""
    shared = set.intersection(*(set(job.words) for job in jobs)) if jobs else set()
    return [[word for word in job.words if word not in shared] for job in jobs]


def iterations_note(job: Job, jobs: Sequence[Job]) -> str:
    """` for 2 iterations`, beside what a job cost, where the jobs have not all as many: its results are of all iterations of its folder,
    also of an earlier start's."""
    counts = {len(each.metrics["iterations"]) for each in jobs if each.metrics}
    if job.metrics is None or len(counts) < 2:
        return ""
    return f" for {plural(len(job.metrics['iterations']), 'iteration')}"


def comparison_rows(
    jobs: Sequence[Job],
    shared: Mapping[SharedKey, SharedQuestions] = _NOTHING,
    judgings: Mapping[int, OtherJudging] = _ONE_WAY,
) -> list[dict[str, Any]]:
    """The rows of the table, job by job: over all cases, then by method where there are several.

    A job without results has one row, with its reason and no score. `shared` are the figures of
    `shared_questions`; a score that is not in it has no standing. `judgings` are those of the jobs that were judged otherwise than
    the first one: jobs are ranked among those that were judged in the same way.
    """
    rows: list[dict[str, Any]] = []
    ranked_with = _ranked_with(jobs, judgings)
    for job, label in zip(jobs, job_labels(jobs), strict=True):
        head = _head(job, " ".join(label))
        judging = judgings.get(job.number)
        scores = [
            {**_row(head, group, shared), **_shift(judging, group), "ranked_with": ranked_with[job.number, group[1]]}
            for group in _scores(job)
        ]
        rows += scores or [dict.fromkeys(COMPARISON_SCHEMA.names) | head]
    floors = {job.number: _floor(job) for job in jobs}
    set_standings(rows, shared, floors, FIGURES)
    return rows


def _ranked_with(jobs: Sequence[Job], judgings: Mapping[int, OtherJudging]) -> dict[tuple[int, str], int]:
    """By job and score the first job with that score that was judged in the same way and, for a composite, has the same weights."""
    firsts: dict[tuple[Any, ...], int] = {}
    ranked_with = {}
    for job in jobs:
        way = judgings[job.number].first if job.number in judgings else None
        for _, name, _, _ in _scores(job):
            key = (way, name, _weights(job, name))
            ranked_with[job.number, name] = firsts.setdefault(key, job.number)
    return ranked_with


def _weights(job: Job, name: str) -> str:
    """What a composite is weighted by, as text that is equal for equal weights; empty for the score of a metric."""
    scoring = (job.metrics or {}).get("scoring", {})
    weights = scoring.get("weights_used") if name == OVERALL.name else scoring.get("composites", {}).get(name)
    return json.dumps(weights, sort_keys=True) if weights else ""


def _shift(judging: OtherJudging | None, group: _Group) -> dict[str, Any]:
    bridge = judging.shifts.get((group[0], group[1])) if judging else None
    if judging is None or bridge is None:
        return {}
    found = bridge["interval"]
    interval = {} if found is None or found["too_few"] or not bridge["changed"] else found
    return {
        "shift_from": judging.base,
        "shift": bridge["shift"],
        "shift_low": interval.get("low"),
        "shift_high": interval.get("high"),
        "shift_n": bridge["n"],
    }


def _row(head: Mapping[str, Any], group: _Group, shared: Mapping[SharedKey, SharedQuestions]) -> dict[str, Any]:
    on_shared = shared.get((head["job"], group[0], group[1]))
    bounds = on_shared.estimate.interval if on_shared else None
    figures = {
        "n_shared": on_shared.n if on_shared else None,
        "shared_mean": on_shared.estimate.mean if on_shared else None,
        "shared_low": bounds.low if bounds else None,
        "shared_high": bounds.high if bounds else None,
    }
    return {**head, **_score(*group), **dict.fromkeys(_JUDGING), **figures}


def _floor(job: Job) -> float:
    return float((job.metrics or {}).get("scoring", {}).get("coverage_floor", 0.0))


def _head(job: Job, label: str) -> dict[str, Any]:
    used, spent = ((job.cost or {}).get("total", {}).get(part, {}) for part in ("used", "spent"))
    return {
        "job": job.number,
        "overrides": " ".join(job.words),
        "label": label,
        "run_id": job.folder.name if job.folder else None,
        "exit_code": job.code,
        "state": job.state,
        "reason": job.reason or None,
        "iterations": len(job.metrics["iterations"]) if job.metrics else None,
        "calls_used": used.get("calls"),
        "usd_used": used.get("usd"),
        "usd_known": used.get("usd_known"),
        "calls_spent": spent.get("calls"),
        "usd_spent": spent.get("usd"),
    }


def _scores(job: Job) -> Iterator[_Group]:
    """Each method (None: all cases) and score, with the group and what is declared of the score."""
    if job.metrics is None:
        return
    methods = job.metrics["by"].get("method", {})
    groups = [(None, job.metrics["overall"]), *(methods.items() if len(methods) > 1 else ())]
    for method, group in groups:
        for name in group["scores"]:
            yield method, name, group, job.metrics["declared"][name]


def _score(method: str | None, name: str, group: Mapping[str, Any], scale: Mapping[str, Any]) -> dict[str, Any]:
    score = group["scores"][name]
    interval, passing = score["interval"] or {}, score.get("pass_interval") or {}
    return {
        "method": method,
        "score": name,
        "mean": score["mean"],
        "interval_low": interval.get("low"),
        "interval_high": interval.get("high"),
        **dict.fromkeys(("to_best", "to_best_low", "to_best_high", "standing")),
        "mean_score": unit_value(score["mean"], scale),
        "pass_rate": score.get("pass_rate"),
        "pass_low": passing.get("low"),
        "pass_high": passing.get("high"),
        "threshold": scale["threshold"],
        "n_cases": group["n_cases"],
        "n_ok": score["n_ok"],
        "n_judged": score.get("n_judged", 0),
        "n_error": score.get("n_error", 0),
        "coverage": score["coverage"],
        "spread_sd": (score.get("spread") or {}).get("sd"),
        "flip_rate": (score.get("flips") or {}).get("rate"),
        "higher_is_better": scale["higher_is_better"],
    }
