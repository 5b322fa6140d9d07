"""The manifest of an index: one row per chunk, in a JSON Lines, JSON, CSV or Parquet file.

    {"doc_id": "a.md", "chunk_id": "a.md#1", "tokens": 212, "doc_type": "markdown", "chunker": "heading-2"}
    {"doc_id": "a.md", "chunk_id": "a.md#2", "tokens": 9120, "status": "skipped", "reason": "over the context limit"}
    {"doc_id": "scan.pdf", "doc_type": "pdf"}

A row without `chunk_id` is a document that gave no chunk. `status` is `embedded` (the default) or `skipped`, which needs a
`reason`. `rel_path`, `chunker`, `embedding` and `index_version` are optional texts. Other names are refused.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragpipe.core.digest import sha256_file
from ragpipe.core.resources import data_path
from ragpipe.core.sample import Sample
from ragpipe.core.version import FORMAT
from ragpipe.data import file_formats
from ragpipe.data.faults import Faults, shown_value
from ragpipe.store.places import DEFAULT_CACHE, open_place
from ragpipe.store.run_tables import read_json, run_file_error
from ragpipe.store.table_rows import INDEX, table_from

LISTED = 100  # documents named, each with as many samples
_VERSIONS = ("chunker", "embedding", "index_version")
Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, le=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Coverage(_Frozen):
    """Documents and chunks. `documents_without_chunks` gave no chunk at all; of `documents_not_embedded` every chunk was
    skipped. Neither can be retrieved. Rates are null where there is nothing to count."""

    documents: Count
    documents_without_chunks: Count
    documents_not_embedded: Count
    no_chunks_rate: Rate | None
    chunks_attempted: Count
    chunks_embedded: Count
    chunks_skipped: Count
    skipped_rate: Rate | None
    skipped_because: dict[str, Count]


class ChunkTokens(_Frozen):
    """Tokens of the chunks whose tokens are known, skipped ones among them. `p95` by linear interpolation."""

    n: Count
    min: Count
    mean: Annotated[float, Field(ge=0)]
    p95: Annotated[float, Field(ge=0)]
    max: Count


class MissingGold(_Frozen):
    """A document that some sample's labels name and that cannot be retrieved; `samples` are the first of them."""

    document: str
    why: Literal["not_in_manifest", "no_chunks", "not_embedded"]
    n_samples: Count
    samples: list[str]


