"""Does a quote occur in a text? Case, white space, quotation marks and dashes are not held against it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_SAME = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201a": "'",
        "\u2032": "'",
        "\u00ab": '"',
        "\u00bb": '"',
        "\u201c": '"',
        "\u201d": '"',
        "\u201e": '"',
        "\u2033": '"',
        "\u2010": "-",
        "\u2011": "-",
        "\u2012": "-",
        "\u2013": "-",
        "\u2014": "-",
        "\u2212": "-",
        "\u00ad": None,
        "\u200b": None,
    }
)
_ELISION = re.compile(r"\s*(?:\[\s*)?(?:\.{3,}|\u2026)(?:\s*\])?\s*")


def normalise(text: str) -> str:
    """The text in one form: NFC, case folded, white space collapsed, one kind of quotation mark and dash."""
    return " ".join(unicodedata.normalize("NFC", text).translate(_SAME).casefold().split())


def occurs(quote: str, texts: Iterable[str]) -> bool:
    """True when one of the texts, already normalised, holds the quote.

    Quotation marks around the quote are left out. An elision (`...`) stands for any text between its pieces, which must
    occur in order in the *same* text. A quote without a letter or digit occurs nowhere.
    """
    pieces = [piece.strip("\"' ") for piece in _ELISION.split(normalise(quote).strip("\"' "))]
    pieces = [piece for piece in pieces if any(c.isalnum() for c in piece)]
    return bool(pieces) and any(_in_order(pieces, text) for text in texts)


def _in_order(pieces: list[str], text: str) -> bool:
    start = 0
    for piece in pieces:
        found = text.find(piece, start)
        if found < 0:
            return False
        start = found + len(piece)
    return True
