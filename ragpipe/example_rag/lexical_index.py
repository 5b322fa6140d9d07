"""BM25 over the sections of Markdown documents.

Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the non-negative idf that Lucene
uses: idf(w) = ln(1 + (N - n + 0.5) / (n + 0.5)) for a word that n of N chunks have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import log

from ragpipe.documents.markdown import Document
from ragpipe.judging.heuristic.lexicon import STOP_WORDS
from ragpipe.judging.heuristic.tokenized_text import stem
from ragpipe.schema.sample import Policy

K1, B = 1.2, 0.75
_SHARE_OF_BEST, _MOST_FOLDERS = 0.75, 3
_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")
_QUARTER = re.compile(r"\b(first|second|third|fourth) quarter(?: of)?\b")
_QUARTERS = {"first": "q1", "second": "q2", "third": "q3", "fourth": "q4"}
_MORE_STOP_WORDS = """according be else exactly far fast get gets give given large least long longer lot me might more most much must my name need
    needs per please quick run running runs s tarnwick tell under until us whose why would"""
_SAY_NOTHING = STOP_WORDS | set(_MORE_STOP_WORDS.split())
_SAME_WORDS = """accurate=accuracy bought=buy ceo=chief cost=price costs=price kept=keep phone=telephone sales=sold sell=sold
    sells=sold staff=employee weigh=weight weighs=weight"""  # what a lexical retriever cannot know by itself
_SAME_WORD = dict(pair.split("=") for pair in _SAME_WORDS.split())


def search_words(text: str) -> list[str]:
    """The stems of all words that carry meaning, in order and with repetitions; `third quarter of 2025` becomes `q3 2025`."""
    plain = _QUARTER.sub(lambda match: _QUARTERS[match[1]], text.casefold().replace("\u2019", "'"))
    words = (_SAME_WORD.get(word, word) for word in _WORD.findall(plain) if word not in _SAY_NOTHING)
    return [word if has_digit(word) else stem(word) for word in words]


def has_digit(word: str) -> bool:
    """Whether it is a number, a year, a quarter or a code such as E13."""
    return any(character.isdigit() for character in word)


@dataclass(frozen=True, slots=True)
class DocumentChunk:
    """A section of a document. `body` is its text; `title` that of its document."""

    id: str
    rel_path: str
    title: str
    heading_path: str
    body: str
    doc_type: str
    policy: Policy

    @property
    def folder(self) -> str:
        """The first folder of its path; empty for a document at the top."""
        return self.rel_path.rpartition("/")[0].partition("/")[0]

    @property
    def above(self) -> list[str]:
        """The words of its heading path and of its title."""
        return [*search_words(self.heading_path), *search_words(self.title)]


def chunks_of(documents: Iterable[Document]) -> Iterator[DocumentChunk]:
    """The sections with text, in the order of the documents, named `<rel_path>#<number>`."""
    for document in documents:
        kind = str(document.front_matter.get("doc_type", "document"))
        for number, section in enumerate((section for section in document.sections if section.text), 1):
            path = document.rel_path
            name = f"{path}#{number}"
            yield DocumentChunk(name, path, document.title, section.heading_path, section.text, kind, document.policy)


class LexicalIndex:
    """The words of all chunks. Words of the heading path count twice, those of the document's title once."""

    def __init__(self, chunks: Iterable[DocumentChunk]):
        self.chunks = list(chunks)
        self.words = [
            Counter([*search_words(chunk.body), *search_words(chunk.heading_path), *chunk.above])
            for chunk in self.chunks
        ]
        self._mean_size = sum(words.total() for words in self.words) / max(len(self.words), 1)
        self._frequency = Counter(word for words in self.words for word in words)

    def idf(self, word: str) -> float:
        """How rare a word is; highest for a word that no chunk has."""
        frequency = self._frequency[word]
        return log(1 + (len(self.chunks) - frequency + 0.5) / (frequency + 0.5))

    def weight(self, words: Iterable[str], present: Collection[str]) -> float:
        """The sum of the idf of the words that are present."""
        return sum(self.idf(word) for word in words if word in present)

    def search(self, words: Collection[str], folders: Collection[str] | None = None) -> list[tuple[int, float]]:
        """Places and scores of the chunks that have one of the words, best first, equal ones in the order of the documents;
        only those of `folders`, all for None."""
        scores = (
            (place, self._score(self.words[place], words))
            for place, chunk in enumerate(self.chunks)
            if folders is None or chunk.folder in folders
        )
        return sorted((hit for hit in scores if hit[1] > 0), key=lambda hit: (-hit[1], hit[0]))

    def folders_of(self, words: Collection[str]) -> list[str]:
        """The folder that fits the words best and those within 75 % of its score, three at most, best first; none where no
        folder has a word. A word counts the more of a folder's chunks have it, saturated."""
        having = Counter(
            (chunk.folder, word) for chunk, counts in zip(self.chunks, self.words, strict=True) for word in counts
        )
        scores = {
            folder: sum(self.idf(word) * having[folder, word] / (having[folder, word] + 0.5) for word in words)
            for folder in sorted({chunk.folder for chunk in self.chunks})
        }
        best = max(scores.values(), default=0.0)
        ranked = sorted(scores, key=lambda folder: -scores[folder])
        return [folder for folder in ranked if best and scores[folder] >= _SHARE_OF_BEST * best][:_MOST_FOLDERS]

    def _score(self, counts: Counter[str], words: Collection[str]) -> float:
        length = K1 * (1 - B + B * counts.total() / self._mean_size)
        present = (word for word in words if word in counts)
        return sum(self.idf(word) * counts[word] * (K1 + 1) / (counts[word] + length) for word in present)
