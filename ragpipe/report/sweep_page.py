"""The comparison of the jobs of a sweep: a line per job when it ends, a table on the terminal, and the pages `comparison.md` and `.html`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ragpipe.comparison.run_differences import refused_parts
from ragpipe.core.usage import Usage
from ragpipe.report.job_comparison import Job, OtherJudging, job_labels
from ragpipe.report.model import (
    EVERYWHERE,
    PAGES,
    TERMINAL,
    Cell,
    Note,
    PageLink,
    Report,
    RunVerdict,
    ScoreCell,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.report.report_data import has_few_questions, valued_scores
from ragpipe.report.styled_text import bracketed, decimal, is_recorded, percentage, plural, price, whole
from ragpipe.score.normalisation import OVERALL

_Row = Mapping[str, Any]
_ONE_WAY: Mapping[int, OtherJudging] = {}
_LINKED = 8  # jobs whose reports the page leads to in its head
_ROWS = 16  # rows of the table; where jobs and methods are more, all methods together
_NO_CALL = "no call"
_STANDINGS = {
    "best": "best: question by question, every other job is worse than it by a paired difference whose interval excludes 0 and whose p-value "
    "stands for all pairs of jobs; and no job with a coverage under the floor may be as good.",
    "not_separable": "not separable: its paired difference from the highest mean is too small or too uncertain to be told from none.",
    "equal": "equal: all jobs, or all that were judged in the same way, have the same figures.",
}
_ALL = "All figures of all scores are in comparison.parquet in the same folder."
_PARTS = {
    "judge": "judges",
    "embedder": "embedders",
    "prompts": "prompts",
    "parser": "ways of reading replies",
    "metrics": "metrics' parameters",
}
_KEYS = 3  # keys that are named of what differs, and ways of judging
_ADVICE = (
    "a higher mean is no better answer there: task=compare says how far the judges lie apart on the same answers, task=calibrate holds "
    "each against labels by people"
)


def compared_scores(jobs: Sequence[Job]) -> list[str]:
    """The scores that a reader compares first: those with a weight or a threshold in any job, the overall score last.

    Where no score has either, all that are on a scale.
    """
    names: dict[str, bool] = {}
    for metrics in (job.metrics for job in jobs if job.metrics):
        scores, declared = metrics["overall"]["scores"], metrics["declared"]
        scaled = [name for name in scores if scores[name]["mean"] is not None and declared[name]["low"] is not None]
        weights = metrics["scoring"].get("weights_used", {})
        for name in scaled:
            names[name] = names.get(name, False) or name in weights or declared[name]["threshold"] is not None
    return sorted([name for name in names if names[name]] or names, key=lambda name: name == OVERALL.name)


def job_line(number: int, jobs: int, words: str, job: Job, seconds: float) -> str:
    """`job 2/4 judge=b: overall_score 0.71, 0 errors, 3.2 s`; for a job without results its state and the reason. `number`
    counts from 1 up to `jobs`; `words` are those of the job that not all share."""
    parts = [] if job.code == 0 else [job.state + (f" ({job.reason})" if job.reason else "")]
    if job.metrics is not None:
        for name in valued_scores(job.metrics)[:1]:
            parts.append(f"{name} {decimal(job.metrics['overall']['scores'][name]['mean'], 2)}")
        parts.append(plural(job.metrics["n_failed_judgements"], "error"))
    return f"job {number}/{jobs} {words}: {', '.join([*parts, f'{seconds:.1f} s'])}"


def sweep_section(jobs: Sequence[Job], rows: Sequence[_Row], judgings: Mapping[int, OtherJudging] = _ONE_WAY) -> Section | None:
    """A table per score that a reader compares first, and why jobs are not ranked with each other; the terminal has the first table, with
    the means of the other scores. `rows` are those of `comparison.parquet`, `judgings` the jobs that were judged otherwise
    than the first one. None without a score."""
    names = _ordered(compared_scores(jobs))
    if not names:
        return None
    labels = _short_labels(jobs)
    tables = [_score_table(jobs, rows, name, names[1:] if name == names[0] else None, labels) for name in names]
    more = [f"{plural(len(names) - 1, 'other score')} in comparison.html"] if names[1:] else []
    notes = (*_notes(names, rows, judgings, labels), *(Note(text, shown_in=TERMINAL) for text in more))
    return Section("scores", "", (*tables, *notes))


def sweep_report(
    jobs: Sequence[Job], rows: Sequence[_Row], words: Sequence[str], judgings: Mapping[int, OtherJudging] = _ONE_WAY
) -> Report:
    """The pages `comparison.md` and `comparison.html`: which job is best, the tables of `sweep_section`, then the jobs and how they ended."""
    heads = ("job", "overrides", "run", "state", "iterations", "calls", "price", "paid by the run", "reason")
    lines = []
    for job, label in zip(jobs, job_labels(jobs), strict=True):
        row = next(row for row in rows if row["job"] == job.number)
        counts = (_count(row[key]) for key in ("iterations", "calls_used"))
        spent = "-" if row["calls_spent"] is None else plural(row["calls_spent"], "call")
        texts = (Verbatim(" ".join(label)), Verbatim(row["run_id"] or "-"), job.state)
        lines.append((str(job.number), *texts, *counts, _cost(job, jobs), spent, Verbatim(job.reason or "-")))
    found = sweep_section(jobs, rows, judgings)
    reading = (Note(text) for state, text in _STANDINGS.items() if any(row["standing"] == state for row in rows))
    sections = (
        Section("scores", "Scores", (*found.parts, *reading, Note(_ALL))) if found else None,
        Section("jobs", "Jobs", (Note(Verbatim(" ".join(words))), Table.of(heads, lines, texts=4).told())),
    )
    links = (PageLink(f"report of job {job.number}", f"../../{job.folder.name}/report.html") for job in jobs if job.folder)
    return Report("Sweep", "", "", _answer(jobs, rows), (), tuple(filter(None, sections)), pages=tuple(islice(links, _LINKED)))


def _answer(jobs: Sequence[Job], rows: Sequence[_Row]) -> RunVerdict:
    """Which job is best by the score that a reader compares first, over all methods."""
    names, labels = _ordered(compared_scores(jobs)), _short_labels(jobs)
    shown = [row for row in rows if names and row["score"] == names[0] and row["method"] is None and row["mean"] is not None]
    if not shown:
        return RunVerdict("warn", "", f"none of {plural(len(jobs), 'job')} has a score")
    by = {state: [row for row in shown if row["standing"] == state] for state in ("best", "not_separable", "behind", "equal")}
    top = max(shown, key=lambda row: row["to_best"] == 0)
    figures = f" {top['mean']:.2f} {_bounds(top['interval_low'], top['interval_high'])}".rstrip()
    highest = (Verbatim(labels[top["job"]]), ": ", Verbatim(names[0]), figures)
    if len(by["best"]) == 1:
        return RunVerdict("good", "", ("best of ", plural(len(shown), "job"), ": ", *highest))
    if len(by["equal"]) == len(shown):
        return RunVerdict("plain", "", ("what was varied changes nothing in ", Verbatim(names[0]), f":{figures} in each job"))
    if by["not_separable"]:
        count = f"{len(by['not_separable']) - 1 if top['standing'] == 'not_separable' else len(by['not_separable'])}"
        return RunVerdict(
            "plain", "", ("no job is shown to be best: the highest is ", *highest, f", not separable from {count} more")
        )
    if len(shown) == 1:
        return RunVerdict("plain", "", (f"one of {plural(len(jobs), 'job')} has ", Verbatim(names[0]), ": nothing to rank"))
    return RunVerdict("plain", "", (plural(len(shown), "job"), " that are not ranked with each other by ", Verbatim(names[0])))


def _ordered(names: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: name != OVERALL.name)


def _score_table(
    jobs: Sequence[Job], rows: Sequence[_Row], name: str, further: Sequence[str] | None, labels: Mapping[int, str]
) -> Table:
    """A row per job, and per method where there are several. The table that a terminal shows has means of `further` scores."""
    shown = _rows_by_job(jobs, rows, name)
    by_key = {(row["job"], row["method"], row["score"]): row for row in rows}
    costs = {job.number: job.state if job.cost is None else _cost(job, jobs) for job in jobs}
    columns: list[tuple[TableColumn, Callable[[Job, bool, _Row], Cell]]] = [
        (TableColumn("job", is_text=True), lambda job, is_first, _: Verbatim(labels[job.number] if is_first else "")),
        (TableColumn("method", is_text=True), lambda _, __, row: Verbatim(row["method"] or "all")),
        (TableColumn(f"{name} [95%]"), lambda job, _, row: _mean(job, row)),
        (TableColumn("n"), lambda _, __, row: "-" if row["mean"] is None else whole(row["n_ok"])),
    ]

    def other_mean(other: str, job: Job, _: bool, row: _Row) -> Cell:
        return _mean(job, by_key.get((job.number, row["method"], other)), "")

    for place, other in enumerate(further or (), 3):
        columns.append((TableColumn(other, shown_in=TERMINAL, drop=place), partial(other_mean, other)))
    columns += [
        (TableColumn("on shared questions", shown_in=PAGES), lambda _, __, row: _on_shared(row)),
        (TableColumn("to the best", is_text=True, drop=1), lambda _, __, row: _to_best(row)),
        (TableColumn("standing", is_text=True), lambda _, __, row: (row["standing"] or "").replace("_", " ")),
        (TableColumn("passed", shown_in=PAGES), lambda _, __, row: percentage(row["pass_rate"])),
        (TableColumn("coverage", shown_in=PAGES), lambda _, __, row: percentage(row["coverage"])),
        (TableColumn("cost", drop=2, shown_in=TERMINAL), lambda job, is_first, _: costs[job.number] if is_first else ""),
    ]
    absent = {"method": not any(row["method"] for _, _, row in shown), "cost": set(costs.values()) == {_NO_CALL}}
    columns = [(column, cell) for column, cell in columns if not absent.get(str(column.head), False)]
    cells = (TableRow(tuple(cell(*place) for _, cell in columns)) for place in shown)
    where = PAGES if further is None else EVERYWHERE
    table = Table(tuple(column for column, _ in columns), tuple(cells), key_columns=2 - absent["method"], shown_in=where)
    return table.told()


def _rows_by_job(jobs: Sequence[Job], rows: Sequence[_Row], name: str) -> list[tuple[Job, bool, _Row]]:
    """Each row of the table with its job, and whether it is the first of that job. A job without the score has an empty row."""
    methods = [row for row in rows if row["score"] == name and row["method"] is not None]
    by_method = bool(methods) and len(methods) <= _ROWS
    chosen: list[tuple[Job, bool, _Row]] = []
    for job in jobs:
        own = [row for row in rows if row["job"] == job.number]
        shown = [row for row in own if row["score"] == name and (row["method"] is not None) is by_method]
        shown = shown or [dict.fromkeys(own[0]) | {"ranked_with": job.number}]
        chosen += [(job, place == 0, row) for place, row in enumerate(shown)]
    return chosen


def _mean(job: Job, row: _Row | None, interval: str | None = None) -> Cell:
    """The mean with its interval; one of too few questions says so, by what the job's figures say: the row has its bounds alone."""
    if row is None or row["mean"] is None or job.metrics is None:
        return "-"
    group = job.metrics["overall"] if row["method"] is None else job.metrics["by"]["method"][row["method"]]
    bounds = _bounds(row["interval_low"], row["interval_high"]) if interval is None else interval
    return ScoreCell(decimal(row["mean"], 2), bounds, few=has_few_questions(group["scores"][row["score"]]))


