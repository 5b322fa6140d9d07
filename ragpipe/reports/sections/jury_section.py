"""What the members of a jury said, how far they agree, and what a cascade left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.reports.model import Cell, Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import decimal, whole
from ragpipe.reports.report_data import ReportData

_NOTE = (
    "unanimous: share of the cases in which all members gave the same value. Agreement among members proves little: judges of one kind "
    "share their errors. What counts is agreement with people (task=calibrate)."
)
_ALPHA = "alpha: Krippendorff's, by squared differences; kappa: Fleiss', for scores of 0 and 1."


def jury_section(data: ReportData) -> Section | None:
    """A row per score with each member's mean and their agreement; None for a run by one judge."""
    jury = data.metrics.get("jury")
    if not jury:
        return None
    members = list(jury["members"])
    heads = ("score", "rule", *members, "unanimous", "agreement", "no majority")
    columns = tuple(TableColumn(head, is_text=place < 2) for place, head in enumerate(heads))
    rows = tuple(_row(name, figures, members) for name, figures in jury["scores"].items())
    notes = [Note((Verbatim(f"{name}: {label}"),)) for name, label in jury["members"].items()]
    notes += [Note(line) for line in _lines(jury["scores"])]
    return Section("jury", "Jury", (Table(columns, rows), *notes, Note(_NOTE), Note(_ALPHA)), folded=True)


def _row(name: str, figures: Mapping[str, Any], members: list[str]) -> TableRow:
    means: list[Cell] = [_figure(figures["means"].get(member)) for member in members]
    agreement = _figure(figures.get("alpha"), "alpha ")
    if figures.get("fleiss_kappa") is not None:
        agreement = _figure(figures["fleiss_kappa"], "kappa ")
    unanimous = _figure(figures.get("unanimous"))
    return TableRow((Verbatim(name), figures["rule"], *means, unanimous, agreement, whole(figures["no_majority"])))


def _figure(value: float | None, kind: str = "") -> str:
    return "-" if value is None else f"{kind}{decimal(value, 2)}"


def _lines(scores: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, figures in scores.items():
        if consistency := figures.get("self_consistency"):
            shares = ", ".join(f"{member} {decimal(share, 2)}" for member, share in consistency.items())
            yield f"{name}: agreement of each member with itself over its repeats: {shares}"
        if cascade := figures.get("cascade"):
            yield f"{name}: {cascade_words(cascade)}"


def cascade_words(cascade: Mapping[str, Any]) -> str:
    """What a cascade did to the mean of a score."""
    share = f"the second member decided {decimal(cascade['decided_by_second'], 2)} of the cases"
    if cascade.get("bias_interval") is None:
        return (
            f"{share}; too few cases were judged by both ({cascade['drawn']:,} drawn) to say what that does to the mean"
        )
    low, high = cascade["bias_interval"]
    return (
        f"{share}; against the second member alone the mean moves by {cascade['bias']:+.2f} [{low:+.2f}, {high:+.2f}]"
    )
