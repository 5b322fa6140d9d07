"""A report from the files of a run: every section is built here, once for all renderers."""

from __future__ import annotations

from collections.abc import Callable

from ragpipe.core import registry
from ragpipe.reports.model import Report, Section
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.verdict import closing_lines, notices, summary_line, verdict_of

SectionBuilder = Callable[[ReportData], Section | None]


def section_builders() -> list[SectionBuilder]:
    """The builders in the order of the report, those of plugins last. A builder returns None where its section does not apply to
    the run. Raises ConfigError for a plugin that cannot be imported."""
    return [registry.find("section", name) for name in registry.names("section")]


def build_report(data: ReportData) -> Report:
    """All sections of a report, whatever the medium; `Report.for_medium` picks what one of them shows."""
    sections = (builder(data) for builder in section_builders())
    return Report(
        name=data.name,
        summary=summary_line(data.metrics),
        signature=data.metrics["signature"],
        verdict=verdict_of(data),
        notices=tuple(notices(data)),
        sections=tuple(section for section in sections if section is not None),
        closing=tuple(closing_lines(data)),
    )