def _on_shared(row: _Row) -> str:
    """`19: 0.81 [0.66, 0.90]` where the mean is of other questions too: the standing uses these figures."""
    n, mean = row["n_shared"], row["shared_mean"]
    if n is None or (mean is not None and math.isclose(mean, row["mean"], rel_tol=1e-9, abs_tol=1e-12)):
        return "the same"
    return f"{whole(n)}: {mean:.2f} {_bounds(row['shared_low'], row['shared_high'])}".rstrip() if n else "none"


def _to_best(row: _Row) -> Cell:
    """This job less the highest one, question by question; empty for the highest itself, and for equal jobs."""
    if not row["to_best"]:
        return ""
    low, high = row["to_best_low"], row["to_best_high"]
    return ScoreCell(f"{row['to_best']:+.3f}", "" if low is None else f"[{low:+.3f}, {high:+.3f}]")


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None else bracketed({"low": low, "high": high})


def _count(value: int | None) -> str:
    return "-" if value is None else whole(value)


def _cost(job: Job, jobs: Sequence[Job]) -> str:
    """The price of the replies that the results use, and of how many iterations where the jobs have not all as many: results are of
    all iterations of a folder, also of an earlier start's."""
    if job.cost is None or job.metrics is None:
        return "-"
    used, spent = job.cost["total"]["used"], job.cost["total"]["spent"]
    if used["calls"] <= used["calls_computed"] or is_recorded(used, spent):
        return _NO_CALL
    counts = {len(each.metrics["iterations"]) for each in jobs if each.metrics}
    note = f" for {plural(len(job.metrics['iterations']), 'iteration')}" if len(counts) > 1 else ""
    return price(Usage.from_json(used)) + note


