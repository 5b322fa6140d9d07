"""Highlights: the pieces of a text, those that a quote covers with the kind of that quote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragpipe.core.text_match import MatchableText


@dataclass(frozen=True)
class TextPart:
    """A piece of a text. `mark` is None for what is not highlighted, else the kind of the quote."""

    text: str
    mark: str | None = None


def highlight(text: str, quotes: Sequence[tuple[str, str]], limit: int | None = None) -> list[TextPart]:
    """The first `limit` characters of a text in pieces; those that a quote covers carry its kind.

    `quotes` are (quote, kind); where two overlap, the earlier one wins. Quotes are looked for in the whole text, in the
    way in which metrics look for them (`text_match.occurs`): what a metric accepts as a quote is highlighted here.
    """
    matchable, length = MatchableText(text), len(text) if limit is None else min(limit, len(text))
    kinds: list[str | None] = [None] * length
    for quote, kind in quotes:
        for start, end in matchable.find(quote):
            for place in range(start, min(end, length)):
                kinds[place] = kinds[place] or kind
    parts: list[TextPart] = []
    start = 0
    for place in range(1, length + 1):
        if place == length or kinds[place] != kinds[start]:
            parts.append(TextPart(text[start:place], kinds[start]))
            start = place
    return parts
