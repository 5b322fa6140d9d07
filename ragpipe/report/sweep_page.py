"""The comparison of the jobs of a sweep: a line per job when it ends, one table of all jobs, and the page `comparison.md`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ragpipe.comparison.run_differences import refused_parts
from ragpipe.core.text import code_span, markdown_table
from ragpipe.core.usage import Usage
from ragpipe.report.job_comparison import FIGURES, Job, OtherJudging, all_equal, iterations_note, job_labels
from ragpipe.report.model import Cell, Note, ScoreCell, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.report.report_data import has_few_questions, valued_scores
from ragpipe.report.styled_text import bracketed, decimal, figure_text, is_recorded, percentage, plural, price, whole
from ragpipe.score.normalisation import OVERALL
from ragpipe.stats.intervals import FEW

_Row = Mapping[str, Any]
_ONE_WAY: Mapping[int, OtherJudging] = {}
_STANDINGS = {"best": "best", "not_separable": "not separable", "behind": "behind", "equal": "equal"}
_BEST = (
    "best: question by question, every other job is worse than it by a paired difference whose interval excludes 0 and whose p-value "
    "stands for all pairs of jobs; and no job with a coverage under the floor may be as good."
)
_NOT_SEPARABLE = (
    "not separable: its paired difference from the highest mean is too small or too uncertain to be told from none."
)


def compared_scores(jobs: Sequence[Job]) -> list[str]:
    """The scores that a reader compares first: those with a weight or a threshold, the overall score last.

    Where no score has either, all that are on a scale.
    """
    is_main: dict[str, bool] = {}
    for metrics in (job.metrics for job in jobs if job.metrics):
        for name, score in metrics["overall"]["scores"].items():
            if score["mean"] is not None and metrics["declared"][name]["low"] is not None:
                is_main[name] = is_main.get(name, False) or _has_weight_or_threshold(name, metrics)
    names = [name for name, main in is_main.items() if main] or list(is_main)
    return sorted(names, key=lambda name: name == "overall_score")


def _has_weight_or_threshold(name: str, metrics: Mapping[str, Any]) -> bool:
    weights = metrics.get("scoring", {}).get("weights_used", {})
    return name in weights or metrics["declared"][name]["threshold"] is not None


_ROWS = 16  # rows of the table; where jobs and methods are more, all methods together
_NO_CALL = "no call"


def job_line(number: int, jobs: int, words: str, job: Job, seconds: float) -> str:
    """`job 2/4 judge=b: overall_score 0.71, 0 errors, 3.2 s`; for a job without results its state and the reason.

    Args:
        number: its place in the sweep, from 1.
        jobs: how many jobs the sweep has.
        words: the words of the job that not all share.
        job: how it ended.
        seconds: how long it took.
    """
    parts = [] if job.code == 0 else [job.state + (f" ({job.reason})" if job.reason else "")]
    if job.metrics is not None:
        for name in valued_scores(job.metrics)[:1]:
            parts.append(f"{name} {decimal(job.metrics['overall']['scores'][name]['mean'], 2)}")
        parts.append(plural(job.metrics["n_failed_judgements"], "error"))
    return f"job {number}/{jobs} {words}: {', '.join([*parts, f'{seconds:.1f} s'])}"


def sweep_section(
    jobs: Sequence[Job], rows: Sequence[Mapping[str, Any]], judgings: Mapping[int, OtherJudging] = _ONE_WAY
) -> Section | None:
    """One table for the terminal: a row per job, and per method where there are several, and below it why jobs are not ranked with each
    other; None without a score. `rows` are those of `comparison.parquet`, `judgings` the jobs that were judged otherwise than the
    first one."""
    names = compared_scores(jobs)
    if not names:
        return None
    first = OVERALL.name if OVERALL.name in names else names[0]
    further = [name for name in names if name != first]
    by_job, labels = _rows_by_job(jobs, rows, first), _short_labels(jobs)
    one_way = not judgings and not weights_differ(first, rows, judgings)
    costs = {job.number: _cost(job, iterations_note(job, jobs)) for job in jobs}
    has_methods = any(row["method"] for _, _, row in by_job)
    columns: list[tuple[TableColumn, Callable[[Job, bool, _Row], Cell]]] = [
        (TableColumn("job", is_text=True), lambda job, is_first, _: Verbatim(labels[job.number] if is_first else "")),
        (TableColumn("method", is_text=True), lambda _, __, row: Verbatim(row["method"] or "all")),
        (TableColumn(f"{first} [95%]"), lambda job, _, row: _mean(job, row)),
        (TableColumn("n"), lambda _, __, row: "-" if row["mean"] is None else whole(row["n_ok"])),
        *((TableColumn(name, drop=2 + place), partial(_further, rows, name)) for place, name in enumerate(further, 1)),
        (TableColumn("to the best", is_text=True, drop=1), lambda _, __, row: _to_the_best(row)),
        (TableColumn("standing", is_text=True), lambda _, __, row: (row["standing"] or "").replace("_", " ")),
        (TableColumn("cost", drop=2), lambda job, is_first, _: costs[job.number] if is_first else ""),
    ]
    absent = {
        "method": not has_methods,
        "to the best": not any(row["to_best"] for _, _, row in by_job),
        "standing": not one_way and all(row["standing"] is None for _, _, row in by_job),
        "cost": set(costs.values()) == {_NO_CALL},
    }
    columns = [(column, cell) for column, cell in columns if not absent.get(str(column.head), False)]
    cells = (TableRow(tuple(cell(*place) for _, cell in columns)) for place in by_job)
    table = Table(tuple(column for column, _ in columns), tuple(cells), key_columns=1 + has_methods)
    more = [f"{plural(len(further), 'other score')} in comparison.md"] if further else []
    notes = [*judging_lines(first, rows, judgings, labels), *more]
    return Section("sweep", "", (table, *(Note(Verbatim(text)) for text in notes)))


def _rows_by_job(jobs: Sequence[Job], rows: Sequence[_Row], name: str) -> list[tuple[Job, bool, _Row]]:
    """Each row of the table with its job, and whether it is the first of that job. A job without the score has an empty row."""
    methods = [row for row in rows if row["score"] == name and row["method"] is not None]
    by_method = bool(methods) and len(methods) <= _ROWS
    chosen: list[tuple[Job, bool, _Row]] = []
    for job in jobs:
        own = [row for row in rows if row["job"] == job.number]
        shown = [row for row in own if row["score"] == name and (row["method"] is not None) is by_method]
        shown = shown or [{**own[0], "method": None, "mean": None, "to_best": None, "standing": None}]
        chosen += [(job, place == 0, row) for place, row in enumerate(shown)]
    return chosen


def _mean(job: Job, row: _Row) -> Cell:
    """The mean with its interval; one of too few questions says so, by what the job's figures say: the row has its bounds alone."""
    if row["mean"] is None or job.metrics is None:
        return "-"
    group = job.metrics["overall"] if row["method"] is None else job.metrics["by"]["method"][row["method"]]
    return ScoreCell(decimal(row["mean"], 2), bracketed(_bounds(row)), few=has_few_questions(group["scores"][row["score"]]))


