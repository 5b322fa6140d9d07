"""Which folders a question is looked up in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from ragpipe.example_rag.lexical_index import LexicalIndex

SHARE_OF_BEST = 0.75
AT_MOST = 3


class FolderChoice:
    """Scores the folders by the question's words: the idf of each word times how much of the folder's chunks it has, saturated,
    so that the kind of a question decides more than a single word."""

    def __init__(self, index: LexicalIndex):
        self._index = index
        self._sizes = Counter(chunk.folder for chunk in index.chunks)
        self._having: Counter[tuple[str, str]] = Counter()
        for chunk, counts in zip(index.chunks, index.words, strict=True):
            self._having.update((chunk.folder, word) for word in counts)

    def of(self, words: Collection[str]) -> list[str]:
        """The best folder and those within 75 % of its score, three at most, best first; none where no folder has a word."""
        scores = {folder: self._score(folder, words) for folder in sorted(self._sizes)}
        best = max(scores.values(), default=0.0)
        ranked = sorted(scores, key=lambda folder: (-scores[folder], folder))
        return [folder for folder in ranked if best and scores[folder] >= SHARE_OF_BEST * best][:AT_MOST]

    def _score(self, folder: str, words: Collection[str]) -> float:
        counts = ((word, self._having[folder, word]) for word in words)
        return sum(self._index.idf(word) * count / (count + 0.5) for word, count in counts if count)
