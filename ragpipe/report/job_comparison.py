"""The jobs of a sweep compared: a row per job, method and score, with the standing of the job where it can be decided."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.comparison.run_differences import ChangedKey
from ragpipe.comparison.settings import SMALLEST_SHARE
from ragpipe.score.aggregate import unit_value
from ragpipe.score.iterations import cases_of, open_records, repeats
from ragpipe.score.normalisation import OVERALL, estimate_of
from ragpipe.stats.difference_verdict import decide_difference
from ragpipe.stats.intervals import Estimate
from ragpipe.store.table_rows import table_schema

Floats = NDArray[np.float64]
SharedKey = tuple[int, str | None, str]  # job, method (None: all cases), score


class SharedQuestions(NamedTuple):
    """One score of one job on the `n` questions for which every job of the comparison has a value.

    `values` are its means per question, in an order that all jobs share; `scale` is what is declared of the score.
    """

    n: int
    estimate: Estimate
    values: Floats
    scale: Mapping[str, Any]
    level: float


def shared_questions(runs: Mapping[int, tuple[Path, Mapping[str, Any]]]) -> dict[SharedKey, SharedQuestions]:
    """For each job, method and score the figures on the shared questions, over the means of its cases.

    `runs` are the folder and the `final/metrics.json` of each job that has results. Nothing for a score (of a method)
    that fewer than two jobs have. Raises DataError for tables that do not fit together.
    """
    records = {
        number: [folder / f"iteration-{iteration}" / "records.parquet" for iteration in metrics["iterations"]]
        for number, (folder, metrics) in runs.items()
    }
    cases = {number: cases_of(paths).names for number, paths in records.items()}
    compared: dict[SharedKey, SharedQuestions] = {}
    for name in dict.fromkeys(name for _, metrics in runs.values() for name in metrics["declared"]):
        having = {number: metrics for number, (_, metrics) in runs.items() if name in metrics["declared"]}
        values = {}
        for number in having:
            with open_records(records[number], [name]) as tables:
                values[number] = repeats(tables, name, len(cases[number])).means
        methods = dict.fromkeys(method for metrics in having.values() for method in metrics["by"].get("method", {}))
        for method in (None, *methods):
            compared |= _compared(name, method, having, cases, values)
    return compared


def _compared(
    name: str,
    method: str | None,
    having: Mapping[int, Mapping[str, Any]],
    cases: Mapping[int, pa.Table],
    values: Mapping[int, Floats],
) -> dict[SharedKey, SharedQuestions]:
    measured: dict[int, tuple[NDArray[Any], Floats]] = {}
    for number in having:
        samples, methods = (np.array(cases[number][key].to_pylist()) for key in ("sample_id", "method"))
        places = np.flatnonzero(~np.isnan(values[number]) & (True if method is None else methods == method))
        if len(places):
            measured[number] = samples[places], values[number][places]
    if len(measured) < 2:
        return {}
    common = reduce(np.intersect1d, (samples for samples, _ in measured.values()))
    compared = {}
    for number, (samples, found) in measured.items():
        here = np.isin(samples, common)
        codes = np.unique(samples[here], return_inverse=True)[1].astype(np.int64)
        scale, level = having[number]["declared"][name], having[number]["scoring"]["level"]
        by_question = np.bincount(codes, weights=found[here]) / np.maximum(np.bincount(codes), 1)
        estimate = estimate_of(found[here], codes, scale, level)
        compared[number, method, name] = SharedQuestions(len(common), estimate, by_question, scale, level)
    return compared


TEXT, WHOLE, REAL, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()

_JOB = (
    ("job", WHOLE, "number of the job in the sweep, from 0"),
    ("overrides", TEXT, "all overrides of the job, as typed on the command line"),
    ("label", TEXT, "the arguments that not all jobs share"),
    ("run_id", TEXT, "the run's folder beside `sweeps`; null when the job never had one"),
    ("exit_code", WHOLE, "how the job ended; null = not started"),
    ("state", TEXT, "the exit code in words"),
    ("reason", TEXT, "why it did not end well"),
    ("iterations", WHOLE, "iterations that the figures are of"),
    ("calls_used", WHOLE, "judge replies that the results use"),
    ("usd_used", REAL, "their price; null = not all prices are known"),
    ("calls_spent", WHOLE, "calls that this run's own processes paid"),
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
    ("mean_score", REAL, "the mean brought to 0..1, 1 = best"),
    ("pass_rate", REAL, "share of judged cases that reached the threshold"),
    ("threshold", REAL, "in the native scale"),
    ("n_cases", WHOLE, "cases of the run or of the method"),
    ("n_ok", WHOLE, "judgements with a value, over all iterations"),
    ("coverage", REAL, "n_ok / (n_ok + n_error + n_system_error + n_not_recorded)"),
    ("higher_is_better", FLAG, "direction of the score"),
)
COMPARISON_SCHEMA = table_schema(*_JOB, *_SCORE)  # of comparison.parquet


_FIGURES = [name for name, _, _ in _SCORE if name != "ranked_with"]
"""The columns that are the same for jobs between which what was varied has no effect on a score."""
_Group = tuple[str | None, str, Mapping[str, Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Job:
    """One job of a sweep. `folder` is the run's, None when it never had one; `code` None when it was not started.

    `metrics` and `cost` are its `final/metrics.json` and `final/cost.json`, None before the run has them.
    """

    number: int
    arguments: Sequence[str]
    code: int | None
    state: str
    reason: str = ""
    folder: Path | None = None
    metrics: Mapping[str, Any] | None = None
    cost: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class OtherJudging:
    """How a job was judged that was not judged like `base`, the first job of the sweep with results: `differences` are those of `first`,
    the first job that was judged like this one."""

    first: int
    base: int
    differences: Sequence[ChangedKey]


def job_labels(jobs: Sequence[Job]) -> list[list[str]]:
    """For each job the arguments that not all jobs share."""
    shared = set.intersection(*(set(job.arguments) for job in jobs)) if jobs else set()
    return [[argument for argument in job.arguments if argument not in shared] for job in jobs]


def comparison_rows(
    jobs: Sequence[Job],
    shared: Mapping[SharedKey, SharedQuestions] | None = None,
    judgings: Mapping[int, OtherJudging] | None = None,
) -> list[dict[str, Any]]:
    """The rows of the table, job by job: over all cases, then by method where there are several.

    A job without results has one row, with its reason and no score. `shared` are the figures of
    `shared_questions`; a score that is not in it has no standing. `judgings` are those of the jobs that were judged otherwise than
    the first one: jobs are ranked among those that were judged in the same way.
    """
    shared, judgings, rows = shared or {}, judgings or {}, list[dict[str, Any]]()
    firsts: dict[tuple[Any, ...], int] = {}  # by way of judging, score and weights
    for job, label in zip(jobs, job_labels(jobs), strict=True):
        head = dict.fromkeys(COMPARISON_SCHEMA.names) | _head(job, " ".join(label))
        way = judgings[job.number].first if job.number in judgings else None
        scores = [
            {
                **head,
                **_score(*group),
                **_on_shared(shared.get((job.number, group[0], group[1]))),
                "ranked_with": firsts.setdefault((way, group[1], _weights(job, group[1])), job.number),
            }
            for group in _scores(job)
        ]
        rows += scores or [head]
    _set_standings(rows, shared, {job.number: job.metrics["scoring"]["coverage_floor"] for job in jobs if job.metrics})
    return rows


def _weights(job: Job, name: str) -> str:
    """What a composite is weighted by, as text that is equal for equal weights; empty for the score of a metric."""
    scoring = (job.metrics or {}).get("scoring", {})
    weights = scoring.get("weights_used") if name == OVERALL.name else scoring.get("composites", {}).get(name)
    return json.dumps(weights, sort_keys=True) if weights else ""


def _on_shared(found: SharedQuestions | None) -> dict[str, Any]:
    if found is None:
        return {}
    bounds = found.estimate.interval
    ends = {"shared_low": bounds.low, "shared_high": bounds.high} if bounds else {}
    return {"n_shared": found.n, "shared_mean": found.estimate.value, **ends}


def _head(job: Job, label: str) -> dict[str, Any]:
    used, spent = ((job.cost or {}).get("total", {}).get(part, {}) for part in ("used", "spent"))
    return {
        "job": job.number,
        "overrides": " ".join(job.arguments),
        "label": label,
        "run_id": job.folder.name if job.folder else None,
        "exit_code": job.code,
        "state": job.state,
        "reason": job.reason or None,
        "iterations": len(job.metrics["iterations"]) if job.metrics else None,
        "calls_used": used.get("calls"),
        "usd_used": used.get("usd"),
        "calls_spent": spent.get("calls"),
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
    interval = score["interval"] or {}
    return {
        "method": method,
        "score": name,
        "mean": score["mean"],
        "interval_low": interval.get("low"),
        "interval_high": interval.get("high"),
        "mean_score": unit_value(score["mean"], scale),
        "pass_rate": score.get("pass_rate"),
        "threshold": scale["threshold"],
        "n_cases": group["n_cases"],
        "n_ok": score["n_ok"],
        "coverage": score["coverage"],
        "higher_is_better": scale["higher_is_better"],
    }


def _set_standings(
    rows: Sequence[dict[str, Any]], shared: Mapping[SharedKey, SharedQuestions], floors: Mapping[int, float]
) -> None:
    """Set `standing` and the differences from the highest job (docs/command-line.md), among jobs that were judged in the same way."""
    groups: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in rows:
        if row["mean"] is not None:
            groups.setdefault((row["method"], row["score"]), []).append(row)
    for group in groups.values():
        firsts = dict.fromkeys(row["ranked_with"] for row in group)
        ways = [group] if _all_equal(group) else [[row for row in group if row["ranked_with"] == first] for first in firsts]
        for way in ways:
            if _all_equal(way):
                for row in way:
                    row["standing"] = "equal"
            else:
                _place(way, shared, floors)


def _all_equal(group: Collection[Mapping[str, Any]]) -> bool:
    """Whether several jobs have the same figures."""
    return len(group) > 1 and len({tuple(row[name] for name in _FIGURES) for row in group}) == 1


def _place(rows: Sequence[dict[str, Any]], shared: Mapping[SharedKey, SharedQuestions], floors: Mapping[int, float]) -> None:
    figures = {row["job"]: shared.get((row["job"], row["method"], row["score"])) for row in rows}
    found = {job: figure for job, figure in figures.items() if figure is not None and figure.n}
    jobs = [row for row in rows if row["job"] in found and row["mean_score"] is not None]
    covered = [row for row in jobs if row["coverage"] is None or row["coverage"] >= floors[row["job"]]]
    if len(covered) < 2:  # a coverage under the floor has no standing; where such a job is not behind, none is the best
        return
    sign = 1 if covered[0]["higher_is_better"] else -1
    top = max(covered, key=lambda row: sign * (found[row["job"]].estimate.value or 0.0))
    top["to_best"] = 0.0
    pairs, not_behind = len(jobs) * (len(jobs) - 1) // 2, list[dict[str, Any]]()
    for row in (row for row in jobs if row is not top):
        is_behind = _is_behind(row, found[row["job"]], found[top["job"]], pairs)
        not_behind += [] if is_behind else [row]
        if row in covered:
            row["standing"] = "behind" if is_behind else "not_separable"
    near = any(row in covered for row in not_behind)
    top["standing"] = "not_separable" if near else None if not_behind else "best"


def _is_behind(row: dict[str, Any], own: SharedQuestions, top: SharedQuestions, pairs: int) -> bool:
    """Whether a job is worse than the highest one, with a p-value that stands for so many pairs; the row gets their difference."""
    low, high, rises = (own.scale[key] for key in ("low", "high", "higher_is_better"))
    effect = SMALLEST_SHARE * (high - low)
    verdict = decide_difference(
        top.values, own.values, low=low, high=high, smallest_effect=effect, higher_is_better=rises, level=own.level
    )
    paired = verdict.paired
    row["to_best"] = paired.difference
    if paired.interval:
        row.update(to_best_low=paired.interval.low, to_best_high=paired.interval.high)
    return verdict.state == "worse" and paired.p_value is not None and paired.p_value * pairs <= 1 - own.level
