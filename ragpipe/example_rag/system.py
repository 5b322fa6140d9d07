"""The example RAG: a question goes in, an output with answer, chunks, citations and timings comes out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.resources import PACKAGE
from ragpipe.documents.markdown import read_documents
from ragpipe.example_rag.chunking import CHUNKER, chunks_of
from ragpipe.example_rag.extraction import ExtractedAnswer, Extraction, RetrievedChunk
from ragpipe.example_rag.folder_choice import FolderChoice
from ragpipe.example_rag.lexical_index import LexicalIndex
from ragpipe.example_rag.planted_faults import (
    MISSING_DOCUMENT,
    OVER_REFUSAL_COVERAGE,
    WRONG_FOLDER,
    WRONG_SCOPE_WORDS,
    checked_faults,
)
from ragpipe.example_rag.question_words import search_words
from ragpipe.schema.sample import FolderMode

HANDBOOK = PACKAGE / "data" / "handbook"
VERSION = "1"
TOP_K = 5
_DECLINED = (
    (
        re.compile(r"\bshould (?:i|we) (?:buy|sell|invest|sign|sue)\b|\b(?:recommend|advise|advice)\b", re.IGNORECASE),
        "I cannot give financial or legal advice.",
    ),
    (
        re.compile(r"\b(?:salary|salaries|home address|private|birthday|religion|illness)\b", re.IGNORECASE),
        "I cannot give private information about people.",
    ),
)
"""What is asked, and how it is declined without a search."""


class ExampleRag:
    """A RAG system over the Markdown documents below `folder`.

    Sections are its chunks and BM25 finds them. `folder_mode` of a question: off, all folders are searched; on, those that
    its words point to; on_with_fallback, those, and all where they hold no answer. Advice and private details are declined
    by a rule. Where two notes contradict each other (`replaces` in the front matter), the newer goes before the older. `faults` are
    names of `planted_faults.FAULTS`.

    Raises DataError for documents that cannot be read, and ConfigError for an unknown fault.
    """

    def __init__(self, folder: Path = HANDBOOK, faults: Iterable[str] = ()):
        self.faults = checked_faults(faults)
        self._documents = read_documents(folder)
        left_out = {MISSING_DOCUMENT} if "missing_document" in self.faults else set()
        self.index = LexicalIndex(chunks_of(note for note in self._documents if note.rel_path not in left_out))
        self._folders = FolderChoice(self.index)
        self._newer = {
            str(note.front_matter["replaces"]): note.rel_path
            for note in self._documents
            if "replaces" in note.front_matter
        }
        self._extraction = Extraction(
            **({"min_coverage": OVER_REFUSAL_COVERAGE} if "over_refusal" in self.faults else {}),
            cite="no_citations" not in self.faults,
        )

    @property
    def version(self) -> str:
        """The version of the system, with its faults: `1+stale_note`."""
        return "+".join([VERSION, *sorted(self.faults)])

    def answer(self, question: str, folder_mode: FolderMode = "off") -> dict[str, Any]:
        """The output for a question, with the keys of `ragpipe.schema.sample.Output`. Times are in milliseconds.

        Raises ValueError for another folder mode.
        """
        if folder_mode not in get_args(FolderMode):
            raise ValueError(f"folder_mode {folder_mode!r}; expected one of {', '.join(get_args(FolderMode))}")
        start = perf_counter()
        words = list(dict.fromkeys(search_words(question)))
        selected = None if folder_mode == "off" else self._selected_folders(words)
        chosen = perf_counter()
        declined = next((reply for pattern, reply in _DECLINED if pattern.search(question)), None)
        hits = [] if declined else self._retrieve(words, selected)
        found_at = perf_counter()
        result = ExtractedAnswer(declined, abstained=True) if declined else self._extract(question, hits)
        if folder_mode == "on_with_fallback" and result.abstained and not declined:
            selected = []
            hits = self._retrieve(words, None)
            result = self._extract(question, hits)
        end = perf_counter()
        return {
            "answer": result.text,
            "chunks": [self._chunk(hit) for hit in hits],
            "citations": result.citations,
            "abstained": result.abstained,
            "folder_mode": folder_mode,
            **({} if selected is None else {"selected_folders": selected}),
            "timings": _milliseconds(
                folder_selection=chosen - start, retrieval=found_at - chosen, generation=end - found_at
            ),
            "version": self.version,
        }

    def index_rows(self) -> Iterator[dict[str, Any]]:
        """The manifest of the index, row by row (docs/latency.md): every chunk, and every document without one."""
        indexed = set()
        for chunk, counts in zip(self.index.chunks, self.index.words, strict=True):
            indexed.add(chunk.rel_path)
            row = {"doc_id": chunk.rel_path, "chunk_id": chunk.id, "tokens": counts.total(), "doc_type": chunk.doc_type}
            yield {**row, "chunker": CHUNKER, "embedding": "bm25", "index_version": self.version}
        for note in self._documents:
            if note.rel_path not in indexed:
                yield {"doc_id": note.rel_path, "doc_type": str(note.front_matter.get("doc_type", "document"))}

    def _selected_folders(self, words: list[str]) -> list[str]:
        if "wrong_scope" in self.faults and WRONG_SCOPE_WORDS & set(words):
            return [WRONG_FOLDER]
        return self._folders.of(words)

    def _retrieve(self, words: list[str], folders: list[str] | None) -> list[RetrievedChunk]:
        """The best chunks by rank; where a note and the one that it replaces are both among them, the newer stands first."""
        hits = self.index.search(words, folders)[:TOP_K]
        ordered: list[tuple[int, float]] = []
        for place, score in hits:
            rel_path = self.index.chunks[place].rel_path
            later = [n for n, (before, _) in enumerate(ordered) if self._goes_before(rel_path, before)]
            ordered.insert(later[0] if later else len(ordered), (place, score))
        return [RetrievedChunk(place, rank, score) for rank, (place, score) in enumerate(ordered, 1)]

    def _goes_before(self, rel_path: str, place: int) -> bool:
        """Whether a document goes before that of a chunk which is ranked higher."""
        above = self.index.chunks[place].rel_path
        if "stale_note" in self.faults:
            return self._newer.get(rel_path) == above
        return self._newer.get(above) == rel_path

    def _extract(self, question: str, hits: list[RetrievedChunk]) -> ExtractedAnswer:
        return self._extraction.answer(question, hits, self.index)

    def _chunk(self, hit: RetrievedChunk) -> dict[str, Any]:
        chunk = self.index.chunks[hit.place]
        return {
            "id": chunk.id,
            "doc_id": chunk.rel_path,
            "rank": hit.rank,
            "score": round(hit.score, 4),
            "text": chunk.text,
            "rel_path": chunk.rel_path,
            "heading_path": chunk.heading_path or None,
            "doc_type": chunk.doc_type,
            "policy": chunk.policy,
        }


def answer(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The callable of `system=example`: answers `sample["question"]` over the shipped handbook.

    `sample["params"]` may have `folder_mode`, `faults` (a list) and `folder` (other documents). Raises ConfigError for another
    name.
    """
    params = dict(sample.get("params") or {})
    folder_mode, folder, faults = params.pop("folder_mode", "off"), params.pop("folder", None), params.pop("faults", [])
    if params:
        expected = "folder_mode, faults, folder"
        problems = [Problem("system", f"system.params.{name}", repr(params[name]), expected) for name in params]
        raise ConfigError("the example RAG cannot be asked", problems)
    return _opened(str(folder or HANDBOOK), tuple(faults)).answer(sample["question"], folder_mode)


@lru_cache(maxsize=8)
def _opened(folder: str, faults: tuple[str, ...]) -> ExampleRag:
    return ExampleRag(Path(folder), faults)


def _milliseconds(**seconds: float) -> dict[str, float]:
    return {stage: round(1000 * time, 3) for stage, time in seconds.items()}
