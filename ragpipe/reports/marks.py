"""Where quotes occur in a text, for marking them: white space, case, quotation marks and dashes are not held against them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_QUOTE_MAX = 1000  # characters of a quote that are looked for
_PIECE_MIN = 8  # characters: a shorter piece of an elided quote occurs anywhere
_ELISION = re.compile(r"\s*(?:\[\s*)?(?:\.{3,}|…)(?:\s*\])?\s*")
_LIKE = {**dict.fromkeys("'‘’‚′", "['‘’‚′]"), **dict.fromkeys('"«»“”„″', '["«»“”„″]'),
         **dict.fromkeys("-‐‑‒–—−", "[-‐‑‒–—−]")}  # fmt: skip
_FOLDED = str.maketrans(
    {**{c: like[1] for c, like in _LIKE.items()}, **dict.fromkeys("\t\n\r\f\v\x1c\x1d\x1e\x1f", " ")}
)
_ODD = re.compile(r"[^\x00-\x7f]|  ")


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
    folded = _folded(text) if quotes else None
    for quote, kind in quotes:
        for piece in _ELISION.split(quote[:_QUOTE_MAX]) if quote.strip() else ():
            if len(piece) >= min(_PIECE_MIN, len(quote.strip())) and any(c.isalnum() for c in piece):
                for start, end in _spans(piece, text, folded):
                    for place in range(start, end):
                        kinds[place] = kinds[place] or kind
    parts: list[Part] = []
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or kinds[place] != kinds[start]:
            parts.append(Part(text[start:place], kinds[start]))
            start = place
    return parts


def _spans(piece: str, text: str, folded: str | None) -> Iterator[tuple[int, int]]:
    """Where the piece occurs. `folded` is `_folded(text)`: most texts have one, and a search in it takes a tenth of the
    time in which a pattern is compiled."""
    wanted = _folded(" ".join(piece.split()))
    if folded is None or wanted is None:
        yield from (found.span() for found in _pattern(piece).finditer(text))
        return
    place = folded.find(wanted)
    while place >= 0:
        yield place, place + len(wanted)
        place = folded.find(wanted, place + len(wanted))


def _folded(text: str) -> str | None:
    """The text without what is not held against a quote, letter for letter; None where it cannot be had so: beyond ASCII a
    letter has several lower cases or none of its length, and a run of white space is one word gap."""
    found = text.translate(_FOLDED).lower()
    return None if _ODD.search(found) else found


def _pattern(piece: str) -> re.Pattern[str]:
    words = ("".join(_LIKE.get(c) or re.escape(c) for c in word) for word in piece.split())
    return re.compile(r"\s+".join(words), re.IGNORECASE)
