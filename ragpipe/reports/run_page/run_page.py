"""`report.html`: a run as one file to look at. It loads nothing and sends nothing, and holds no time and nothing that this
machine paid: equal runs give equal bytes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ragpipe.pages.page_file import PIECES, Page, asset_texts, core_script, core_style, page_environment
from ragpipe.pages.side_files import SINGLE_FILE_MB
from ragpipe.reports.model import Report
from ragpipe.reports.run_page.front import TEMPLATES, front_markup
from ragpipe.reports.run_page.page_cases import RunCases
from ragpipe.reports.run_page.static_cases import static_cases
from ragpipe.store.files.page_writer import write_page

_SCRIPTS = ("human_verdicts.js", "case_parts.js", "report_case.js", "report_list.js")
_STYLES = ("front.css", "cases.css")


def write_run_page(
    path: Path, report: Report, cases: RunCases | None, *, single_file_mb: float = SINGLE_FILE_MB
) -> list[Path]:
    """Write the page and, above `single_file_mb` megabytes of data, the files beside it; those with the same content are left
    alone. Returns their paths. Raises DataError, OutputError.

    Args:
        path: the file.
        report: what stands above and below the cases.
        cases: the cases; None for a page without them.
        single_file_mb: megabytes of data that the page holds itself.
    """
    return write_page(path, run_page(report, cases), single_file_mb=single_file_mb)


def run_page(report: Report, cases: RunCases | None) -> Page:
    """The page. Its blocks are read from the run as they are asked for. Raises DataError."""
    shown = cases if cases is not None and len(cases.rows) else None
    body = (
        _environment()
        .get_template("report.html.jinja")
        .render(front=front_markup(report), cases=shown, worst=list(static_cases(shown)) if shown else ())
    )
    script = report_script() if shown else ""
    style = core_style() + "".join(map(_template_text, _STYLES))
    return Page(f"{report.name} · ragpipe", Markup(body), style, script, shown.blocks() if shown else ())


def report_script() -> str:
    """The script of the page: the same for every run."""
    return core_script(PIECES) + "".join(map(_template_text, _SCRIPTS))


def template_texts() -> dict[str, str]:
    """The files that the page is made with, by name: its templates, styles and scripts."""
    own = {path.name: path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.iterdir()) if path.is_file()}
    return {**asset_texts(), **own}


def _template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:
    return page_environment(TEMPLATES)
