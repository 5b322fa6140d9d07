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

from ragpipe.comparison.comparison import Shifts
from ragpipe.comparison.run_differences import ChangedKey
from ragpipe.comparison.settings import SMALLEST_SHARE
from ragpipe.report.styled_text import plural
from ragpipe.score.aggregate import unit_value
from ragpipe.score.iterations import cases_of, open_records, repeats
from ragpipe.score.normalisation import OVERALL, estimate_of
from ragpipe.stats.difference_verdict import DifferenceVerdict, decide_difference
from ragpipe.stats.intervals import Estimate

SharedKey = tuple[int, str | None, str]  # job, method (None: all cases), score


class SharedQuestions(NamedTuple):
    """One score of one job on the `n` questions for which every job of the comparison has a value.

    `values` are its means per question, in an order that all jobs share; `scale` is what is declared of the score.
    """

    n: int
    estimate: Estimate
    values: NDArray[np.float64]
    scale: Mapping[str, Any]
    level: float


class _Table(NamedTuple):
    """The cases of a job and the files of their records."""

    records: Sequence[Path]
    samples: NDArray[Any]
    methods: NDArray[Any]


def shared_questions(runs: Mapping[int, tuple[Path, Mapping[str, Any]]]) -> dict[SharedKey, SharedQuestions]:
    """For each job, method and score the figures on the shared questions, over the means of its cases.

    `runs` are the folder and the `final/metrics.json` of each job that has results. Nothing for a score (of a method)
    that fewer than two jobs have. Raises DataError for tables that do not fit together.
    """
    tables = {number: _table(folder, metrics) for number, (folder, metrics) in runs.items()}
    names = dict.fromkeys(name for _, metrics in runs.values() for name in metrics["declared"])
    compared: dict[SharedKey, SharedQuestions] = {}
    for name in names:
        having = {number: metrics for number, (_, metrics) in runs.items() if name in metrics["declared"]}
        values = {number: _means(tables[number], name) for number in having}
        for method in _methods(having):
            compared |= _compared(name, method, having, tables, values)
    return compared


def _table(folder: Path, metrics: Mapping[str, Any]) -> _Table:
    records = [folder / f"iteration-{number}" / "records.parquet" for number in metrics["iterations"]]
    cases = cases_of(records)
    return _Table(records, *(np.array(cases.names[key].to_pylist()) for key in ("sample_id", "method")))


def _means(table: _Table, name: str) -> NDArray[np.float64]:
    """The mean of each case over the iterations; NaN where none has a value."""
    with open_records(table.records, [name]) as records:
        return repeats(records, name, len(table.samples)).means


def _methods(having: Mapping[int, Mapping[str, Any]]) -> Iterator[str | None]:
    yield None
    yield from dict.fromkeys(method for metrics in having.values() for method in metrics["by"].get("method", {}))


def _compared(
    name: str,
    method: str | None,
    having: Mapping[int, Mapping[str, Any]],
    tables: Mapping[int, _Table],
    values: Mapping[int, NDArray[np.float64]],
) -> dict[SharedKey, SharedQuestions]:
    places = {}
    for number in having:
        of_method = True if method is None else tables[number].methods == method
        measured = np.flatnonzero(~np.isnan(values[number]) & of_method)
        if len(measured):
            places[number] = measured
    if len(places) < 2:
        return {}
    common = reduce(np.intersect1d, (tables[number].samples[chosen] for number, chosen in places.items()))
    compared = {}
    for number, chosen in places.items():
        samples = tables[number].samples[chosen]
        here = np.isin(samples, common)
        codes = np.unique(samples[here], return_inverse=True)[1].astype(np.int64)
        metrics = having[number]
        estimate = estimate_of(values[number][chosen[here]], codes, metrics["declared"][name], metrics["scoring"]["level"])
        values_here, level = values[number][chosen[here]], metrics["scoring"]["level"]
        by_question = np.bincount(codes, weights=values_here) / np.maximum(np.bincount(codes), 1)
        compared[number, method, name] = SharedQuestions(len(common), estimate, by_question, metrics["declared"][name], level)
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
    ("shift_low", REAL, "lower end of that difference's interval; null for too few questions, and where no value differs"),
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
    ("n_error", WHOLE, "judgements with an error, over all iterations"),
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
    arguments: Sequence[str]
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
    """For each job the arguments that not all jobs share."""
    shared = set.intersection(*(set(job.arguments) for job in jobs)) if jobs else set()
    return [[argument for argument in job.arguments if argument not in shared] for job in jobs]


def iterations_note(job: Job, jobs: Sequence[Job]) -> str:
    """` for 2 iterations`, beside what a job cost, where the jobs have not all as many: its results are of all iterations of its folder,
    also of an earlier start's."""
    counts = {len(each.metrics["iterations"]) for each in jobs if each.metrics}
    if job.metrics is None or len(counts) < 2:
        return ""
    return f" for {plural(len(job.metrics['iterations']), 'iteration')}"


