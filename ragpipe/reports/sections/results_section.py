"""The scores of each method, over all of its questions and over those that the methods share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ragpipe.reports.metrics_view import (
    by_importance,
    heading,
    main_scores,
    measured_parts,
    method_groups,
    missing_overall_score,
    score_cell,
    table_scores,
)
from ragpipe.reports.model import (
    EVERYWHERE,
    PAGES,
    TERMINAL,
    Note,
    RichText,
    RowHead,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.reports.number_format import whole
from ragpipe.reports.report_data import ReportData

SHARED_NOTE = (
    "Each score over the questions for which every method has a value, of those for which any has one (questions with a value): compare "
    "methods on these alone. A question that was asked may have no value of a score."
)


def results_section(data: ReportData) -> Section:
    """Scores down, methods across."""
    metrics, percent = data.metrics, data.settings.percent
    groups = method_groups(metrics)
    rows = []
    for name in by_importance(table_scores(metrics), metrics):
        declared = metrics["declared"][name]
        cells = [
            score_cell(group["scores"].get(name), percent=name in percent, declared=declared)
            for group in groups.values()
        ]
        rows.append(TableRow((_row_head(name, metrics, percent), *cells)))
    columns = (TableColumn("score", is_text=True), *(TableColumn(Verbatim(method)) for method in groups))
    table = Table(columns, tuple(rows), turnable=True)
    return Section("scores", "Results", (table, *_notes(metrics)), folded=True)


def shared_section(data: ReportData) -> Section | None:
    """The methods on the questions that they share; None where these are all of them. The terminal shows main scores."""
    metrics, percent = data.metrics, data.settings.percent
    shared = metrics.get("shared")
    if shared is None:
        return None
    scores = shared["scores"]
    names = [
        name
        for name in by_importance(table_scores(metrics), metrics)
        if name in scores and scores[name]["n_questions"] < scores[name]["of"]
    ]
    if not names:
        return None
    methods, main = list(method_groups(metrics)), main_scores(names, metrics)
    rows = []
    for name in names:
        by_method = scores[name]["methods"]
        questions = f"{whole(scores[name]['n_questions'])} of {whole(scores[name]['of'])}"
        cells = (score_cell(by_method.get(method), percent=name in percent) for method in methods)
        shown_in = EVERYWHERE if name in main else PAGES
        rows.append(TableRow((Verbatim(heading(name, metrics, percent)), questions, *cells), shown_in))
    columns = (
        TableColumn("score", is_text=True),
        TableColumn("questions with a value"),
        *(TableColumn(Verbatim(method)) for method in methods),
    )
    title = f"On shared questions ({whole(shared['n_questions'])} of {whole(shared['of'])} were asked of all methods)"
    table = Table(columns, tuple(rows), key_columns=2, compact=True)
    return Section("shared", title, (table, Note(SHARED_NOTE)), folded=True)


def _row_head(name: str, metrics: Mapping[str, Any], percent: Collection[str]) -> RowHead:
    mark, measured = measured_parts(name, metrics)
    remarks: list[RichText] = []
    declared = metrics["declared"][name]
    if (threshold := declared["threshold"]) is not None:
        scaled = threshold * 100 if name in percent else threshold
        remarks.append(f"passes {'from' if declared['higher_is_better'] else 'up to'} {scaled:g}")
    if mark:
        remarks.append((f"{mark}: ", Verbatim(measured)))
    return RowHead(Verbatim(heading(name, metrics, percent)), mark, tuple(remarks))


def _notes(metrics: Mapping[str, Any]) -> Iterator[Note]:
    if any(score["interval"] for score in metrics["overall"]["scores"].values()):
        level = metrics["scoring"]["level"]
        yield Note(f"mean [{level:.0%} interval]; below: pass rate and number of judged cases", shown_in=TERMINAL)
    for name in table_scores(metrics):
        mark, measured = measured_parts(name, metrics)
        if mark:
            yield Note((Verbatim(name), f": {mark}: ", Verbatim(measured)), shown_in=TERMINAL)
    if reason := missing_overall_score(metrics):
        yield Note(Verbatim(reason))
