"""How values are spread: cases by grade and class, and the best and worst case of each method."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ragpipe.reports.metrics_view import counted_per_iteration
from ragpipe.reports.model import MARKDOWN, PAGES, Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.slices_section import GROUPS_SHOWN

_EXTREME_FIGURES = ("mean", "best", "worst", "cases", "questions")


def distributions_section(data: ReportData) -> Section | None:
    """A table per graded score and group of classes, then one of all extremes; None where there is none of them."""
    metrics = data.metrics
    tables: list[Table | Note] = [_grades(name, grades) for name, grades in metrics["grades"].items()]
    extremes = tuple(_extremes(metrics, data.settings.percent))
    if extremes:
        keys = (TableColumn("score", is_text=True), TableColumn("method", is_text=True))
        columns = (*keys, *map(TableColumn, _EXTREME_FIGURES))
        tables.append(Table(columns, extremes, "Best, worst and mean case per method", key_columns=2))
        tables.append(Note("Values of cases, on the questions for which every listed method has the score."))
    if not tables:
        return None
    notes = map(Note, counted_per_iteration(metrics))
    return Section("distributions", "Grades, best and worst", (*tables, *notes), folded=True, shown_in=PAGES)


def _grades(name: str, grades: Mapping[str, Any]) -> Table:
    rows = [TableRow((Verbatim("all"), *_shares(grades["overall"])))]
    for field, groups in grades["by"].items():
        for group, counts in list(groups.items())[:GROUPS_SHOWN]:
            rows.append(TableRow((Verbatim(f"{field}: {group}"), *_shares(counts)), MARKDOWN))
    grade_columns = (TableColumn(Verbatim(grade)) for grade in grades["overall"])
    columns = (TableColumn("cases", is_text=True), *grade_columns, TableColumn("total"))
    return Table(columns, tuple(rows), ("Cases by ", Verbatim(name)))


def _shares(counts: Mapping[str, int]) -> list[str]:
    """`12 (50.0%)` for each grade, and the total."""
    total = sum(counts.values())
    return [*(f"{whole(n)} ({n / total:.1%})" for n in counts.values()), whole(total)]


def _extremes(metrics: Mapping[str, Any], percent: Collection[str]) -> Iterator[TableRow]:
    for name, extremes in metrics["extremes"].items():
        factor, places = (100.0, 1) if name in percent else (1.0, 2)
        label = Verbatim(name + (" x100" if name in percent else ""))
        for method, values in extremes["methods"].items():
            figures = (f"{values[key] * factor:.{places}f}" for key in ("mean", "best", "worst"))
            yield TableRow((label, Verbatim(method), *figures, whole(values["n"]), whole(extremes["n_questions"])))
