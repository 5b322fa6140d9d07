"""How many judgements of each score have a value, and why others have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.reports.model import PAGES, ItemList, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import percentage, whole
from ragpipe.reports.report_data import ReportData

_COUNTS = {"n_ok": "ok", "n_skipped": "skipped", "n_error": "error", "n_missing": "not measured"}


def coverage_section(data: ReportData) -> Section | None:
    """A row per score; None for a run without any score."""
    rows = tuple(_row(name, score) for name, score in data.metrics["overall"]["scores"].items())
    columns = (
        TableColumn("score", is_text=True),
        *map(TableColumn, _COUNTS.values()),
        TableColumn("coverage"),
        TableColumn("reasons", is_text=True),
    )
    return (
        Section("coverage", "Coverage and failures", (Table(columns, rows),), folded=True, shown_in=PAGES)
        if rows
        else None
    )


def _row(name: str, score: Mapping[str, Any]) -> TableRow:
    counts = (whole(score.get(key, 0)) for key in _COUNTS)
    reasons = (*score.get("errors", {}).items(), *score.get("skipped", {}).items())
    texts = tuple((Verbatim(reason), f" {whole(n)}") for reason, n in reasons)
    return TableRow((Verbatim(name), *counts, percentage(score["coverage"]), ItemList(texts, separator=", ")))