def _further(rows: Sequence[_Row], name: str, job: Job, _: bool, row: _Row) -> Cell:
    key = (job.number, row["method"], name)
    found = next((each for each in rows if (each["job"], each["method"], each["score"]) == key), None)
    return replace(cell, interval="") if found and isinstance(cell := _mean(job, found), ScoreCell) else "-"


def _to_the_best(row: _Row) -> Cell:
    """This job less the highest one, question by question; empty for the highest itself, and for equal jobs."""
    difference, _, bounds = _to_best(row).partition(" ")
    return ScoreCell(difference, bounds) if row["to_best"] else ""


def _cost(job: Job, note: str) -> str:
    """The price of the replies that the results use, with a note on their iterations; the state of a job without results."""
    if job.cost is None:
        return job.state
    used, spent = job.cost["total"]["used"], job.cost["total"]["spent"]
    has_price = used["calls"] > used["calls_computed"] and not is_recorded(used, spent)
    return price(Usage.from_json(used)) + note if has_price else _NO_CALL


def _short_labels(jobs: Sequence[Job]) -> dict[int, str]:
    """For each job the words that not all share, without what stands before the last dot of a key where that is unique; its place
    where these are the same."""
    labels = job_labels(jobs)
    keys = {word.partition("=")[0] for words in labels for word in words}
    shortened = len({key.rpartition(".")[2] for key in keys}) == len(keys)
    texts = [" ".join(_without_path(word) if shortened else word for word in words) or "-" for words in labels]
    if len(set(texts)) < len(texts):
        texts = [f"{place}: {text}" for place, text in enumerate(texts, 1)]
    return {job.number: text for job, text in zip(jobs, texts, strict=True)}


def _without_path(word: str) -> str:
    key, equals, value = word.partition("=")
    return key.rpartition(".")[2] + equals + value


