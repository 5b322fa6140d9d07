"""Highlights: the pieces of a text, those that a quote covers with the kind of that quote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ragpipe.core.text_match import MatchableText, Span, quote_pieces


@dataclass(frozen=True)
class TextPart:
    """A piece of a text. `mark` is None for what is not highlighted, else the kind of the quote."""

    text: str
    mark: str | None = None


class Quotes:
    """Quotes that are looked for in many texts: their pieces (`text_match.quote_pieces`), made once, each with a kind."""

    def __init__(self, quotes: Iterable[tuple[str, str]]):
        self.kinds: dict[tuple[str, ...], str] = {}
        for quote, kind in quotes:  # a quote that is there already would cover nothing that is not covered
            self.kinds.setdefault(tuple(quote_pieces(quote)), kind)


def highlight(text: str, quotes: Quotes, limit: int | None = None) -> list[TextPart]:
    """The first `limit` characters of a text in pieces; those that a quote covers carry its kind.

    Where two quotes overlap, the earlier one wins. Quotes are looked for in the whole text, in the way in which metrics
    look for them (`text_match.occurs`): what a metric accepts as a quote is highlighted here.
    """
    length = len(text) if limit is None else min(limit, len(text))
    if not quotes.kinds:
        return [TextPart(text[:length])] if length else []
    covers = _covers(text, quotes)
    kinds = ["", *dict.fromkeys(kind for kind, _ in covers)]
    covered = np.zeros(length, np.int64)
    for kind, (start, end) in reversed(covers):  # the earlier ones last, over the later ones
        covered[start:end] = kinds.index(kind)
    cuts = [0, *(np.flatnonzero(np.diff(covered)) + 1).tolist(), length] if length else []
    return [TextPart(text[start:end], kinds[covered[start]] or None) for start, end in pairwise(cuts)]


def _covers(text: str, quotes: Quotes) -> list[tuple[str, Span]]:
    """The stretches of a text that quotes cover, in the order of the quotes."""
    matchable = MatchableText(text)
    return [(kind, span) for pieces, kind in quotes.kinds.items() for span in matchable.find_pieces(pieces)]
