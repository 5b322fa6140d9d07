"""A report from the files of a run: every section is built here, once for all renderers."""

from __future__ import annotations

from collections.abc import Callable

from ragpipe.reports.model import Report, Section
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.better_section import better_section
from ragpipe.reports.sections.cost_section import cost_section, iterations_section, operations_section
from ragpipe.reports.sections.diagnosis_section import (
    contradictions_section,
    diagnosis_section,
    index_section,
    lowest_cases_section,
)
from ragpipe.reports.sections.results_section import (
    corrected_section,
    coverage_section,
    distributions_section,
    drift_section,
    jury_section,
    methods_section,
    results_section,
    shared_section,
)
from ragpipe.reports.sections.spread_section import slices_section, spread_section
from ragpipe.reports.sections.verdict import (
    closing_lines,
    gates_section,
    notices,
    reading_section,
    summary_line,
    verdict_of,
)

SectionBuilder = Callable[[ReportData], Section | None]

SECTIONS: tuple[SectionBuilder, ...] = (
    better_section,
    results_section,
    shared_section,
    methods_section,
    corrected_section,
    jury_section,
    drift_section,
    diagnosis_section,
    contradictions_section,
    gates_section,
    slices_section,
    spread_section,
    distributions_section,
    iterations_section,
    lowest_cases_section,
    coverage_section,
    cost_section,
    operations_section,
    index_section,
    reading_section,
)
"""The builders in the order of the report: is it better, what is wrong, where, the cases, the fine print. A builder returns None
where its section does not apply to the run."""


def build_report(data: ReportData) -> Report:
    """All sections of a report, whatever the medium; `Report.for_medium` picks what one of them shows."""
    sections = (builder(data) for builder in SECTIONS)
    return Report(
        name=data.name,
        summary=summary_line(data.metrics),
        signature=data.metrics["signature"],
        verdict=verdict_of(data),
        notices=tuple(notices(data)),
        sections=tuple(section for section in sections if section is not None),
        closing=tuple(closing_lines(data)),
    )
