"""The scores by every field of the data set that the run is broken down by."""

from __future__ import annotations

from collections.abc import Iterator

from ragpipe.reports.metrics_view import by_importance, heading, score_cell, table_scores
from ragpipe.reports.model import MARKDOWN, PAGES, Section, SectionPart, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.slice_maps import slice_charts

GROUPS_SHOWN = 40  # groups of one field; `metrics.json` has all


def slices_section(data: ReportData) -> Section | None:
    """A heat map per field on the HTML page, a table per field of all scores in Markdown; the results show the methods."""
    tables = tuple(_tables(data))
    parts: tuple[SectionPart, ...] = (*slice_charts(data), *tables)
    return Section("slices", "Where", parts, folded=True, shown_in=PAGES) if parts else None


def _tables(data: ReportData) -> Iterator[Table]:
    metrics, percent = data.metrics, data.settings.percent
    names = by_importance(table_scores(metrics), metrics)
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
        left_out = len(groups) - len(rows)
        yield Table(columns, tuple(rows), ("By ", Verbatim(field)), rows_left_out=left_out, shown_in=MARKDOWN)