def comparison_markdown(
    jobs: Sequence[Job],
    rows: Sequence[Mapping[str, Any]],
    words: Sequence[str],
    judgings: Mapping[int, OtherJudging] = _ONE_WAY,
) -> str:
    """The page: the jobs and how they ended, which were judged otherwise, then a table per score that a reader compares first."""
    heads = ["job", "overrides", "run", "state", "iterations", "calls", "price", "paid by the run", "reason"]
    lines = []
    for job, label in zip(jobs, job_labels(jobs), strict=True):
        row = next(row for row in rows if row["job"] == job.number)
        lines.append(
            [
                str(job.number),
                code_span(" ".join(label), 400),
                code_span(row["run_id"] or "-"),
                job.state,
                _count(row["iterations"]),
                _count(row["calls_used"]),
                *_prices(job, iterations_note(job, jobs)),
                code_span(job.reason, 300),
            ]
        )
    parts = ["# Sweep", "", code_span(" ".join(words), 2000), "", "## Jobs", "", *_table(heads, lines)]
    parts += _judged_otherwise(judgings)
    for name in compared_scores(jobs):
        parts += ["", f"## {code_span(name)}", "", *_section(name, rows)]
        if weights_differ(name, rows, judgings):
            parts += ["", "Not ranked across different weights: each job has its own."]
    more = "All figures of all scores are in `comparison.parquet` in the same folder."
    return (
        "\n".join(
            [
                *parts,
                "",
                "## How to read it",
                "",
                f"- {_BEST}",
                f"- {_NOT_SEPARABLE}",
                "- equal: all jobs, or all that were judged in the same way, have the same figures. Those of all jobs are listed once.",
                "",
                more,
            ]
        )
        + "\n"
    )


def _judged_otherwise(judgings: Mapping[int, OtherJudging]) -> list[str]:
    """Which jobs were judged otherwise than the first one, and in what; nothing where none was."""
    if not judgings:
        return []
    lines = ["", "## Judged otherwise", ""]
    for first, judging in judgings.items():
        if judging.first == first:
            alike = [str(number) for number, other in judgings.items() if other.first == first]
            jobs = f"job{'s' if len(alike) > 1 else ''} {', '.join(alike)}"
            lines.append(
                f"- {jobs}, from job {judging.base}: the {differing_parts(judging)} differ: {code_span(differing_keys(judging), 400)}"
            )
    return [
        *lines,
        "",
        "Jobs are ranked among those that were judged in the same way alone. *Judging alone* is the difference of a job from one that was judged otherwise, "
        f"on the same answers; {ADVICE}.",
    ]