def _short_labels(jobs: Sequence[Job]) -> dict[int, str]:
    """For each job the words that not all share, without what stands before the last dot of a key where that is unique; its place
    where these are the same."""
    labels = job_labels(jobs)
    keys = {word.partition("=")[0] for words in labels for word in words}
    if len({key.rpartition(".")[2] for key in keys}) == len(keys):
        split = ([word.partition("=") for word in words] for words in labels)
        labels = [[key.rpartition(".")[2] + equals + value for key, equals, value in words] for words in split]
    texts = [" ".join(words) or "-" for words in labels]
    if len(set(texts)) < len(texts):
        texts = [f"{place}: {text}" for place, text in enumerate(texts, 1)]
    return {job.number: text for job, text in zip(jobs, texts, strict=True)}


def _notes(
    names: Sequence[str], rows: Sequence[_Row], judgings: Mapping[int, OtherJudging], labels: Mapping[int, str]
) -> Iterator[Note]:
    """Why not all jobs are ranked with each other, a line per way of judging; nothing where they are."""
    firsts = [number for number, judging in judgings.items() if judging.first == number]
    for number in firsts[:_KEYS]:
        judging = judgings[number]
        keys = [difference.line() for difference in judging.differences]
        more = f"; and {plural(len(keys) - _KEYS, 'more key')}" if len(keys) > _KEYS else ""
        parts = " and ".join(_PARTS[part] for part in refused_parts(judging.differences, ()))
        ends = (Verbatim(labels[number]), " is not ranked with ", Verbatim(labels[judging.base]))
        yield Note((*ends, f", the {parts} differ: ", Verbatim("; ".join(keys[:_KEYS]) + more)))
    if len(firsts) > _KEYS:
        yield Note(f"and {plural(len(firsts) - _KEYS, 'more way')} of judging")
    if firsts:
        yield Note(_ADVICE)
    for name in names:
        ways: dict[int | None, set[int]] = {}  # jobs that were judged in the same way, and yet are not ranked with each other
        for row in rows:
            if row["score"] == name and row["standing"] != "equal":
                way = judgings[row["job"]].first if row["job"] in judgings else None
                ways.setdefault(way, set()).add(row["ranked_with"])
        if any(len(ranked) > 1 for ranked in ways.values()):
            yield Note((Verbatim(name), " is not ranked across different weights: each job has its own"))
