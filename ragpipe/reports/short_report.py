"""The short result of a run on a terminal (`report.detail=short`): verdict, scores by method, problems, warnings, cost, page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragpipe.reports.console import Console
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.short_notes import cost_lines, each_kind_once, missing_lines, warning_lines, warnings_of
from ragpipe.reports.short_problems import problem_lines
from ragpipe.reports.short_scores import score_lines
from ragpipe.reports.short_verdict import baseline_lines, verdict_lines
from ragpipe.reports.styled_text import Line, Screen
from ragpipe.schema.run_warning import warning_texts


def print_short_report(data: ReportData, page: str, console: Console) -> None:
    """Print the short result; warnings go to standard error. `page` is the path of the report, the last line."""
    screen = console.screen
    console.lines(result_lines(data, screen))
    unseen = [(kind, text) for kind, text in warnings_of(data) if not console.has_warned(text)]
    console.warn_lines(warning_lines(each_kind_once(unseen), Path(page).name, screen))
    for text in warning_texts(data.metrics):
        console.note_warned(text)
    console.lines(cost_lines(data, screen))
    console.lines([(f"report: {screen.text(page)}",)])


def result_lines(data: ReportData, screen: Screen) -> Iterator[Line]:
    """The lines before the warnings: verdict, scores, what has no value, problems."""
    yield from verdict_lines(data, screen)
    yield from baseline_lines(data, screen)
    if scores := list(score_lines(data, screen)):
        yield ()
        yield from scores
    yield from problem_lines(data, screen)
    yield from missing_lines(data, screen)
