"""How to read the tables: what an interval, a mark and a word in them mean."""

from __future__ import annotations

from ragpipe.reports.model import HTML, PAGES, Note, Section, Verbatim
from ragpipe.reports.report_data import ReportData

_FIGURES: tuple[Note, ...] = (
    Note((Verbatim("too few"), ": fewer than five questions; read such a figure with care.")),
    Note(
        (
            Verbatim("78% of 412"),
            ": the share of 412 cases that reached the threshold of the score (scoring.thresholds).",
        )
    ),
    Note((Verbatim("coverage"), ": the share of the due judgements that have a value; shown where it is not 100 %.")),
    Note(
        (
            Verbatim("skipped"),
            ": does not apply to the case, or the system or the data left nothing to judge; ",
            Verbatim("error"),
            ": could not be judged. Neither is a 0.",
        )
    ),
    Note(
        (
            Verbatim("overall_score"),
            ": the weighted mean of the scores that a case has, each brought to 0..1. Filters and order of the cases use the "
            "same scale.",
        )
    ),
    Note("Plots: the bar is the interval, the dot the mean, the upright line the threshold.", shown_in=HTML),
    Note(
        "Marks in the contexts are the quotes behind the verdicts: green supports a claim, red goes with a claim that is not "
        "supported. Marks in the answer are claims that nothing supports.",
        shown_in=HTML,
    ),
)


def reading_section(data: ReportData) -> Section:
    """A note per kind of figure."""
    level = data.metrics["scoring"]["level"]
    interval = (
        Verbatim("0.85 [0.82, 0.88]"),
        f": the mean and its {level:.0%} interval; {level:.0%} of such intervals hold the true mean. Cases that share a "
        "question are counted as one cluster.",
    )
    percent = [Note((Verbatim("x100"), ": a score of 0 to 1, printed times 100."))] if data.settings.percent else []
    return Section("reading", "How to read it", (Note(interval), *percent, *_FIGURES), shown_in=PAGES)
