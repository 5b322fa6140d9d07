"""BM25 over chunks.

Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the non-negative idf that Lucene
uses: idf(w) = ln(1 + (N - n + 0.5) / (n + 0.5)) for a word that n of N chunks have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from math import log

from ragpipe.example_rag.chunking import DocumentChunk
from ragpipe.example_rag.question_words import search_words

K1, B = 1.2, 0.75
HEADING_WEIGHT = 2


class LexicalIndex:
    """The words of all chunks. Words of the heading path count twice, those of the document's title once."""

    def __init__(self, chunks: Iterable[DocumentChunk]):
        self.chunks: Sequence[DocumentChunk] = list(chunks)
        self.words = [_word_counts(chunk) for chunk in self.chunks]
        self._sizes = [counts.total() for counts in self.words]
        self._mean_size = sum(self._sizes) / max(len(self._sizes), 1)
        self._frequency = Counter(word for counts in self.words for word in counts)

    def idf(self, word: str) -> float:
        """How rare a word is; highest for a word that no chunk has."""
        frequency = self._frequency[word]
        return log(1 + (len(self.chunks) - frequency + 0.5) / (frequency + 0.5))

    def search(self, words: Collection[str], folders: Collection[str] | None = None) -> list[tuple[int, float]]:
        """Places and scores of the chunks that have one of the words, best first, equal ones in the order of the documents;
        only those of `folders`, all for None."""
        scores = (
            (place, self._score(place, words))
            for place, chunk in enumerate(self.chunks)
            if folders is None or chunk.folder in folders
        )
        return sorted((hit for hit in scores if hit[1] > 0), key=lambda hit: (-hit[1], hit[0]))

    def coverage(self, words: Collection[str], place: int) -> float:
        """The share of the words, weighted by idf, that a chunk has: 0 to 1; 0 without words."""
        total = sum(self.idf(word) for word in words)
        return sum(self.idf(word) for word in words if word in self.words[place]) / total if total else 0.0

    def _score(self, place: int, words: Collection[str]) -> float:
        counts = self.words[place]
        length = K1 * (1 - B + B * self._sizes[place] / self._mean_size)
        present = (word for word in words if word in counts)
        return sum(self.idf(word) * counts[word] * (K1 + 1) / (counts[word] + length) for word in present)


def _word_counts(chunk: DocumentChunk) -> Counter[str]:
    counts = Counter(search_words(chunk.body))
    for word in search_words(chunk.heading_path):
        counts[word] += HEADING_WEIGHT
    counts.update(search_words(chunk.title))
    return counts
