"""Where quotes occur in a text, for marking them: white space, case, quotation marks and dashes are not held against them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_QUOTE_MAX = 1000  # characters of a quote that are looked for
_PIECE_MIN = 8  # characters: a shorter piece of an elided quote occurs anywhere
_ELISION = re.compile(r"\s*(?:\[\s*)?(?:\.{3,}|…)(?:\s*\])?\s*")
_LIKE = {
    **dict.fromkeys("'‘’‚′", "['‘’‚′]"),
    **dict.fromkeys('"«»“”„″', '["«»“”„″]'),
    **dict.fromkeys("-‐‑‒–—−", "[-‐‑‒–—−]"),
}


@dataclass(frozen=True)
class Part:
    """A piece of a text. `mark` is None for what is not marked, else the name of the kind of quote."""

    text: str
    mark: str | None = None


def marked(text: str, quotes: Sequence[tuple[str, str]]) -> list[Part]:
    """The text in pieces; those that a quote covers carry its kind. `quotes` are (quote, kind); the earlier one wins.

    Every piece of a quote with an elision (`...`) is looked for by itself.
    """
    kinds: list[str | None] = [None] * len(text)
    for quote, kind in quotes:
        for piece in _ELISION.split(quote[:_QUOTE_MAX]) if quote.strip() else ():
            if len(piece) >= min(_PIECE_MIN, len(quote.strip())) and any(c.isalnum() for c in piece):
                for found in _pattern(piece).finditer(text):
                    for place in range(*found.span()):
                        kinds[place] = kinds[place] or kind
    parts: list[Part] = []
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or kinds[place] != kinds[start]:
            parts.append(Part(text[start:place], kinds[start]))
            start = place
    return parts


def _pattern(piece: str) -> re.Pattern[str]:
    words = ("".join(_LIKE.get(c) or re.escape(c) for c in word) for word in piece.split())
    return re.compile(r"\s+".join(words), re.IGNORECASE)
