"""What the contexts contradict: claims of the lowest cases, each with the passages that a judge quotes against it."""

from __future__ import annotations

from collections.abc import Iterator

from ragpipe.core.safe_text import shorten
from ragpipe.reports.contradictions import CaseContradiction
from ragpipe.reports.metrics_view import iteration_count
from ragpipe.reports.model import (
    EVERYWHERE,
    PAGES,
    TERMINAL,
    CaseName,
    Cell,
    ItemList,
    Note,
    RichText,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.score_details import Passage

_TERMINAL_ROWS = 3
_PAGE_ROWS = 50
_TEXT_CHARS = 400  # of a claim and of a passage; the details have them whole
TITLE = "Contradicted claims of the lowest cases"


def contradictions_section(data: ReportData) -> Section | None:
    """The contradicted claims of the lowest cases of the last iteration; None where there is none."""
    if not data.contradictions:
        return None
    heads = ("case", "score", "contradicted claim", "contradicted by")
    rows = (
        TableRow(_cells(item), EVERYWHERE if place < _TERMINAL_ROWS else PAGES)
        for place, item in enumerate(data.contradictions[:_PAGE_ROWS])
    )
    title, last = TITLE, data.contradictions[0].record["iteration"]
    if iteration_count(data.metrics) > 1:
        title = f"{TITLE} of iteration {last}"
    table = Table(tuple(TableColumn(head, is_text=True) for head in heads), tuple(rows), layout="entries")
    notes = _left_out(len(data.contradictions), title)
    return Section("contradictions", title, (Note(f"{title}:", shown_in=TERMINAL), table, *notes), folded=True)


def _left_out(count: int, title: str) -> Iterator[Note]:
    if count > _TERMINAL_ROWS:
        yield Note(f"and {count - _TERMINAL_ROWS} more under `{title}` in the report", shown_in=TERMINAL)
    if count > _PAGE_ROWS:
        yield Note(f"{count - _PAGE_ROWS} more in the details of scores.parquet.", shown_in=PAGES)


def _cells(item: CaseContradiction) -> tuple[Cell, ...]:
    passages = tuple(map(_passage, item.claim.passages))
    return (
        CaseName.of(item.record),
        Verbatim(item.score),
        Verbatim(shorten(item.claim.claim, _TEXT_CHARS)),
        ItemList(passages) if passages else "no passage",
    )


def _passage(passage: Passage) -> RichText:
    return (Verbatim(passage.place), ": ", Verbatim(shorten(passage.quote, _TEXT_CHARS)))
