"""The numbers that an answer's marks give to the contexts, for questions that show only some of the contexts."""

from __future__ import annotations

from collections.abc import Sequence

from ragpipe.schema.judge_answers.citation_answers import SourceUse
from ragpipe.schema.sample import Chunk


def context_numbers(contexts: Sequence[Chunk]) -> list[int]:
    """The number of each context: its rank, as in `citations_of`; its place, from 1, where two have the same rank.

    A judge that sees context 3 alone as [1] takes the answer's mark [3] for a wrong citation.
    """
    ranks = [chunk.rank for chunk in contexts]
    return ranks if len(set(ranks)) == len(ranks) else list(range(1, len(ranks) + 1))


def numbered(contexts: Sequence[Chunk]) -> list[tuple[int, Chunk]]:
    """The contexts with their numbers, in order."""
    return list(zip(context_numbers(contexts), contexts, strict=True))


def by_place(uses: Sequence[SourceUse], numbers: Sequence[int] | None) -> list[SourceUse]:
    """The findings with the place of their context in the question, from 1, as `index`.

    `numbers` are those that the question shows; None where its template shows none: its findings name places already.
    A number that the question does not show becomes 0, which is no place.
    """
    if numbers is None:
        return list(uses)
    places = {number: place for place, number in enumerate(numbers, 1)}
    return [use.model_copy(update={"index": places.get(use.index, 0)}) for use in uses]
