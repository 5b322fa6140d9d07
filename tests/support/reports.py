"""Reports of literal files: what a section or a whole report looks like in each medium."""

import io
import re
from collections.abc import Mapping
from typing import Any

import pytest

from ragpipe.report.console import Console
from ragpipe.report.markdown import render_markdown
from ragpipe.report.model import Report, Section, Table
from ragpipe.report.page_file import page_html
from ragpipe.report.report_data import ReportData
from ragpipe.report.run_page import run_page
from ragpipe.report.terminal import print_report
from ragpipe.runs.run_report import build_report


def report_of(*sections: Section | None) -> Report:
    return Report("run", "summary", "signature", None, (), tuple(section for section in sections if section is not None))


def markdown_of(report: Report) -> str:
    return render_markdown(report)


def html_of(report: Report) -> str:
    return page_html(run_page(report, None))


def terminal_of(report: Report, columns: int = 120) -> str:
    """What the terminal prints on standard output, `columns` wide."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        print_report(report, Console(out=out, err=io.StringIO()))
    return out.getvalue()


def table_text(table: Table, columns: int) -> list[str]:
    return terminal_of(report_of(Section("table", "", (table,))), columns).splitlines()


def page_of(metrics: Mapping[str, Any], cost: Mapping[str, Any]) -> str:
    return markdown_of(build_report(ReportData(metrics, cost)))


def line_of(text: str, start: str) -> str:
    """The one line of a terminal's output that begins so."""
    (line,) = [line for line in text.splitlines() if re.match(re.escape(start), line)]
    return line


def without_run_line(page: str) -> str:
    """A report without the date and the times of its run: all that differs in the reports of equal runs."""
    changed, count = re.subn(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC, took [^<\n]+", "TIMES", page)
    assert count == 1, count
    return changed
