"""The numbers that an answer's marks give to the contexts, for questions that show only some of the contexts."""

from __future__ import annotations

from collections.abc import Sequence

from ragpipe.schema.sample import Chunk


def context_numbers(contexts: Sequence[Chunk]) -> list[int]:
    """The number of each context: its rank, as in `citations_of`; its place, from 1, where two have the same rank.

    A judge that sees context 3 alone as [1] takes the answer's mark [3] for a wrong citation.
    """
    ranks = [chunk.rank for chunk in contexts]
    return ranks if len(set(ranks)) == len(ranks) else list(range(1, len(ranks) + 1))
