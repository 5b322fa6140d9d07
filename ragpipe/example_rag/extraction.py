"""The answer to a question out of the retrieved chunks: sentences and list items as they stand there, with citations."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragpipe.example_rag.chunking import DocumentChunk
from ragpipe.example_rag.lexical_index import LexicalIndex
from ragpipe.example_rag.question_words import has_digit, search_words
from ragpipe.patterns.sentences import list_items, sentences

MIN_COVERAGE = 0.5
MIN_WORDS = 2
_ENOUGH_OF_BEST = 0.6
_MOST_SENTENCES = 3
_LISTING = re.compile(
    r"\b(?:steps?|list|how (?:do|can|does|should)|what are|which \w+s\b|name (?:all|the))", re.IGNORECASE
)
_LABEL = re.compile(r"\*\*([^*\n]+):\*\*")
_COMPARING = re.compile(r"\b(?:and|both|compare[ds]?|versus|than|difference)\b", re.IGNORECASE)
NOTHING = "I could not find this in the documents."
NOT_ALLOWED = "I cannot answer this because I am not allowed to use the note about it."


@dataclass(frozen=True, slots=True)
class RetrievedChunk:
    """A chunk by its `place` in the index, with the rank (from 1) and the score with which it was retrieved."""

    place: int
    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class ExtractedAnswer:
    """`citations` have the keys of an output's; `abstained` where nothing was answered."""

    text: str
    citations: list[dict[str, Any]] = field(default_factory=list)
    abstained: bool = False


@dataclass(frozen=True, slots=True)
class Extraction:
    """How answers are made. `min_coverage` is the share of the question's words, weighted by idf, that a passage must have to
    be an answer (a question of a single such word is none); `cite` is false where citations are left out."""

    min_coverage: float = MIN_COVERAGE
    cite: bool = True

    def answer(self, question: str, retrieved: Sequence[RetrievedChunk], index: LexicalIndex) -> ExtractedAnswer:
        """The answer out of the passage that has most of the question's words, of the higher ranked one where they are equal; out
        of two passages for a question that compares. It abstains where that passage has too few of the words, lacks a number of the
        question, or stands in a note that must not be used."""
        words = list(dict.fromkeys(search_words(question)))
        evidence = _evidence(question, words, retrieved, index)
        if evidence and index.chunks[evidence[0].place].policy == "no_use":
            return ExtractedAnswer(NOT_ALLOWED, abstained=True)
        present = {word for hit in evidence for word in index.words[hit.place]}
        covered = sum(index.idf(word) for word in words if word in present)
        if len(words) < MIN_WORDS or covered < self.min_coverage * sum(index.idf(word) for word in words):
            return ExtractedAnswer(NOTHING, abstained=True)
        return self._written(question, words, evidence, index)

    def _written(
        self, question: str, words: Sequence[str], evidence: Sequence[RetrievedChunk], index: LexicalIndex
    ) -> ExtractedAnswer:
        lines, citations = [], []
        for hit in evidence:
            chunk = index.chunks[hit.place]
            marker = f"[{hit.rank}]"
            for passage in _passages(question, words, hit, index):
                text = f'{chunk.title}: "{passage}"' if chunk.policy == "quote_only" else passage
                lines.append(f"{text} {marker}" if self.cite else text)
                if self.cite:
                    citations.append({"marker": marker, "chunk_id": chunk.id, "text": lines[-1]})
        return ExtractedAnswer("\n".join(lines), citations)


def _evidence(
    question: str, words: Sequence[str], retrieved: Sequence[RetrievedChunk], index: LexicalIndex
) -> list[RetrievedChunk]:
    """The chunks that answer: the best of those that have the numbers of the question, and for a question that compares the
    one that adds most to it."""
    numbers = {word for word in words if has_digit(word)}
    fitting = [hit for hit in retrieved if _passages_with(numbers, index.chunks[hit.place])]
    if not fitting:
        return []
    best = max(fitting, key=lambda hit: (*_fit(words, hit, index), -hit.rank))
    missing = [word for word in words if word not in index.words[best.place]]
    if not missing or not _COMPARING.search(question):
        return [best]
    usable = [hit for hit in fitting if hit != best and index.chunks[hit.place].policy != "no_use"]
    second = max(usable, key=lambda hit: (index.coverage(missing, hit.place), -hit.rank), default=None)
    return [best, second] if second and index.coverage(missing, second.place) > 0 else [best]


def _fit(words: Sequence[str], hit: RetrievedChunk, index: LexicalIndex) -> tuple[float, float, float]:
    """How well a chunk answers: how much of the words it has, then how much of them its heading has, then how much the labels of
    its items have (`**Label:** value`)."""
    chunk = index.chunks[hit.place]
    heading = search_words(chunk.heading_path)
    labels = [word for label in _LABEL.findall(chunk.body) for word in search_words(label)]
    in_heading, in_labels = (sum(index.idf(word) for word in words if word in part) for part in (heading, labels))
    return round(index.coverage(words, hit.place), 6), round(in_heading, 6), round(in_labels, 6)


def _passages_with(numbers: Collection[str], chunk: DocumentChunk) -> list[str]:
    """The sentences and list items of a chunk that have all the numbers, with those of the chunk's heading and title."""
    above = {*search_words(chunk.heading_path), *search_words(chunk.title)}
    missing = {number for number in numbers if number not in above}
    return [passage for passage in sentences(chunk.body) if missing <= set(search_words(passage))]


def _passages(question: str, words: Collection[str], hit: RetrievedChunk, index: LexicalIndex) -> list[str]:
    """The sentences and list items of a chunk that answer: all items for a question that asks for a list, else those that
    have the words which the heading has not; the first sentences where no sentence has one."""
    chunk = index.chunks[hit.place]
    items = list_items(chunk.body)
    if len(items) > 1 and _LISTING.search(question):
        return items
    passages = _passages_with({word for word in words if has_digit(word)}, chunk)
    heading = {*search_words(chunk.heading_path), *search_words(chunk.title)}
    asked = [word for word in words if word not in heading]
    scores = [sum(index.idf(word) for word in asked if word in search_words(passage)) for passage in passages]
    best = max(scores, default=0.0)
    if best == 0:
        return items if len(items) > 1 else passages[:_MOST_SENTENCES]
    chosen = [passage for passage, score in zip(passages, scores, strict=True) if score >= _ENOUGH_OF_BEST * best]
    return chosen[:_MOST_SENTENCES]
