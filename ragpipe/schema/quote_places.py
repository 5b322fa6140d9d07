"""Where the quotes of a judge occur: the chunk, and the characters of its own text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from ragpipe.core.text_match import MatchableText, quote_pieces
from ragpipe.schema.sample import Chunk


class QuotePlace(TypedDict):
    """A stretch of a chunk that a quote covers: from character `start` to before `end`."""

    chunk: str
    rank: int
    start: int
    end: int


class QuotableChunks:
    """Chunks in which quotes are looked for."""

    def __init__(self, chunks: Iterable[Chunk]):
        self._texts = [(chunk, MatchableText(chunk.text)) for chunk in chunks]

    def places(self, quote: str) -> list[QuotePlace]:
        """Where a quote occurs: the first time in each chunk. A quote with an elision (`...`) has a place for each of its
        pieces. Empty where no chunk has it, in the sense of `text_match.occurs`."""
        pieces = quote_pieces(quote)
        return [
            {"chunk": chunk.id, "rank": chunk.rank, "start": start, "end": end}
            for chunk, text in self._texts
            for start, end in text.find_pieces(pieces)[: len(pieces)]
        ]
