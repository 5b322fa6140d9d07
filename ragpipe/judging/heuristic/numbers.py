"""Numbers in a text, brought to one form: `1,000`, `1000` and `one thousand` are equal, `5 min` is `5 minutes`.

A month beside a number counts as the number of the month, so that `March 15, 2024` agrees with `2024-03-15`.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from ragpipe.judging.heuristic.lexicon import MONTH_NUMBER, SCALE, SHORT_SCALE, SMALL, TENS, UNITS

_PIECE = re.compile(r"(?P<number>\d+(?:[.,]\d+)*)|(?P<word>[^\W\d_]+)|(?P<sign>[%$€£°])")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?\Z")
_LONGEST = 40  # digits; a longer run is an identifier and is compared as it stands


class Number(NamedTuple):
    """A number in its place. `month` marks the name of a month, `value` is then its number.

    `value` is a plain decimal without trailing zeros; what is no number (a version, an identifier) is kept as written.
    """

    value: str
    unit: str | None
    start: int
    end: int
    month: bool = False
    word: bool = False


def normal(digits: str) -> str:
    """The one written form of a number in digits: `1,000.50` is `1000.5`, `3,5` is `3.5`, `1.2.3` stays."""
    if len(digits) > _LONGEST:
        return digits
    if _GROUPED.match(digits):
        digits = digits.replace(",", "")
    elif digits.count(",") == 1 and "." not in digits:
        digits = digits.replace(",", ".")
    if digits.count(".") > 1 or "," in digits:
        return digits
    return _plain(Decimal(digits))


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def find_numbers(text: str) -> tuple[Number, ...]:
    """All numbers of a text in order, in digits or English words."""
    pieces = [(m.lastgroup, m[0].lower(), m.start(), m.end()) for m in _PIECE.finditer(text)]
    found: list[Number] = []
    at = 0
    while at < len(pieces):
        kind, word, start, end = pieces[at]
        value, used = _value(pieces, at, text)
        if value is None:
            if kind == "word" and word in MONTH_NUMBER and _beside_number(pieces, at):
                found.append(Number(str(MONTH_NUMBER[word]), None, start, end, month=True))
            at += 1
            continue
        unit, taken = _unit(pieces, at, at + used, text)
        found.append(Number(value, unit, start, pieces[at + used - 1][3], word=kind == "word"))
        at += used + taken
    return tuple(found)


_Piece = tuple[str | None, str, int, int]


def _value(pieces: list[_Piece], at: int, text: str) -> tuple[str | None, int]:
    """The number that begins at a piece and how many pieces it takes."""
    kind, word, _, end = pieces[at]
    used = 1
    if kind == "number":
        value = normal(word)
    elif kind == "word" and word in TENS:
        whole = TENS[word]
        follower = pieces[at + 1] if at + 1 < len(pieces) else None
        if follower and 0 < SMALL.get(follower[1], 0) < 10 and text[end : follower[2]] in ("-", " "):
            whole, used = whole + SMALL[follower[1]], 2
        value = str(whole)
    elif kind == "word" and word in SMALL:
        value = str(SMALL[word])
    else:
        return None, 0
    while at + used < len(pieces) and value.replace(".", "", 1).isdecimal() and len(value) < _LONGEST:
        _, follower_word, follower_start, _ = pieces[at + used]
        between = text[pieces[at + used - 1][3] : follower_start]
        scale = SCALE.get(follower_word) if between in (" ", "-", "\u00a0", "\n") else None
        if between == "" and kind == "number":
            scale = SHORT_SCALE.get(follower_word)
        if scale is None:
            break
        value, used = _plain(Decimal(value) * scale), used + 1
    return value, used


def _unit(pieces: list[_Piece], first: int, after: int, text: str) -> tuple[str | None, int]:
    """The unit beside a number (after it, or a currency sign before it) and how many pieces it takes."""
    if first and pieces[first - 1][1] in "$€£" and pieces[first - 1][3] == pieces[first][2]:
        return UNITS[pieces[first - 1][1]], 0
    if after < len(pieces) and pieces[after][1] in UNITS:
        between = text[pieces[after - 1][3] : pieces[after][2]]
        if between in ("", " ", "-", "\u00a0"):
            return UNITS[pieces[after][1]], 1
    return None, 0


def _beside_number(pieces: list[_Piece], at: int) -> bool:
    return any(0 <= i < len(pieces) and pieces[i][0] == "number" for i in (at - 1, at + 1))
