"""The methods of a run against the first one, case by case: what got better, what worse, and what nobody can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.reports.comparison_summary import HEADS, difference_rows
from ragpipe.reports.metrics_view import heading
from ragpipe.reports.model import EVERYWHERE, PAGES, Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.report_data import ReportData

_NOTE = (
    "Each score over the cases that both methods have a value for; the interval of the difference is by question. "
    "w/t/l: cases in which the method is better, equal, worse. could show: the true difference that these cases find in 8 of 10 samples."
)
_TEXTS = {"score", "verdict"}
_ON_PAGES = {"base", "new", "w/t/l", "could show"}
_BOUNDS = ("low", "high")


def methods_section(data: ReportData) -> Section | None:
    """A row per method and headline score; None for a run of one method. The terminal shows differences and verdicts."""
    if data.methods is None:
        return None
    rows = tuple(row for method, scores in data.methods["candidates"].items() for row in _rows(method, scores, data))
    if not rows:
        return None
    columns = [
        TableColumn(head, is_text=head in _TEXTS, shown_in=PAGES if head in _ON_PAGES else EVERYWHERE) for head in HEADS
    ]
    columns.insert(1, TableColumn("method", is_text=True))
    base = Verbatim(data.methods["base"])
    command = Verbatim(f"task=compare compare=methods run={data.methods['run_id']}")
    parts = (
        Table(tuple(columns), rows, title=("Each method (new) against ", base, " (base)"), key_columns=2),
        Note(_NOTE, shown_in=PAGES),
        Note(("slices, flips, all scores: ", command)),
    )
    return Section("methods", "Paired differences between methods", parts, folded=True)


def _rows(method: str, scores: Mapping[str, Any], data: ReportData) -> Iterator[TableRow]:
    """The headline scores that this method and the first one have values for."""
    percent = data.settings.percent
    shown = {
        heading(name, data.metrics, percent): times_100(score) if name in percent else score
        for name, score in scores.items()
        if score["n"]
    }
    for name, *figures in difference_rows(shown):
        yield TableRow((Verbatim(name), Verbatim(method), *figures))


def times_100(score: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a score that is shown in percent."""
    names = ("base_mean", "candidate_mean", "difference", "detectable", "smallest_effect", "low", "high")
    scaled = {name: None if score[name] is None else score[name] * 100 for name in names}
    interval = score["interval"]
    if interval is not None:
        interval = {**interval, **{end: interval[end] * 100 for end in _BOUNDS}}
    return {**score, **scaled, "interval": interval}