def comparison_rows(
    jobs: Sequence[Job], shared: Mapping[SharedKey, SharedQuestions] = _NOTHING, judgings: Mapping[int, OtherJudging] = _ONE_WAY
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
        "shared_mean": on_shared.estimate.value if on_shared else None,
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
        "overrides": " ".join(job.arguments),
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


class _PlacedJob(NamedTuple):
    """A job in one score: its row, its figures on the shared questions, and whether its coverage reaches the floor."""

    row: dict[str, Any]
    shared: SharedQuestions
    is_covered: bool

    @property
    def order(self) -> float:
        """Orders jobs from worst to best."""
        sign = 1 if self.shared.scale["higher_is_better"] else -1
        return sign * (self.shared.estimate.value or 0.0)


def set_standings(
    rows: Sequence[dict[str, Any]],
    shared: Mapping[SharedKey, SharedQuestions],
    floors: Mapping[int, float],
    figures: Collection[str],
) -> None:
    """Set `standing` and the differences from the highest job in the rows of `comparison.parquet`; `figures` are the columns that
    differ between jobs that are not equal.

    Jobs are ranked among those that were judged in the same way (`ranked_with`): elsewhere a higher mean is a more lenient judge as
    well as a better answer. `equal`: they have the same figures, so what was varied has no effect on this score. `behind`: worse than the highest
    by the verdict of `decide_difference` on the questions' means, with a p-value that holds for all pairs of jobs
    (Bonferroni): the highest of several is picked by chance too. `best`: all others are behind; else it and those that
    are not behind are `not_separable`. Scores without a scale (counts) and jobs that share no question have no standing, and
    so have those with a coverage under the floor (`floors`, by job): where one of them is not behind, no job is the best.
    """
    groups: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in rows:
        if row["mean"] is not None:
            groups.setdefault((row["method"], row["score"]), []).append(row)
    for group in groups.values():
        if all_equal(group, figures):
            ways = [group]
        else:
            ways = [[row for row in group if row["ranked_with"] == first] for first in _firsts(group)]
        for way in ways:
            if all_equal(way, figures):
                for row in way:
                    row["standing"] = "equal"
            else:
                _place(_placed_jobs(way, shared, floors))


def _firsts(group: Sequence[Mapping[str, Any]]) -> dict[int, None]:
    return dict.fromkeys(row["ranked_with"] for row in group)


def all_equal(group: Sequence[Mapping[str, Any]], figures: Collection[str]) -> bool:
    """Whether several jobs have the same figures."""
    return len(group) > 1 and all(row[name] == group[0][name] for row in group for name in figures)


def _placed_jobs(
    group: Sequence[dict[str, Any]], shared: Mapping[SharedKey, SharedQuestions], floors: Mapping[int, float]
) -> list[_PlacedJob]:
    """The jobs of a score that can be compared."""
    jobs = []
    for row in group:
        figures = shared.get((row["job"], row["method"], row["score"]))
        if figures is not None and figures.n and row["mean_score"] is not None:
            is_covered = row["coverage"] is None or row["coverage"] >= floors[row["job"]]
            jobs.append(_PlacedJob(row, figures, is_covered))
    return jobs


def _place(jobs: Sequence[_PlacedJob]) -> None:
    placed = [job for job in jobs if job.is_covered]
    if len(placed) < 2:
        return
    top = max(placed, key=lambda job: job.order)
    pairs = len(jobs) * (len(jobs) - 1) // 2
    top.row["to_best"] = 0.0
    is_behind = {}
    for job in jobs:
        if job is not top:
            verdict = _against(job, top)
            is_behind[job.row["job"]] = _holds_for_pairs(verdict, pairs, job.shared.level)
            job.row["to_best"] = verdict.paired.difference
            if interval := verdict.paired.interval:
                job.row.update(to_best_low=interval.low, to_best_high=interval.high)
    others = [job for job in placed if job is not top]
    near = [job for job in others if not is_behind[job.row["job"]]]
    rivals = [job for job in jobs if not job.is_covered and not is_behind[job.row["job"]]]
    for job in others:
        job.row["standing"] = "behind" if is_behind[job.row["job"]] else "not_separable"
    top.row["standing"] = "not_separable" if near else None if rivals else "best"


def _against(job: _PlacedJob, top: _PlacedJob) -> DifferenceVerdict:
    """The verdict on a job with the highest one as its base, one row per question."""
    low, high = job.shared.scale["low"], job.shared.scale["high"]
    return decide_difference(
        top.shared.values,
        job.shared.values,
        low=low,
        high=high,
        smallest_effect=SMALLEST_SHARE * (high - low),
        higher_is_better=job.shared.scale["higher_is_better"],
        level=job.shared.level,
    )


def _holds_for_pairs(verdict: DifferenceVerdict, pairs: int, level: float) -> bool:
    """Whether the job is worse, with a p-value that stands for so many pairs."""
    p_value = verdict.paired.p_value
    return verdict.state == "worse" and p_value is not None and p_value * pairs <= 1 - level