def _section(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of one score: a row per job and method; one for all jobs where their figures are equal."""
    score_rows = [row for row in rows if row["score"] == name]
    by_method = [[row for row in score_rows if row["method"] == method] for method in _methods(score_rows)]
    if all(all_equal(group, FIGURES) for group in by_method):
        first = score_rows[0]["job"]
        score_rows = [{**row, "label": "all jobs"} for row in score_rows if row["job"] == first]
    several = any(row["method"] for row in score_rows)
    shifted = any(row["shift"] is not None for row in score_rows)
    heads = ["job", "words", *(["method"] if several else []), *_SECTION_HEADS, *(["judging alone"] if shifted else [])]
    return _table(heads, [_section_row(row, several, shifted) for row in score_rows])


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table with its words aligned left and its figures right."""
    return markdown_table(heads, lines, left=[place for place, head in enumerate(heads) if head in _TEXT_HEADS])


def _methods(rows: Sequence[Mapping[str, Any]]) -> list[str | None]:
    return list(dict.fromkeys(row["method"] for row in rows))


_TEXT_HEADS = frozenset({"job", "overrides", "run", "state", "reason", "words", "method", "standing"})
"""The columns of both tables that hold words, or the number of a job: they are read from the left."""
_SECTION_HEADS = ("mean", "on shared questions", "to the highest", "standing", "passed", "coverage", "judgements", "flips")


def _section_row(row: Mapping[str, Any], with_method: bool, with_shift: bool) -> list[str]:
    shift = f"{shift_text(row)} from job {row['shift_from']}" if row["shift"] is not None else "-"
    return [
        str(row["job"]),
        code_span(row["label"], 200),
        *([code_span(row["method"] or "all")] if with_method else []),
        f"{_number(row['mean'])} {bracketed(_bounds(row), places=3)}".rstrip(),
        ", ".join(_on_shared(row)) or "the same",
        _to_best(row),
        _STANDINGS.get(row["standing"], "-"),
        percentage(row["pass_rate"]),
        percentage(row["coverage"]),
        whole(row["n_ok"]),
        percentage(row["flip_rate"]),
        *([shift] if with_shift else []),
    ]


def _on_shared(row: Mapping[str, Any]) -> list[str]:
    """`on 19 shared: 0.81 [0.66, 0.90]` where the mean is of other questions too: the standing uses these figures."""
    if row["n_shared"] is None or _same(row["shared_mean"], row["mean"]):
        return []
    if not row["n_shared"]:
        return ["no shared question"]
    low, high = row["shared_low"], row["shared_high"]
    bounds = None if low is None else {"low": low, "high": high}
    return [f"on {whole(row['n_shared'])} shared: {row['shared_mean']:.2f} {bracketed(bounds)}".rstrip()]


def _to_best(row: Mapping[str, Any]) -> str:
    """`-0.120 [-0.180, -0.060]`: this job less the highest one."""
    if row["to_best"] is None:
        return "-"
    low, high = row["to_best_low"], row["to_best_high"]
    bounds = "" if low is None else f" [{low:+.3f}, {high:+.3f}]"
    return f"{row['to_best']:+.3f}{bounds}"


def _same(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)


def _bounds(row: Mapping[str, Any]) -> dict[str, float] | None:
    low, high = row["interval_low"], row["interval_high"]
    return None if low is None else {"low": low, "high": high}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _count(value: int | None) -> str:
    return "-" if value is None else whole(value)


def _prices(job: Job, note: str) -> tuple[str, str]:
    """The price of the replies that the results use, and what the processes of this run paid."""
    if job.cost is None:
        return "-", "-"
    used, spent = job.cost["total"]["used"], job.cost["total"]["spent"]
    here = f"{whole(spent.get('calls') or 0)} calls"
    if spent.get("calls"):
        here += f", {price(Usage.from_json(spent))}"
    return "no call" if is_recorded(used, spent) else price(Usage.from_json(used)) + note, here


_PARTS = {
    "judge": "judges",
    "embedder": "embedders",
    "prompts": "prompts",
    "parser": "ways of reading replies",
    "metrics": "metrics' parameters",
}
_KEYS = 3  # keys that are named of what differs
_WAYS = 3  # ways of judging that are named
ADVICE = "a higher mean is no better answer there: task=calibrate holds each way of judging against labels by people"


def judging_lines(
    name: str, rows: Sequence[_Row], judgings: Mapping[int, OtherJudging], labels: Mapping[int, str]
) -> Iterator[str]:
    """Why not all jobs are ranked with each other in a score, a line per way of judging; nothing where they are.

    Args:
        name: the score.
        rows: those of `comparison.parquet`.
        judgings: the jobs that were judged otherwise than the first one.
        labels: what each job is called.
    """
    firsts = [number for number, judging in judgings.items() if judging.first == number]
    for number in firsts[:_WAYS]:
        yield f"{labels[number]} is not ranked with {labels[judgings[number].base]}: {differing_keys(judgings[number])}"
        row = _row(rows, number, name)
        if row and row["shift"]:
            shift = shift_text(row)
            yield f"{name}: on the same answers the {differing_parts(judgings[number])} differ by {shift}"
    if len(firsts) > _WAYS:
        yield f"and {plural(len(firsts) - _WAYS, 'more way')} of judging in comparison.md"
    if firsts:
        yield ADVICE
    if weights_differ(name, rows, judgings):
        yield f"{name} is not ranked across different weights: each job has its own"


def differing_keys(judging: OtherJudging) -> str:
    """`judge.threshold: 0.33 -> 0.5`: the first keys that differ."""
    keys = [difference.line() for difference in judging.differences]
    more = f"; and {plural(len(keys) - _KEYS, 'more key')}" if len(keys) > _KEYS else ""
    return "; ".join(keys[:_KEYS]) + more


def differing_parts(judging: OtherJudging) -> str:
    """`judges and prompts`."""
    return " and ".join(_PARTS[part] for part in refused_parts(judging.differences, ()))


def shift_text(row: _Row) -> str:
    """`-0.125 [-0.464, +0.264] (n = 20)`: the shift of a row that has one."""
    text = figure_text(row["shift"], sign=True)
    if row["shift_low"] is not None:
        text += f" [{figure_text(row['shift_low'], sign=True)}, {figure_text(row['shift_high'], sign=True)}]"
    return f"{text} (n = {whole(row['shift_n'])}{': too few' if row['shift_n'] < FEW else ''})"


def weights_differ(name: str, rows: Sequence[_Row], judgings: Mapping[int, OtherJudging]) -> bool:
    """Whether jobs that were judged in the same way are not ranked with each other, for their weights differ."""
    ways: dict[int | None, set[int]] = {}
    for row in rows:
        if row["score"] == name and row["standing"] != "equal":
            way = judgings[row["job"]].first if row["job"] in judgings else None
            ways.setdefault(way, set()).add(row["ranked_with"])
    return any(len(firsts) > 1 for firsts in ways.values())


def _row(rows: Sequence[_Row], number: int, name: str) -> _Row | None:
    key = (number, None, name)
    return next((row for row in rows if (row["job"], row["method"], row["score"]) == key), None)
