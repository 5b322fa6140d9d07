"""Passages in parts that a model can read at once: nothing is cut off, and a part ends where a sentence ends if it can."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

from ragpipe.judging.heuristic.tokenized_text import tokenize

Place = tuple[int, int]
"""Characters of a text, from and up to."""


def split_passage(text: str, token_places: Sequence[Place], tokens: int, words: int | None = None) -> list[Place]:
    """The parts of a passage, in order; together they hold all of its tokens.

    Args:
        text: the passage.
        token_places: the characters of each of its tokens.
        tokens: tokens of a part at most, 1 or more.
        words: words of a part at most, between blanks; None for no such limit. One sentence may have more.

    A sentence that alone has more tokens is split within.
    """
    starts = [start for start, _ in token_places]
    pieces = [piece for place in _sentences(text) for piece in _fitting(place, starts, tokens)]
    parts: list[Place] = []
    used_tokens = used_words = 0
    for start, end in pieces:
        count, length = _count(starts, start, end), len(text[start:end].split())
        over = used_tokens + count > tokens or (words is not None and used_words + length > words)
        if parts and not over:
            parts[-1] = (parts[-1][0], end)
            used_tokens, used_words = used_tokens + count, used_words + length
        else:
            parts.append((start, end))
            used_tokens, used_words = count, length
    return parts or [(0, len(text))]


def _sentences(text: str) -> list[Place]:
    """Where the sentences begin and end; what stands between two of them belongs to the first."""
    starts = sorted({sentence.start for sentence in tokenize(text).sentences} | {0})
    return [
        (start, end) for start, end in zip(starts, [*starts[1:], len(text)], strict=True) if text[start:end].strip()
    ]


def _fitting(place: Place, starts: Sequence[int], tokens: int) -> list[Place]:
    """A sentence, or its pieces of at most so many tokens."""
    inside = starts[bisect_left(starts, place[0]) : bisect_left(starts, place[1])]
    if len(inside) <= tokens:
        return [place]
    edges = [place[0], *(inside[first] for first in range(tokens, len(inside), tokens)), place[1]]
    return [(start, end) for start, end in pairwise(edges) if end > start]


def _count(starts: Sequence[int], start: int, end: int) -> int:
    return bisect_left(starts, end) - bisect_left(starts, start)


def group_neighbours(lengths: Sequence[int], budget: int, separator: int) -> list[list[int]]:
    """Positions of passages that are read together: as many neighbours as fit into the budget, and at least one."""
    groups: list[list[int]] = []
    used = 0
    for position, length in enumerate(lengths):
        if groups and used + separator + length <= budget:
            groups[-1].append(position)
            used += separator + length
        else:
            groups.append([position])
            used = length
    return groups


def halved_until(groups: Sequence[list[int]], fits: Callable[[list[int]], bool]) -> list[list[int]] | None:
    """The groups, each that does not fit halved until it does; None where a single passage does not."""
    result: list[list[int]] = []
    waiting = list(reversed(groups))
    while waiting:
        group = waiting.pop()
        if fits(group):
            result.append(group)
        elif len(group) == 1:
            return None
        else:
            half = len(group) // 2
            waiting += [group[half:], group[:half]]
    return result
