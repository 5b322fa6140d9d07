"""A history for people: the newest run of each score beside the run before and the first, and the way of its mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.safe_text import code_span, markdown_table, on_one_line
from ragpipe.reports.comparison_summary import UNDECIDED, UNUSABLE
from ragpipe.reports.number_format import plural, whole
from ragpipe.scoring.composites import OVERALL

Row = Mapping[str, Any]
NEWEST_HEADS = ("score", "runs", "mean [95%]", "against the run before", "against the first", "noise floor")
NOTE = (
    "against: paired difference over the cases of both runs, with its clustered 95% interval; only runs that measured the score in the "
    "same way count. noise floor: what the judge alone changes between two runs, known from several iterations."
)
_MEANS_SHOWN = 12
_NAME = 60  # characters of a score's name


def newest_rows(rows: Sequence[Row], *, headline_only: bool = False) -> list[list[str]]:
    """A row per score of the newest run, the headline first. `runs` are those of its series."""
    newest = [row for row in rows if row["run_id"] == rows[-1]["run_id"]]
    shown = sorted(newest, key=lambda row: (not row["headline"], row["score"] != OVERALL.name))
    return [_newest_row(row, rows) for row in shown if row["headline"] or not headline_only]


def _newest_row(row: Row, rows: Sequence[Row]) -> list[str]:
    return [
        on_one_line(row["score"], _NAME),
        whole(len(_series(row, rows))),
        _mean(row),
        _change(row, "before"),
        _change(row, "first"),
        "-" if row["noise_floor"] is None else f"{row['noise_floor']:.3f}",
    ]


def _series(row: Row, rows: Sequence[Row]) -> list[Row]:
    return [other for other in rows if other["score"] == row["score"] and other["series"] == row["series"]]


def _mean(row: Row) -> str:
    if row["mean"] is None:
        return "-"
    bounds = f" [{row['interval_low']:.3f}, {row['interval_high']:.3f}]" if row["interval_low"] is not None else ""
    return f"{row['mean']:.3f}{bounds}"


def _change(row: Row, prefix: str) -> str:
    """`+0.043 [+0.012, +0.074] better`; `-` where there is no such run."""
    difference, low, state = row[f"{prefix}_difference"], row[f"{prefix}_low"], row[f"{prefix}_state"]
    if difference is None:
        return "-"
    bounds = f" [{low:+.3f}, {row[f'{prefix}_high']:+.3f}]" if low is not None else ""
    return f"{difference:+.3f}{bounds} {state}"


def history_headline(rows: Sequence[Row]) -> str:
    """One line: which headline scores of the newest run became better or worse than in the run before."""
    newest = [row for row in rows if row["run_id"] == rows[-1]["run_id"] and row["headline"]]
    runs = plural(len({row["run_id"] for row in rows}), "run")
    compared = [row for row in newest if row["before_state"] is not None]
    if not compared:
        return f"{runs}; the newest, {rows[-1]['run_id']}, has no earlier run that measured a headline score in the same way"
    parts = [
        f"{state}: {', '.join(on_one_line(row['score'], _NAME) for row in compared if row['before_state'] == state)}"
        for state in ("worse", "better")
        if any(row["before_state"] == state for row in compared)
    ]
    parts += [
        f"{on_one_line(row['score'], _NAME)}: {UNDECIDED[row['before_reason']]}"
        for row in compared
        if row["before_reason"] in UNUSABLE
    ]
    return f"{runs}; the newest, {rows[-1]['run_id']}, against the run before: " + (
        "; ".join(parts) or "no verdict of a change"
    )


def history_markdown(name: str, rows: Sequence[Row]) -> str:
    """The page `history.md`."""
    newest = [[code_span(row[0]), *row[1:]] for row in newest_rows(rows)]
    lines = [
        f"# History of {code_span(name)}",
        "",
        f"{history_headline(rows)}.",
        "",
        *markdown_table(NEWEST_HEADS, newest),
        "",
        NOTE,
        "",
        "## Runs",
        "",
        *markdown_table(("run", "created", "judge", "data", "cases", "iterations"), _runs(rows), left=(0, 1, 2, 3)),
        "",
        f"## The way of each headline score (the last {_MEANS_SHOWN} runs)",
        "",
        "Each part of a line is a series: after ` / ` judge, prompts, metric or data are not what they were.",
        "",
        *_ways(rows),
    ]
    return "\n".join(lines) + "\n"


def _runs(rows: Sequence[Row]) -> list[list[str]]:
    runs = {row["run_id"]: row for row in rows}.values()
    return [
        [
            code_span(row["run_id"]),
            row["created_at"][:16].replace("T", " "),
            code_span(row["judge"]),
            code_span(row["data"]),
            whole(row["n_cases"]),
            whole(row["iterations"]),
        ]
        for row in runs
    ]


def _ways(rows: Sequence[Row]) -> list[str]:
    """A line per headline score: its means in the order of time, marked where a run is better (+) or worse (-)."""
    names = dict.fromkeys(row["score"] for row in rows if row["headline"])
    marks = {"better": "+", "worse": "-"}
    lines = []
    for name in names:
        shown = [row for row in rows if row["score"] == name and row["mean"] is not None][-_MEANS_SHOWN:]
        parts, series = list[str](), None
        for row in shown:
            if series is not None and row["series"] != series:
                parts.append("/")
            parts.append(f"{row['mean']:.3f}{marks.get(row['before_state'], '')}")
            series = row["series"]
        lines.append(f"- {code_span(name, _NAME)}: {' '.join(parts)}")
    return lines
