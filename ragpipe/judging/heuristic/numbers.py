"""The numbers of a text in a normal form: `1,000`, `1000` and `one thousand` are equal, `5 min` is `5 minutes`.

A month beside a number counts as the number of the month, so that `March 15, 2024` agrees with `2024-03-15`.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from ragpipe.judging.heuristic.lexicon import MONTH_NUMBER, SCALE, SHORT_SCALE, SMALL, TENS, UNITS

_PIECE = re.compile(r"(?P<number>\d+(?:[.,]\d+)*)|(?P<word>[^\W\d_]+)|(?P<sign>[%$€£°])")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?\Z")
_IDENTIFIER = re.compile(r"0\d{3,}\Z")  # a postcode, a telephone number: its zero counts
_LONGEST = 40  # digits; a longer number is an identifier and is compared as written


class Number(NamedTuple):
    """A number and where it is in the text.

    `value` is a plain decimal without trailing zeros; versions and identifiers are kept as written. `month`: it is the
    name of a month, and `value` the month's number. `word`: it is written in words.
    """

    value: str
    unit: str | None
    start: int
    end: int
    month: bool = False
    word: bool = False


def normalize_digits(digits: str) -> str:
    """The normal form of a number in digits: `1,000.50` is `1000.5`, `3,5` is `3.5`, `1.2.3` stays."""
    if len(digits) > _LONGEST or _IDENTIFIER.match(digits):
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


_Piece = tuple[str | None, str, int, int]
"""A part of the text: `number`, `word` or `sign`, its lower-case text, start and end."""


def find_numbers(text: str) -> tuple[Number, ...]:
    """All numbers of a text in order, in digits or English words."""
    pieces = [(m.lastgroup, m[0].lower(), m.start(), m.end()) for m in _PIECE.finditer(text)]
    numbers: list[Number] = []
    at = 0
    while at < len(pieces):
        kind, word, start, end = pieces[at]
        value, used = _value(pieces, at, text)
        if value is None:
            if kind == "word" and word in MONTH_NUMBER and _beside_number(pieces, at):
                numbers.append(Number(str(MONTH_NUMBER[word]), None, start, end, month=True))
            at += 1
            continue
        unit, unit_pieces = _unit(pieces, at, at + used, text)
        numbers.append(Number(value, unit, start, pieces[at + used - 1][3], word=kind == "word"))
        at += used + unit_pieces
    return tuple(numbers)


def _value(pieces: list[_Piece], at: int, text: str) -> tuple[str | None, int]:
    """The number that begins at a piece, and how many pieces it takes; None where none begins there."""
    kind, word, start, _ = pieces[at]
    if kind == "number":
        if text[start - 1 : start] == "^" and text[start - 2 : start - 1].isalpha():
            return None, 0  # the power of a letter: r^2
        return _scaled(normalize_digits(word), 1, pieces, at, text)
    if kind == "word" and word in TENS:
        value, used = _tens(pieces, at, text)
        return _scaled(str(value), used, pieces, at, text)
    if kind == "word" and word in SMALL:
        return _scaled(str(SMALL[word]), 1, pieces, at, text)
    return None, 0


def _tens(pieces: list[_Piece], at: int, text: str) -> tuple[int, int]:
    """`twenty`, or `twenty-one` with the piece after it; and how many pieces that takes."""
    _, word, _, end = pieces[at]
    if at + 1 < len(pieces):
        _, next_word, next_start, _ = pieces[at + 1]
        if 0 < SMALL.get(next_word, 0) < 10 and text[end:next_start] in ("-", " "):
            return TENS[word] + SMALL[next_word], 2
    return TENS[word], 1


def _scaled(value: str, used: int, pieces: list[_Piece], at: int, text: str) -> tuple[str, int]:
    """The value multiplied by the scales that follow it (`thousand`, `k`), and how many pieces that takes."""
    while at + used < len(pieces) and value.replace(".", "", 1).isdecimal() and len(value) < _LONGEST:
        _, scale_word, scale_start, _ = pieces[at + used]
        between = text[pieces[at + used - 1][3] : scale_start]
        scale = SCALE.get(scale_word) if between in (" ", "-", "\u00a0", "\n") else None
        if between == "" and pieces[at][0] == "number":
            scale = SHORT_SCALE.get(scale_word)
        if scale is None:
            break
        value, used = _plain(Decimal(value) * scale), used + 1
    return value, used


def _unit(pieces: list[_Piece], first: int, after: int, text: str) -> tuple[str | None, int]:
    """The unit of a number (after it, or a currency sign before it), and how many pieces after the number it takes."""
    if first and pieces[first - 1][1] in "$€£" and pieces[first - 1][3] == pieces[first][2]:
        return UNITS[pieces[first - 1][1]], 0
    points = [piece[1] for piece in pieces[after : after + 2]]
    if len(points) == 2 and points[0] in ("percentage", "percent") and points[1] in ("point", "points"):
        return "percentage points", 2
    if after < len(pieces) and pieces[after][1] in UNITS:
        between = text[pieces[after - 1][3] : pieces[after][2]]
        if between in ("", " ", "-", "\u00a0"):
            return UNITS[pieces[after][1]], 1
    return None, 0


def _beside_number(pieces: list[_Piece], at: int) -> bool:
    return any(0 <= i < len(pieces) and pieces[i][0] == "number" for i in (at - 1, at + 1))
