"""How the claims of a run rest on what was retrieved: carried by one context, by several, by none; contexts that carry nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.report.charts import part_bars
from ragpipe.report.model import PAGES, Chart, RichText, Section, SectionPart, Table, Verbatim
from ragpipe.report.report_data import ReportData, method_groups
from ragpipe.report.styled_text import count_with_share, whole
from ragpipe.score.chunk_support import CARRIED

_NAMED = 5  # questions; low_scores.json has up to 100
_CONTEXTS = ("contexts", "carry nothing", "claims per used context")


def chunks_section(data: ReportData) -> Section | None:
    """Claims and contexts by score and method, then contexts by type; None where no score looked up quotes."""
    rows = []
    for method, group in method_groups(data.metrics).items():
        for score, counts in group.get("chunk_support", {}).items():
            claims = (count_with_share(counts[how], counts["claims"]) for how in CARRIED)
            head = (Verbatim(score), Verbatim(method), whole(counts["n_cases"]), whole(counts["claims"]))
            rows.append((*head, *claims, *_contexts(counts)))
    if not rows:
        return None
    by_type = [
        (Verbatim(score), Verbatim(kind), whole(counts["n_cases"]), *_contexts(counts))
        for score, all_counts in data.metrics["overall"].get("chunk_support", {}).items()
        for kind, counts in all_counts["by_doc_type"].items()
    ]
    heads = ("score", "method", "cases", "claims", *CARRIED.values(), *_CONTEXTS)
    parts: list[SectionPart] = [*_pictures(data), Table.of(heads, rows, texts=2)]
    if by_type:
        heads = ("score", "type", "cases", *_CONTEXTS)
        parts.append(Table.of(heads, by_type, texts=2, title="By type of the context (doc_type)"))
    return Section("chunks", "Claims by context", tuple(parts), folded=True, shown_in=PAGES)


_SHADES = dict(zip(CARRIED, ("better-2", "better-1", "grey-2", "worse-1", "worse-2"), strict=True))


def _pictures(data: ReportData) -> Iterator[Chart]:
    """By method a bar of claims by how a context carries them, and one of contexts by whether they carry any."""
    groups = method_groups(data.metrics)
    numbers = {method: number if len(groups) > 1 else None for number, method in enumerate(groups)}
    for score in dict.fromkeys(score for group in groups.values() for score in group.get("chunk_support", {})):
        claims, contexts = [], []
        for method, group in groups.items():
            if (counts := group.get("chunk_support", {}).get(score)) is None:
                continue
            parts = [(words, counts[how], _SHADES[how]) for how, words in CARRIED.items()]
            claims.append((numbers[method], method, f"{whole(counts['claims'])} claims", parts))
            unused = counts["chunks"] - counts["used"]
            used = [("carry a claim", counts["used"], "better-2"), ("carry nothing", unused, "grey-2")]
            contexts.append((numbers[method], method, f"{whole(counts['chunks'])} contexts", used))
        yield Chart(("Claims of ", Verbatim(score)), part_bars(claims, f"claims of {score}"), narrow=True)
        yield Chart(("Contexts by ", Verbatim(score)), part_bars(contexts, f"contexts by {score}"), narrow=True)


def _contexts(counts: Mapping[str, Any]) -> tuple[str, str, str]:
    chunks, used = counts["chunks"], counts["used"]
    return whole(chunks), count_with_share(chunks - used, chunks), f"{counts['carried'] / max(1, used):.2f}"


def versions_section(data: ReportData) -> Section | None:
    """By score the questions that a version of the system (or a method) repaired or broke; None where there is none."""
    rows = []
    for score, low in data.low_scores.items():
        for change in low.get("versions", {}).get("changes", ()):
            step, lows = f"{change['from']} -> {change['to']}", f"{whole(change['low_before'])} -> {whole(change['low_after'])}"
            cells = (_questions(change["repaired"]), _questions(change["broke"]), whole(change["n_both"]), lows)
            if change["repaired"]["n"] or change["broke"]["n"]:
                rows.append((Verbatim(score), Verbatim(step), *cells))
    if not rows:
        return None
    field = next(low["versions"]["field"] for low in data.low_scores.values() if "versions" in low)
    table = Table.of(("score", field, "repaired", "broke", "questions of both", "low"), rows, texts=4)
    return Section("versions", "Repaired and broken", (table,), folded=True, shown_in=PAGES)


def _questions(questions: Mapping[str, Any]) -> RichText:
    """`3: q1, q2, q7`."""
    named = ", ".join(questions["samples"][:_NAMED]) + (", ..." if questions["n"] > _NAMED else "")
    return (whole(questions["n"]), *((": ", Verbatim(named)) if named else ()))
