"""A report without cases as a page of its own, beside its Markdown: calibration, agreement of judges, checks, sweep, history, data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

from ragpipe.report.markdown import render_answer
from ragpipe.report.model import Chart, PageLink, Report, Section, SectionPart, Table
from ragpipe.report.page_file import Page, core_style, template_file, write_page
from ragpipe.report.run_page import front_template
from ragpipe.store.files import is_regular_file, write_unless_same

RUN_PAGES = {
    "calibration/calibration.html": "calibration",
    "calibration/judge_audit.*.html": "judge audit",
    "calibration/spot_check.*.html": "spot check",
    "selftest.html": "self-test",
    "agreement.html": "old judge against new",
    "labels/*/label.html": "label page",
}
"""Patterns of pages about a run, from its folder, with their names."""


def pages_of(root: Path) -> Iterator[PageLink]:
    """The pages about a run that are there, in the order of `RUN_PAGES`; none that a link leads to."""
    for pattern, name in RUN_PAGES.items():
        for path in sorted(root.glob(pattern)):
            if is_regular_file(path) and not any(folder.is_symlink() for folder in path.parents if folder.is_relative_to(root)):
                yield PageLink(name, path.relative_to(root).as_posix())


def write_sections(path: Path, report: Report) -> list[Path]:
    """Write a report as Markdown and as a page in place of `path`, whose suffix does not count. Returns both paths. Files that would
    not change are left alone. Raises OutputError."""
    markdown = path.with_suffix(".md")
    write_unless_same(markdown, render_answer(report))
    return [markdown, *write_page(path.with_suffix(".html"), section_page(report))]


def section_page(report: Report) -> Page:
    """The page: the answer in a sentence, its sections in their order, and links to `report.pages`."""
    template = front_template().environment.get_template("sections.html.jinja")
    shown = report.for_medium("html")
    cases_page = report.pages[0].path if report.pages else ""
    body = template.render(report=shown, placed=map(_placed, shown.sections), cases_page=cases_page)
    style = core_style() + template_file("front.css")
    return Page(f"{report.name} · ragpipe", Markup(body), style, "")


_NARROW = 5  # columns of a table that has room beside charts


def _placed(section: Section) -> tuple[Section, list[SectionPart], list[SectionPart], list[SectionPart]]:
    """The section, its charts, what stands beside them (up to its first table, where that is narrow), and the rest below."""
    charts: list[SectionPart] = [part for part in section.parts if isinstance(part, Chart)]
    others: list[SectionPart] = [part for part in section.parts if not isinstance(part, Chart)]
    first = next((place for place, part in enumerate(others) if isinstance(part, Table)), None)
    fits = first is not None and isinstance(table := others[first], Table) and len(table.columns) <= _NARROW
    end = first + 1 if charts and fits and first is not None else 0
    return section, charts, others[:end], others[end:]
