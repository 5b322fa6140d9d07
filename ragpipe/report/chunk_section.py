"""How the claims of a run rest on what was retrieved: carried by one context, by several, by none; contexts that carry nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.report.model import PAGES, RichText, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.report.report_data import ReportData, method_groups
from ragpipe.report.styled_text import count_with_share, whole
from ragpipe.score.chunk_support import CARRIED

_NAMED = 5  # questions; low_scores.json has up to 100
_CONTEXTS = ("contexts", "carry nothing", "claims per used context")


def chunks_section(data: ReportData) -> Section | None:
    """Claims and contexts by score and method, then contexts by type; None where no score looked up quotes."""
    groups = {name: group.get("chunk_support", {}) for name, group in method_groups(data.metrics).items()}
    rows = tuple(_row(score, name, counts) for name, scores in groups.items() for score, counts in scores.items())
    if not rows:
        return None
    heads = ("cases", "claims", *CARRIED.values(), *_CONTEXTS)
    columns = (TableColumn("score", is_text=True), TableColumn("method", is_text=True), *map(TableColumn, heads))
    parts = [Table(columns, rows, shown_in=PAGES), *_by_type(data.metrics["overall"].get("chunk_support", {}))]
    return Section("chunks", "Which context carries which claim", tuple(parts), folded=True, shown_in=PAGES)


def _row(score: str, method: str, counts: Mapping[str, Any]) -> TableRow:
    claims = (count_with_share(counts[how], counts["claims"]) for how in CARRIED)
    head = (Verbatim(score), Verbatim(method), whole(counts["n_cases"]), whole(counts["claims"]))
    return TableRow((*head, *claims, *_contexts(counts)))


def _contexts(counts: Mapping[str, Any]) -> tuple[str, str, str]:
    chunks, used = counts["chunks"], counts["used"]
    return whole(chunks), count_with_share(chunks - used, chunks), f"{counts['carried'] / max(1, used):.2f}"


def _by_type(scores: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    rows = tuple(
        TableRow((Verbatim(score), Verbatim(kind), whole(counts["n_cases"]), *_contexts(counts)))
        for score, all_counts in scores.items()
        for kind, counts in all_counts["by_doc_type"].items()
    )
    columns = (TableColumn("score", is_text=True), TableColumn("type", is_text=True), *map(TableColumn, ("cases", *_CONTEXTS)))
    if rows:
        yield Table(columns, rows, "By type of the context (doc_type)", shown_in=PAGES)


def versions_section(data: ReportData) -> Section | None:
    """By score the questions that a version of the system (or a method) repaired or broke; None where there is none."""
    rows = [
        TableRow(
            (
                Verbatim(score),
                Verbatim(f"{change['from']} -> {change['to']}"),
                whole(change["n_both"]),
                f"{whole(change['low_before'])} -> {whole(change['low_after'])}",
                _questions(change["repaired"]),
                _questions(change["broke"]),
            )
        )
        for score, low in data.low_scores.items()
        for change in low.get("versions", {}).get("changes", ())
        if change["repaired"]["n"] or change["broke"]["n"]
    ]
    if not rows:
        return None
    columns = (
        TableColumn("score", is_text=True),
        TableColumn(next(low["versions"]["field"] for low in data.low_scores.values() if "versions" in low), is_text=True),
        TableColumn("questions of both"),
        TableColumn("low"),
        TableColumn("repaired", is_text=True),
        TableColumn("broke", is_text=True),
    )
    return Section(
        "versions", "Repaired and broken", (Table(columns, tuple(rows), shown_in=PAGES),), folded=True, shown_in=PAGES
    )


def _questions(questions: Mapping[str, Any]) -> RichText:
    """`3: q1, q2, q7`."""
    named = ", ".join(questions["samples"][:_NAMED]) + (", ..." if questions["n"] > _NAMED else "")
    return (whole(questions["n"]), *((": ", Verbatim(named)) if named else ()))
