"""How far the documents are in the index of the system under test, in a small table: `index.json` in people's words."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from ragpipe.reports.number_format import whole
from ragpipe.reports.sections.tables import Table
from ragpipe.reports.text_escape import code
from ragpipe.reports.text_escape import table as _table
from ragpipe.schema.index_coverage import Coverage, IndexCoverage
from ragpipe.store.run.run_tables import read_json, run_file_error

_NAMED = 5  # documents named in a note; the rest stands in index.json
_TYPES = 40  # types of documents with a row of their own
HEADS = ("documents", "in all", "without chunks", "not embedded", "chunks attempted", "embedded", "skipped", "because")
_WHY = {"not_in_manifest": "not in the manifest", "no_chunks": "without chunks", "not_embedded": "no chunk embedded"}


def read_index(run: Path) -> IndexCoverage | None:
    """`index.json` of a run folder, None where there is none. Raises DataError for one that is broken."""
    path = run / "index.json"
    if not path.is_file():
        return None
    try:
        return IndexCoverage.model_validate(read_json(path))
    except ValidationError as error:
        found = str(error.errors(include_url=False, include_context=False)[0]["msg"])
        raise run_file_error(path, found, "what ragpipe wrote there") from error


def index_table(index: IndexCoverage) -> Table:
    """All documents, then those of each type."""
    types = list(index.by_doc_type.items())
    lines = [_line("all", index.overall), *(_line(name, one) for name, one in types[:_TYPES])]
    return Table("The index", HEADS, lines, left=(0, 7), notes=index_notes(index), more=len(types[_TYPES:]))


def index_section(index: IndexCoverage) -> list[str]:
    """`## The index` of report.md."""
    table = index_table(index)
    lines = [
        [code(str(cell), 200) if place in table.left and cell else str(cell) for place, cell in enumerate(line)]
        for line in table.lines
    ]
    notes = [part for note in table.notes for part in ("", code(note, 1000))]
    return ["## The index", "", *_table(list(HEADS), lines), *notes]


def index_notes(index: IndexCoverage) -> list[str]:
    """Tokens, versions, and the labelled documents that cannot be retrieved."""
    notes = []
    if found := index.tokens:
        notes.append(
            f"tokens of {whole(found.n)} chunks: least {whole(found.min)}, mean {found.mean:,.1f}, p95 {found.p95:,.1f}, most {whole(found.max)}"
        )
    kinds = (("chunker", index.chunkers), ("embedding", index.embeddings), ("index version", index.index_versions))
    notes += [f"{kind}: {', '.join(names)}" for kind, names in kinds if names]
    return notes + index_warnings(index)


def index_warnings(index: IndexCoverage) -> list[str]:
    """What no retrieval can fix: gold documents that are not in the index. Empty where all are."""
    if not index.gold_missing_count:
        return []
    named = "; ".join(
        f"{one.document} ({_WHY[one.why]}; {', '.join(one.samples[:3])})" for one in index.gold_missing[:_NAMED]
    )
    count = f"{whole(index.gold_missing_count)} of {whole(index.gold_documents)}"
    return [f"{count} gold documents cannot be retrieved, because they are not in the index: {named}"]


def _line(name: str, one: Coverage) -> list[str]:
    because = ", ".join(f"{why} {whole(n)}" for why, n in one.skipped_because.items())
    return [
        name,
        whole(one.documents),
        _share(one.documents_without_chunks, one.documents),
        _share(one.documents_not_embedded, one.documents),
        whole(one.chunks_attempted),
        whole(one.chunks_embedded),
        _share(one.chunks_skipped, one.chunks_attempted),
        because,
    ]


def _share(count: int, n: int) -> str:
    return f"{whole(count)} ({count / n:.1%})" if count else "0"
