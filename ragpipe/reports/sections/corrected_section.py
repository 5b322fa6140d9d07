"""Means corrected by people's labels, beside those of the judge alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.calibrating.corrected_scores import correction_words
from ragpipe.reports.metrics_view import heading
from ragpipe.reports.model import Cell, Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import bracketed, decimal, whole
from ragpipe.reports.report_data import ReportData

_NOTE = (
    "corrected: the mean that people's labels of all cases would have, from the judge's scores of all and labels of drawn ones; its "
    "interval holds the judge's error too."
)


def corrected_section(data: ReportData) -> Section | None:
    """A row per score with labels of people, and one for its pass rate; None for a run without labels."""
    corrected = data.metrics.get("corrected")
    if not corrected:
        return None
    heads = ("score", "labels", "judge alone", "corrected")
    columns = tuple(TableColumn(head, is_text=head == "score") for head in heads)
    rows = tuple(row for name, figures in corrected.items() for row in _rows(name, figures, data))
    return Section("corrected", "Corrected by human labels", (Table(columns, rows), Note(_NOTE)), folded=True)


def _rows(name: str, figures: Mapping[str, Any], data: ReportData) -> Iterator[TableRow]:
    percent = name in data.settings.percent
    scaled = (100.0, 1) if percent else (1.0, 2)
    head = heading(name, data.metrics, data.settings.percent)
    yield TableRow((Verbatim(head), whole(figures["labels"]), *_estimates(figures, *scaled)))
    if rates := figures.get("pass_rates"):
        yield TableRow((Verbatim(f"{name} passed"), whole(figures["labels"]), *_estimates(rates, 100.0, 1)))


def _estimates(figures: Mapping[str, Any], factor: float, places: int) -> tuple[Cell, Cell]:
    """The judge's mean and the corrected one, each with its interval, or why there is none."""
    raw = figures.get("raw")
    alone = (
        "-" if raw is None else f"{decimal(raw * factor, places)} {bracketed(figures['raw_interval'], factor, places)}"
    )
    if figures["mean"] is None:
        return alone, correction_words(figures.get("reason"))
    return alone, f"{decimal(figures['mean'] * factor, places)} {bracketed(figures['interval'], factor, places)}"
