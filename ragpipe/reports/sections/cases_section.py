"""Single cases: excerpts of the lowest ones, for Markdown. The HTML page has all cases (`run_page`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.reports.metrics_view import iteration_count
from ragpipe.reports.model import MARKDOWN, CaseExcerpt, CaseName, RichText, Section, Verbatim
from ragpipe.reports.report_data import ReportData


def lowest_cases_section(data: ReportData) -> Section | None:
    """Excerpts of the lowest cases of the last iteration; None where no case failed."""
    if not data.lowest:
        return None
    several = iteration_count(data.metrics) > 1
    title = f"Lowest cases of iteration {data.lowest[0]['iteration']}" if several else "Lowest cases"
    names = list(data.metrics["overall"]["scores"])
    excerpts = (
        CaseExcerpt(
            CaseName.of(row),
            tuple(_excerpt_lines(row, names)),
            (("Question", row["question"] or ""), ("Answer", row["answer"] or "")),
        )
        for row in data.lowest
    )
    return Section("lowest", title, tuple(excerpts), shown_in=MARKDOWN)


def _excerpt_lines(row: Mapping[str, Any], names: Sequence[str]) -> Iterator[RichText]:
    """The overall score, then each score that failed or could not be judged with its reason."""
    if row["overall_score"] is not None:
        yield f"overall_score {row['overall_score']:.2f}"
    failed_by = row["failed_by"] or ()
    for name in names:
        reason = row.get(f"{name}.reason") or ""
        if row.get(f"{name}.passed") is False and name in failed_by:
            yield (Verbatim(name), f" {row[name]:g}", *((": ", Verbatim(reason)) if reason else ()))
        elif row.get(f"{name}.status") == "error":
            yield (Verbatim(name), " error: ", Verbatim(reason))
