"""How much of the documents is in the index of the system under test, from `index.json`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from ragpipe.reports.model import PAGES, TERMINAL, ItemList, Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import count_with_share, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.schema.index_coverage import Coverage, IndexCoverage
from ragpipe.store.run.run_tables import read_json, run_file_error

_EXAMPLES = 5  # documents named in a warning; index.json has all
_TYPES_SHOWN = 40  # types of documents with their own row
_FIGURES = ("total", "without chunks", "not embedded", "chunks attempted", "embedded", "skipped")
_REASONS = {
    "not_in_manifest": "not in the manifest",
    "no_chunks": "without chunks",
    "not_embedded": "no chunk embedded",
}


def read_index(run: Path) -> IndexCoverage | None:
    """`index.json` of a run folder, None where there is none. Raises DataError for one that is broken."""
    path = run / "index.json"
    if not path.is_file():
        return None
    try:
        return IndexCoverage.model_validate(read_json(path))
    except ValidationError as error:
        message = str(error.errors(include_url=False, include_context=False)[0]["msg"])
        raise run_file_error(path, message, "what ragpipe wrote there") from error


def index_section(data: ReportData) -> Section | None:
    """All documents, then those of each type; None without an index manifest. The terminal shows warnings alone."""
    index = data.index
    if index is None:
        return None
    types = list(index.by_doc_type.items())
    rows = (_row("all", index.overall), *(_row(name, coverage) for name, coverage in types[:_TYPES_SHOWN]))
    columns = (
        TableColumn("documents", is_text=True),
        *map(TableColumn, _FIGURES),
        TableColumn("reasons", is_text=True),
    )
    table = Table(columns, rows, rows_left_out=len(types[_TYPES_SHOWN:]), shown_in=PAGES)
    notes = (Note(Verbatim(note), shown_in=PAGES) for note in index_notes(index))
    warnings = (Note(Verbatim(warning), "warning", TERMINAL) for warning in index_warnings(index))
    return Section("index", "The index", (table, *notes, *warnings), folded=True)


def index_notes(index: IndexCoverage) -> list[str]:
    """Tokens, versions, and the labelled documents that cannot be retrieved."""
    notes = []
    if tokens := index.tokens:
        low, high = f"least {whole(tokens.min)}", f"most {whole(tokens.max)}"
        notes.append(
            f"tokens of {whole(tokens.n)} chunks: {low}, mean {tokens.mean:,.1f}, p95 {tokens.p95:,.1f}, {high}"
        )
    kinds = (("chunker", index.chunkers), ("embedding", index.embeddings), ("index version", index.index_versions))
    notes += [f"{kind}: {', '.join(names)}" for kind, names in kinds if names]
    return [*notes, *index_warnings(index)]


def index_warnings(index: IndexCoverage) -> Iterator[str]:
    """What no retrieval can fix: gold documents that are not in the index."""
    if index.gold_missing_count:
        examples = "; ".join(
            f"{gold.document} ({_REASONS[gold.why]}; {', '.join(gold.samples[:3])})"
            for gold in index.gold_missing[:_EXAMPLES]
        )
        count = f"{whole(index.gold_missing_count)} of {whole(index.gold_documents)}"
        yield f"{count} gold documents cannot be retrieved, because they are not in the index: {examples}"


def _row(name: str, coverage: Coverage) -> TableRow:
    reasons = tuple((Verbatim(reason), f" {whole(n)}") for reason, n in coverage.skipped_because.items())
    return TableRow(
        (
            Verbatim(name),
            whole(coverage.documents),
            count_with_share(coverage.documents_without_chunks, coverage.documents),
            count_with_share(coverage.documents_not_embedded, coverage.documents),
            whole(coverage.chunks_attempted),
            whole(coverage.chunks_embedded),
            count_with_share(coverage.chunks_skipped, coverage.chunks_attempted),
            ItemList(reasons, separator=", "),
        )
    )
