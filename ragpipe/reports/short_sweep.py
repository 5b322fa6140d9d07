"""A sweep on a terminal in short (`report.detail=short`): a line per job when it ends, then one table of all jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.reports.comparison_page import compared_scores, judging_lines, weights_differ
from ragpipe.reports.job_comparison import Job, OtherJudging, iterations_note, job_labels
from ragpipe.reports.metrics_view import has_few_questions
from ragpipe.reports.number_format import bracketed, decimal, is_recorded, plural, price, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.short_report import each_kind_once, warnings_of
from ragpipe.reports.short_scores import VERDICT_STYLES, scores_by_importance
from ragpipe.reports.styled_text import (
    Grey,
    Head,
    Line,
    Screen,
    cut_apart,
    narrowed,
    table_columns,
    table_lines,
    wrapped,
)
from ragpipe.schema.usage import Usage
from ragpipe.scoring.composites import OVERALL

_ONE_WAY: Mapping[int, OtherJudging] = {}
_ROWS = 16  # rows of the table; where jobs and methods are more, all methods together
_NAME = 40  # columns of the name of a score
_NO_CALL = "no call"
_FURTHER = 2  # scores beside the first one
_LABEL_WIDTHS = (40, 28, 16, 12)  # columns of the words of a job, tried in turn
_LAYOUTS = tuple(
    (interval, bounds, further)
    for interval, bounds in ((True, True), (False, True), (False, False))
    for further in range(_FURTHER, -1, -1)
)  # whether the mean and the difference have their intervals, and how many further scores; tried in turn
_Row = Mapping[str, Any]


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
        if names := scores_by_importance(job.metrics):
            parts.append(f"{names[0]} {decimal(job.metrics['overall']['scores'][names[0]]['mean'], 2)}")
        parts.append(plural(job.metrics["n_failed_judgements"], "error"))
    return f"job {number}/{jobs} {words}: {', '.join([*parts, f'{seconds:.1f} s'])}"


def sweep_lines(
    jobs: Sequence[Job], rows: Sequence[_Row], screen: Screen, judgings: Mapping[int, OtherJudging] = _ONE_WAY
) -> list[Line]:
    """One table: a row per job, and per method where there are several, and below it why jobs are not ranked with each other; nothing
    without a score. `rows` are those of `comparison.parquet`, `judgings` the jobs that were judged otherwise than the first one."""
    names = compared_scores(jobs)
    if not names:
        return []
    first = OVERALL.name if OVERALL.name in names else names[0]
    further = [name for name in names if name != first]
    by_job = _rows_by_job(jobs, rows, first)
    has_methods = any(row["method"] for _, _, row in by_job)
    one_way = not judgings and not weights_differ(first, rows, judgings)
    shown = ["to_best"] if any(_to_best(row, bounds=False) for _, _, row in by_job) else []
    shown += ["standing"] if one_way or any(row["standing"] is not None for _, _, row in by_job) else []
    table = _Table(jobs, rows, by_job, first, further, has_methods, shown, screen)
    labels = {number: screen.text(words, _NAME) for number, words in _short_labels(jobs).items()}
    notes = [
        line
        for text in judging_lines(first, rows, judgings, labels)
        for line in wrapped((screen.text(text),), screen.columns)
    ]
    grid: list[list[str]] = []
    for width in _LABEL_WIDTHS:
        for interval, bounds, count in _LAYOUTS:
            grid = table.grid(width, interval=interval, bounds=bounds, count=count)
            if table_columns(grid) <= screen.columns:
                return [*table.lines(grid), *notes, *_left_out(first, further[count:], screen)]
    return [
        *table.lines(narrowed(grid, ("cost", "to the best"), screen.columns)),
        *notes,
        *_left_out(first, further, screen),
    ]


def _left_out(first: str, names: Sequence[str], screen: Screen) -> list[Line]:
    """How many scores the table does not show; nothing for none."""
    if not names:
        return []
    words = f"compared by {screen.text(first, _NAME)}; {plural(len(names), 'other score')} in comparison.md"
    return wrapped((Grey(words),), screen.columns)


@dataclass(frozen=True)
class _Table:
    """The cells of the table: `by_job` are its rows, `first` and `further` its scores; `shown` are
    those of the columns `to_best` and `standing` that it has."""

    jobs: Sequence[Job]
    rows: Sequence[_Row]
    by_job: Sequence[tuple[Job, bool, _Row]]
    first: str
    further: Sequence[str]
    has_methods: bool
    shown: Sequence[str]
    screen: Screen

    def grid(self, width: int, *, interval: bool, bounds: bool, count: int) -> list[list[str]]:
        """The rows, heads first, with names of at most `width` columns and `count` further scores."""
        labels = self._labels(width)
        costs = {job.number: _cost(job, iterations_note(job, self.jobs)) for job in self.jobs}
        has_costs = set(costs.values()) != {_NO_CALL}
        heads = ["job", *(["method"] if self.has_methods else []), self.first, "n", *self.further[:count]]
        heads += [*(name.replace("to_", "to the ") for name in self.shown), *(["cost"] if has_costs else [])]
        grid = [[self.screen.text(head, _NAME) for head in heads]]
        names = list(dict.fromkeys(row["method"] for _, _, row in self.by_job))
        methods = dict(zip(names, cut_apart([self.screen.text(name or "all") for name in names], width), strict=True))
        for job, is_first_row, row in self.by_job:
            cells = [labels[job.number] if is_first_row else ""]
            method = methods[row["method"]]
            cells += [method] if self.has_methods else []
            others = [_mean(job, _row_of(self.rows, job, row["method"], name)) for name in self.further[:count]]
            cells += [_mean(job, row, interval=interval), "-" if row["mean"] is None else whole(row["n_ok"]), *others]
            standing = {"to_best": _to_best(row, bounds=bounds), "standing": _standing(row)}
            cells += [standing[name] for name in self.shown]
            grid.append([*cells, *([costs[job.number] if is_first_row else ""] if has_costs else [])])
        return grid

    def _labels(self, width: int) -> dict[int, str]:
        """The words of each job."""
        words_of = {number: self.screen.text(words) for number, words in _short_labels(self.jobs).items()}
        labels = dict(zip(words_of, cut_apart(list(words_of.values()), width), strict=True))
        if len(set(labels.values())) == len(labels):
            return labels
        return {number: f"{place}: {words}" for place, (number, words) in enumerate(labels.items(), 1)}

    @staticmethod
    def lines(grid: list[list[str]]) -> list[Line]:
        """The grid as lines, its heads bold."""
        heads, *rows = grid
        left = [place for place, head in enumerate(heads) if head in ("job", "method", "to the best", "standing")]
        return table_lines([[Head(head) for head in heads], *rows], left=left)


def sweep_warnings(jobs: Sequence[Job], texts: Sequence[str]) -> list[str]:
    """What the jobs warn of, each kind once: `texts`, printed by the jobs themselves, and the warnings of their runs."""
    of_runs = [
        warning
        for job in jobs
        if job.metrics is not None and job.cost is not None
        for warning in warnings_of(ReportData(job.metrics, {**job.cost["total"]}))
    ]
    kinds = {text: kind for kind, text in of_runs}
    return each_kind_once([*((kinds.get(text, text), text) for text in texts), *of_runs])


def _rows_by_job(jobs: Sequence[Job], rows: Sequence[_Row], name: str) -> list[tuple[Job, bool, _Row]]:
    """Each row of the table with its job, and whether it is the first of that job. A job without the score has an empty row."""
    methods = [row for row in rows if row["score"] == name and row["method"] is not None]
    by_method = bool(methods) and len(methods) <= _ROWS
    chosen: list[tuple[Job, bool, _Row]] = []
    for job in jobs:
        own = list(_own_rows(rows, job, name, by_method=by_method))
        own = own or [next(row for row in rows if row["job"] == job.number and row["method"] is None)]
        if own[0]["score"] != name:
            own = [{**own[0], "mean": None, "to_best": None, "standing": None}]
        chosen += [(job, place == 0, row) for place, row in enumerate(own)]
    return chosen


def _own_rows(rows: Sequence[_Row], job: Job, name: str, *, by_method: bool) -> Iterator[_Row]:
    for row in rows:
        if row["job"] == job.number and row["score"] == name and (row["method"] is not None) is by_method:
            yield row


def _row_of(rows: Sequence[_Row], job: Job, method: str | None, name: str) -> _Row | None:
    key = (job.number, method, name)
    return next((row for row in rows if (row["job"], row["method"], row["score"]) == key), None)


def _mean(job: Job, row: _Row | None, *, interval: bool = False) -> str:
    """`0.71 [0.60, 0.80]`; a mean of too few questions says so at every width, as in the table of a run."""
    if row is None or row["mean"] is None:
        return "-"
    if _is_of_few_questions(job, row):
        return Grey(f"{decimal(row['mean'], 2)} too few")
    bounds = None if row["interval_low"] is None else {"low": row["interval_low"], "high": row["interval_high"]}
    return f"{decimal(row['mean'], 2)} {bracketed(bounds) if interval else ''}".rstrip()


def _is_of_few_questions(job: Job, row: _Row) -> bool:
    """What the job's figures say of a row's mean; the row has its bounds alone."""
    if job.metrics is None:
        return False
    group = job.metrics["overall"] if row["method"] is None else job.metrics["by"]["method"][row["method"]]
    return has_few_questions(group["scores"][row["score"]])


def _to_best(row: _Row, *, bounds: bool) -> str:
    """This job less the highest one, question by question; empty for the highest itself, and for equal jobs."""
    if not row["to_best"]:
        return ""
    low, high = row["to_best_low"], row["to_best_high"]
    return f"{row['to_best']:+.3f}" + (f" [{low:+.3f}, {high:+.3f}]" if bounds and low is not None else "")


def _standing(row: _Row) -> str:
    standing = row["standing"] or ""
    return VERDICT_STYLES.get(standing, str)(standing.replace("_", " "))


def _cost(job: Job, note: str) -> str:
    """The price of the replies that the results use, with a note on their iterations; the state of a job without results."""
    if job.cost is None:
        return job.state
    used, spent = job.cost["total"]["used"], job.cost["total"]["spent"]
    has_price = used["calls"] > used["calls_computed"] and not is_recorded(used, spent)
    return price(Usage.from_json(used)) + note if has_price else _NO_CALL


def _short_labels(jobs: Sequence[Job]) -> dict[int, str]:
    """For each job the words that not all share, without what stands before the last dot of a key where that is unique."""
    labels = job_labels(jobs)
    keys = {word.partition("=")[0] for words in labels for word in words}
    last = [key.rpartition(".")[2] for key in keys]
    shortened = len(set(last)) == len(last)
    return {
        job.number: " ".join(_without_path(word) if shortened else word for word in words) or "-"
        for job, words in zip(jobs, labels, strict=True)
    }


def _without_path(word: str) -> str:
    key, equals, value = word.partition("=")
    return key.rpartition(".")[2] + equals + value
