"""A sweep's comparison as a table on the terminal and as a Markdown page. All words of jobs are text, never markup."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.job_comparison import Job, job_labels
from ragpipe.reports.markdown_text import code_span, markdown_table
from ragpipe.reports.number_format import bracketed, price, share_below_one, whole
from ragpipe.schema.usage import Usage

_WORD = 40  # characters of one word of a job on the terminal
_STANDINGS = {"best": "best", "not_separable": "not separable", "behind": "behind", "equal": "equal"}
_MARKS = {"best": " *", "not_separable": " ~"}
BEST = (
    "best: on the questions that the jobs share, its interval overlaps no other job's, and no job whose standing cannot be told (without an interval, or with a "
    "coverage under the floor) may be as good."
)
NEAR = (
    "not separable: its interval overlaps that of the highest mean, so that the difference may be chance. A comparison "
    "case by case can tell more than intervals can."
)


def compared_scores(jobs: Sequence[Job]) -> list[str]:
    """The scores that a reader compares first: those with a weight or a threshold, the overall score last.

    Where no score has either, all that are on a scale.
    """
    found: dict[str, bool] = {}
    for metrics in (job.metrics for job in jobs if job.metrics):
        weights = metrics.get("scoring", {}).get("weights_used", {})
        for name, score in metrics["overall"]["scores"].items():
            scale = metrics["declared"][name]
            if score["mean"] is not None and scale["low"] is not None:
                found[name] = found.get(name, False) or name in weights or scale["threshold"] is not None
    first = [name for name, wanted in found.items() if wanted] or list(found)
    return [name for name in first if name != "overall_score"] + [n for n in first if n == "overall_score"]


def comparison_lines(jobs: Sequence[Job], rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows for the terminal: jobs down, scores over all cases across, the cost last."""
    names = compared_scores(jobs)
    cells = {(row["job"], row["score"]): row for row in rows if row["method"] is None}
    lines = []
    for job, label in zip(jobs, job_labels(jobs), strict=True):
        words = [on_one_line(word, _WORD) for word in label] or ["-"]
        figures = ["\n".join(_figures(cells.get((job.number, name)))) for name in names]
        lines.append(["\n".join([f"{job.number}: {words[0]}", *words[1:]]), *figures, _cost(job)])
    return ["job", *names, "cost"], lines


def comparison_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the marks of the terminal's table mean, and where the methods stand."""
    standings = {row["standing"] for row in rows}
    notes = [f"* {BEST}"] if "best" in standings else []
    notes += [f"~ {NEAR}"] if "not_separable" in standings else []
    return notes + (["by method: see the page"] if any(row["method"] for row in rows) else [])


def comparison_markdown(jobs: Sequence[Job], rows: Sequence[Mapping[str, Any]], words: Sequence[str]) -> str:
    """The page: the jobs and how they ended, then a table for each score that a reader compares first."""
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
                *_prices(job),
                code_span(job.reason, 300),
            ]
        )
    parts = ["# Sweep", "", code_span(" ".join(words), 2000), "", "## Jobs", "", *markdown_table(heads, lines)]
    for name in compared_scores(jobs):
        parts += ["", f"## {code_span(name)}", "", *_section(name, rows)]
    more = "All figures of all scores stand in `comparison.parquet` beside this page."
    return (
        "\n".join(
            [
                *parts,
                "",
                "## How to read it",
                "",
                f"- {BEST}",
                f"- {NEAR}",
                "- equal: all jobs have the same figures; they stand there once.",
                "",
                more,
            ]
        )
        + "\n"
    )


def _section(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = [row for row in rows if row["score"] == name]
    if all(row["standing"] == "equal" for row in found):
        found = [{**row, "label": "all jobs"} for row in found if row["job"] == found[0]["job"]]
    several = any(row["method"] for row in found)
    heads = ["job", "overrides", *(["method"] if several else [])]
    heads += ["mean", "on shared questions", "standing", "passed", "coverage", "judgements", "flips"]
    lines = []
    for row in found:
        lines.append(
            [
                str(row["job"]),
                code_span(row["label"], 200),
                *([code_span(row["method"] or "all")] if several else []),
                f"{_number(row['mean'])} {bracketed(_bounds(row), places=3)}".rstrip(),
                ", ".join(_on_shared(row)) or "the same",
                _STANDINGS.get(row["standing"], "-"),
                _share(row["pass_rate"]),
                _share(row["coverage"]),
                whole(row["n_ok"]),
                _share(row["flip_share"]),
            ]
        )
    return markdown_table(heads, lines)


def _figures(row: Mapping[str, Any] | None) -> list[str]:
    """Mean, interval and a mark for the standing; pass rate and of how many, else how many; coverage where something
    failed."""
    if row is None or row["mean"] is None:
        return ["-"]
    first = f"{row['mean']:.2f} {bracketed(_bounds(row))}".rstrip() + _MARKS.get(row["standing"], "")
    rate = row["pass_rate"]
    second = f"{rate:.0%} of {whole(row['n_judged'])} passed" if rate is not None else f"n = {whole(row['n_ok'])}"
    coverage = row["coverage"]
    failed = [f"coverage {share_below_one(coverage)}"] if coverage is not None and coverage < 1 else []
    return [first, second, *failed, *_on_shared(row)]


def _on_shared(row: Mapping[str, Any]) -> list[str]:
    """`on 19 shared: 0.81 [0.66, 0.90]` where the mean is of other questions too: what the standing goes by."""
    if row["n_shared"] is None or _same(row["shared_mean"], row["mean"]):
        return []
    if not row["n_shared"]:
        return ["no shared question"]
    low, high = row["shared_low"], row["shared_high"]
    bounds = None if low is None else {"low": low, "high": high}
    return [f"on {whole(row['n_shared'])} shared: {row['shared_mean']:.2f} {bracketed(bounds)}".rstrip()]


def _same(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def _bounds(row: Mapping[str, Any]) -> dict[str, float] | None:
    low, high = row["interval_low"], row["interval_high"]
    return None if low is None else {"low": low, "high": high}


def _cost(job: Job) -> str:
    """Calls, price and what was asked in this folder; how the job ended when it did not end well."""
    if job.cost is None:
        return job.state
    used, spent = job.cost["total"]["used"], job.cost["total"]["spent"]
    lines = ["no call"]  # the embedded judge answers by itself, and some metrics ask nobody
    if used["calls"] > used["calls_computed"]:
        lines = [f"{whole(used['calls'])} calls", price(Usage.from_json(used))]
        lines += [f"{whole(spent['calls'])} paid by the run"] if spent.get("calls") is not None else []
    return "\n".join(lines if job.code == 0 else [*lines, job.state])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _count(value: int | None) -> str:
    return "-" if value is None else whole(value)


def _prices(job: Job) -> tuple[str, str]:
    """What the replies cost that the results rest on, and what this run's own processes paid."""
    if job.cost is None:
        return "-", "-"
    used, spent = job.cost["total"]["used"], job.cost["total"]["spent"]
    here = f"{whole(spent.get('calls') or 0)} calls"
    if spent.get("calls"):
        here += f", {price(Usage.from_json(spent))}"
    return price(Usage.from_json(used)), here