class IndexCoverage(_Frozen):
    """The whole of `index.json`. `gold_documents` is how many documents the samples' labels name (`relevant_docs`, and
    the paths of `anchors`); `gold_missing` lists the first of the `gold_missing_count` that cannot be retrieved.
    `samples_missing_gold` has every sample with such documents, and how many it has."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT
    chunkers: list[str]
    embeddings: list[str]
    index_versions: list[str]
    overall: Coverage
    by_doc_type: dict[str, Coverage]
    tokens: ChunkTokens | None
    without_chunks: list[str]
    gold_documents: Count
    gold_missing_count: Count
    gold_missing: list[MissingGold]
    samples_missing_gold: dict[str, Annotated[int, Field(ge=1)]]


class Row(BaseModel):
    """One row of a manifest."""

    model_config = ConfigDict(extra="forbid", strict=True)

    doc_id: str = Field(min_length=1)
    chunk_id: str | None = Field(default=None, min_length=1)
    status: Literal["embedded", "skipped"] = "embedded"
    reason: str | None = Field(default=None, min_length=1)
    tokens: int | None = Field(default=None, ge=0)
    doc_type: str | None = None
    rel_path: str | None = None
    chunker: str | None = None
    embedding: str | None = None
    index_version: str | None = None


@dataclass
class _Document:
    doc_type: str | None
    where: str
    chunks: set[str] = field(default_factory=set)
    embedded: int = 0
    tokens: int | None = None
    paths: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def why_missing(self) -> Literal["no_chunks", "not_embedded"] | None:
        if self.embedded:
            return None
        return "not_embedded" if self.chunks else "no_chunks"


class _Read(NamedTuple):
    """What the file says: documents by id, which of them stand at a path, tokens of chunks, versions as they first appear."""

    documents: dict[str, _Document]
    paths: dict[str, str]
    tokens: array[int]
    versions: dict[str, dict[str, None]]


class IndexManifest:
    """The manifest at `path`, as the user named it; a relative path starts at `base`, one of ragpipe's own after `package:`, and that
    of an object store is copied. Raises DataError when it cannot be read."""

    def __init__(self, path: str, base: Path, cache: Path = DEFAULT_CACHE):
        self._title = f"the index manifest {path} cannot be used"
        faults = Faults(self._title)
        local = open_place(path, data_path(path, base), cache).file or data_path(path, base)
        file = file_formats.data_file(local, path, Path(path).name, "auto", ",", faults)
        faults.raise_all()
        assert file is not None
        self._file = file

    @cached_property
    def digest(self) -> str:
        return sha256_file(self._file.path)

    def coverage(self, samples: Iterable[Sample]) -> IndexCoverage:
        """What the manifest says, compared with the documents that the samples' labels name. Raises one DataError with all
        faults of the file."""
        read = self._read
        of_type: dict[str, list[_Document]] = {}
        for document in read.documents.values():
            if document.doc_type is not None:
                of_type.setdefault(document.doc_type, []).append(document)
        missing, gold = _missing_gold(samples, read)
        return IndexCoverage(
            chunkers=list(read.versions["chunker"]),
            embeddings=list(read.versions["embedding"]),
            index_versions=list(read.versions["index_version"]),
            overall=_coverage(read.documents.values()),
            by_doc_type={name: _coverage(some) for name, some in sorted(of_type.items())},
            tokens=_tokens(read.tokens),
            without_chunks=[name for name, document in read.documents.items() if not document.chunks][:LISTED],
            gold_documents=gold,
            gold_missing_count=len(missing),
            gold_missing=[one.model_copy(update={"samples": one.samples[:LISTED]}) for one in missing[:LISTED]],
            samples_missing_gold=Counter(sample for document in missing for sample in document.samples),
        )

    def documents(self) -> pa.Table:
        """The rows of `index.parquet`: its documents in their order."""
        documents = self._read.documents
        columns: dict[str, Sequence[Any]] = {
            "document": list(documents),
            "doc_type": [document.doc_type for document in documents.values()],
            "rel_paths": [document.paths for document in documents.values()],
            "chunks": [document.embedded for document in documents.values()],
            "tokens": [document.tokens for document in documents.values()],
        }
        return table_from(columns, INDEX)

    @cached_property
    def _read(self) -> _Read:
        faults = Faults(self._title)
        read = _Read({}, {}, array("q"), {name: {} for name in _VERSIONS})
        for where, row in self._rows(faults):
            _add(read, row, where, faults)
        if not faults and not read.documents:
            expected = "a row for each chunk, and for each document without one"
            faults.add(self._file.display_path, "rows", "no rows", expected)
        faults.raise_all()
        return read

    def _rows(self, faults: Faults) -> Iterator[tuple[str, Row]]:
        for position, record in file_formats.read_rows(self._file, faults):
            where = file_formats.place(self._file, position)
            cells = {name: value for name, value in record.items() if value is not None}
            if self._file.format == "csv":
                cells = {name: _cell(name, text) for name, text in cells.items() if text != ""}
            try:
                yield where, Row.model_validate(cells)
            except ValidationError as error:
                for fault in error.errors(include_url=False):
                    key = ".".join(map(str, fault["loc"]))
                    near = get_close_matches(key, Row.model_fields, 1) if fault["type"] == "extra_forbidden" else []
                    known = f"one of {', '.join(Row.model_fields)}" if fault["type"] == "extra_forbidden" else fault["msg"]
                    actual = "nothing" if fault["type"] == "missing" else shown_value(cells.get(key))
                    faults.add(where, key, actual, known, f"did you mean {near[0]!r}?" if near else "")


def _cell(name: str, text: str) -> Any:
    return int(text) if name == "tokens" and text.isascii() and text.isdecimal() and len(text) < 19 else text


def _add(read: _Read, row: Row, where: str, faults: Faults) -> None:
    known = read.documents.get(row.doc_id)
    if (row.status == "skipped") != (row.reason is not None):
        actual = f"{row.status} {'with' if row.reason else 'without'} a reason"
        faults.add(where, "reason", actual, "a reason for every skipped chunk, and for no other")
    elif row.chunk_id is None and (row.status == "skipped" or row.tokens is not None):
        faults.add(where, "chunk_id", "nothing, beside what belongs to a chunk", "the id of the chunk")
    elif row.chunk_id is None and known:
        faults.add(where, "chunk_id", "nothing", f"one row alone for a document without chunks; it stands at {known.where}")
    elif known and (not known.chunks or row.chunk_id in known.chunks):
        what = "a chunk of a document without chunks" if not known.chunks else f"{row.chunk_id!r} a second time"
        faults.add(where, "chunk_id", what, f"every chunk once; the document stands at {known.where}")
    else:
        document = read.documents.setdefault(row.doc_id, _Document(row.doc_type, where))
        if row.doc_type != document.doc_type:
            faults.add(where, "doc_type", repr(row.doc_type), f"{document.doc_type!r}, as at {document.where}")
        if row.rel_path is not None and row.rel_path not in read.paths:
            read.paths[row.rel_path] = row.doc_id
            document.paths.append(row.rel_path)
        for name in _VERSIONS:
            if (version := getattr(row, name)) is not None:
                read.versions[name].setdefault(version)
        if row.chunk_id is not None:
            document.chunks.add(row.chunk_id)
            document.embedded += row.status == "embedded"
            if row.status == "embedded" and row.tokens is not None:
                document.tokens = (document.tokens or 0) + row.tokens
            document.skipped.update([row.reason] if row.reason else [])
        if row.tokens is not None:
            read.tokens.append(row.tokens)


def _coverage(documents: Iterable[_Document]) -> Coverage:
    all_documents = list(documents)
    skipped = sum((document.skipped for document in all_documents), Counter[str]())
    empty = sum(not document.chunks for document in all_documents)
    attempted = sum(len(document.chunks) for document in all_documents)
    return Coverage(
        documents=len(all_documents),
        documents_without_chunks=empty,
        documents_not_embedded=sum(document.why_missing == "not_embedded" for document in all_documents),
        no_chunks_rate=empty / len(all_documents) if all_documents else None,
        chunks_attempted=attempted,
        chunks_embedded=sum(document.embedded for document in all_documents),
        chunks_skipped=skipped.total(),
        skipped_rate=skipped.total() / attempted if attempted else None,
        skipped_because=dict(skipped.most_common()),
    )


def _tokens(tokens: array[int]) -> ChunkTokens | None:
    if not tokens:
        return None
    p95 = float(np.percentile(np.array(tokens), 95))
    return ChunkTokens(n=len(tokens), min=min(tokens), mean=sum(tokens) / len(tokens), p95=p95, max=max(tokens))


def _missing_gold(samples: Iterable[Sample], read: _Read) -> tuple[list[MissingGold], int]:
    """The labelled documents that cannot be retrieved, each with all its samples, and how many documents are labelled."""
    named = gold_documents(samples, read.paths)
    missing = []
    for name, ids in named.items():
        document = read.documents.get(name)
        if why := document.why_missing if document else "not_in_manifest":
            missing.append(MissingGold(document=name, why=why, n_samples=len(ids), samples=ids))
    return missing, len(named)


def gold_documents(samples: Iterable[Sample], paths: Mapping[str, str]) -> dict[str, list[str]]:
    """By document the ids of the samples whose labels name it (`relevant_docs`, and the paths of `anchors`); `paths` has the document
    of a path."""
    named: dict[str, list[str]] = {}
    for sample in samples:
        places = (anchor.rel_path for anchor in sample.anchors or ())
        for name in dict.fromkeys((*(sample.relevant_docs or ()), *(paths.get(path, path) for path in places))):
            named.setdefault(name, []).append(sample.id)
    return named


def read_index(path: Path) -> IndexCoverage | None:
    """`index.json` of a run, None where there is none. Raises DataError for one that is broken."""
    if not path.is_file():
        return None
    try:
        return IndexCoverage.model_validate(read_json(path))
    except ValidationError as error:
        message = str(error.errors(include_url=False, include_context=False)[0]["msg"])
        raise run_file_error(path, message, "what ragpipe wrote there") from error
