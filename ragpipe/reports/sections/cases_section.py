"""Single cases: excerpts of the lowest ones for Markdown, and all that the HTML page can browse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.reports.case_views import CaseView
from ragpipe.reports.metrics_view import iteration_count
from ragpipe.reports.model import HTML, MARKDOWN, CaseBrowser, CaseExcerpt, CaseName, Note, RichText, Section, Verbatim
from ragpipe.reports.number_format import whole
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


def browser_section(data: ReportData) -> Section | None:
    """The cases that the HTML page holds in full; None for a run without cases."""
    total, cases = data.metrics["n_cases"], tuple(data.cases)
    if not total:
        return None
    scores = data.metrics["overall"]["scores"]
    names = tuple(sorted(scores, key=lambda name: name != "overall_score"))
    note = Note(_selection(total, cases), shown_in=HTML)
    return Section("cases", "Cases", (note, *([CaseBrowser(cases, names)] if cases else [])), shown_in=HTML)


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


def _selection(total: int, cases: Sequence[CaseView]) -> str:
    """Which cases the page holds, and where the others are."""
    if len(cases) == total:
        return f"All {whole(total)} cases, the worst first."
    if not cases:
        return f"None of {whole(total)} cases is shown (report.html_cases=0): see records.parquet."
    sampled = sum(case.sampled for case in cases)
    worst = len(cases) - sampled
    return (
        f"{whole(len(cases))} of {whole(total)} cases: the {whole(worst)} worst first, then {whole(sampled)} drawn from the "
        "others. All are in records.parquet; report.html_cases shows more."
    )
