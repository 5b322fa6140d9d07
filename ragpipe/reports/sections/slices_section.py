"""The scores by every field of the data set that the run is broken down by."""

from __future__ import annotations

from collections.abc import Iterator

from ragpipe.reports.metrics_view import heading, score_cell, table_scores
from ragpipe.reports.model import PAGES, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import whole
from ragpipe.reports.report_data import ReportData

GROUPS_SHOWN = 40  # groups of one field; `metrics.json` has all


def slices_section(data: ReportData) -> Section | None:
    """A table per field, without the methods, which the results show; None without any field."""
    tables = tuple(_tables(data))
    return Section("slices", "By slice", tables, folded=True, shown_in=PAGES) if tables else None


def _tables(data: ReportData) -> Iterator[Table]:
    metrics, percent = data.metrics, data.settings.percent
    names = table_scores(metrics)
    heads = (TableColumn(Verbatim(heading(name, metrics, percent))) for name in names)
    score_columns = (TableColumn("cases"), *heads)
    for field, groups in metrics["by"].items():
        if field == "method" or not groups:
            continue
        rows = []
        for group in list(groups)[:GROUPS_SHOWN]:
            scores = groups[group]["scores"]
            cells = (score_cell(scores.get(name), percent=name in percent) for name in names)
            rows.append(TableRow((Verbatim(group), whole(groups[group]["n_cases"]), *cells)))
        columns = (TableColumn(Verbatim(field), is_text=True), *score_columns)
        yield Table(columns, tuple(rows), ("By ", Verbatim(field)), rows_left_out=len(groups) - len(rows))
