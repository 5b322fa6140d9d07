"""Quote matching: whether a quote occurs in a text, and at which characters. Typography does not count.

One normal form serves metrics that check quotes, reports that highlight them and literal checks: NFC, case folded, white
space collapsed (none beside Chinese and Japanese signs), one kind of quotation mark and of dash, one width of letters, digits,
kana and punctuation, and nothing that readers cannot see: soft hyphens, marks of direction, joiners, Arabic vowel signs, a
hyphen at the end of a line, `**`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from operator import itemgetter

Span = tuple[int, int]
"""Start and end (exclusive) of a stretch of a text, in characters."""

INVISIBLE = (
    "\u00ad\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Soft hyphen, spaces without width, joiners, marks of direction, byte order mark."""
_VOWEL_SIGNS = "".join(map(chr, (*range(0x64B, 0x653), 0x670, 0x640)))  # of Arabic, with the tatweel
_SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2032\u2039\u203a\uff07"
_DOUBLE_QUOTES = (
    "\u00ab\u00bb\u201c\u201d\u201e\u201f\u2033\u300c\u300d\u300e\u300f\u301d\u301e\u301f\uff02\uff62\uff63"
)
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
_WITHOUT_INVISIBLE = str.maketrans(dict.fromkeys(INVISIBLE))
_TYPOGRAPHY = str.maketrans(
    dict.fromkeys(_SINGLE_QUOTES, "'")
    | dict.fromkeys(_DOUBLE_QUOTES, '"')
    | dict.fromkeys(_DASHES, "-")
    | dict.fromkeys(INVISIBLE + _VOWEL_SIGNS)
)
_WIDE = re.compile("[\u3000\uff01-\uffee]+")
_CJK = "\u3001-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3002"
_DROPPED = re.compile(  # what a page break or Markdown puts between signs that belong together
    rf"(?<=[{_CJK}])\s+|(?<!\s)\s+(?=[{_CJK}])|(?<=[^\W\d_])[-\u00ad\u2010]\r?\n[ \t]*(?=[^\W\d_])|\*\*"
)
_ASCII_WORDS = re.compile(r"[!-~]+(?: [!-~]+)*(?![^\x00-\x7f])")  # the last character composes with nothing behind it
_ELISION = re.compile(r"\s*(?:\[\s*)?(?:\.{3,}|\u2026)(?:\s*\])?\s*")
_REMEMBERED_TEXTS = 512
_REMEMBERED_LENGTH = 10_000  # characters; a longer text is normalised anew each time


def without_invisible(text: str) -> str:
    """The text in NFC, without soft hyphens and zero-width spaces; case and typography stay."""
    return unicodedata.normalize("NFC", text).translate(_WITHOUT_INVISIBLE)


def normalise(text: str) -> str:
    """The text in its normal form: NFC, case folded, white space collapsed, one kind of quotation mark and dash.

    The last texts are remembered: all metrics of a case look for quotes in the same chunks and the same answer.
    """
    return _remembered_form(text) if len(text) <= _REMEMBERED_LENGTH else _normal_form(text)


def _normal_form(text: str) -> str:
    return " ".join(_fold(_DROPPED.sub("", text)).split())


_remembered_form = lru_cache(maxsize=_REMEMBERED_TEXTS)(_normal_form)


def occurs(quote: str, texts: Iterable[str]) -> bool:
    """True when one of the texts, already normalised, holds the quote.

    Quotation marks around the quote are left out. An elision (`...`) stands for any text between its pieces, which must
    occur in order in the *same* text. A quote without a letter or digit occurs nowhere.
    """
    pieces = quote_pieces(quote)
    return bool(pieces) and any(_match_in_order(pieces, text, 0) is not None for text in texts)


class MatchableText:
    """A text with its normal form and the way back from there to its own characters."""

    def __init__(self, text: str):
        self.text = text
        self.normal = normalise(text)

    def find(self, quote: str) -> list[Span]:
        """Where the quote stands in the text: a span for each of its pieces, in order, for every time that it occurs.

        Empty exactly when `occurs(quote, [self.normal])` is false. Matches do not overlap.
        """
        return self.find_pieces(quote_pieces(quote))

    def find_pieces(self, pieces: Sequence[str]) -> list[Span]:
        """As `find`, for a quote whose pieces are known (`quote_pieces`): one that is looked for in many texts."""
        spans: list[Span] = []
        start = 0
        while pieces and (matches := _match_in_order(pieces, self.normal, start)) is not None:
            spans += [self._original(match) for match in matches]
            start = matches[-1][1]
        return spans

    def _original(self, match: Span) -> Span:
        first, end = match
        return self._origin(first)[0], self._origin(end - 1)[1]

    def _origin(self, place: int) -> Span:
        """The characters of the text that the sign at `place` of the normal form was made from."""
        first, (start, end), one_by_one = self._parts[bisect_right(self._parts, place, key=itemgetter(0)) - 1]
        if one_by_one:
            start, end = start + place - first, start + place - first + 1
        return self._with_dropped(start), self._with_dropped(end - 1) + 1

    def _with_dropped(self, place: int) -> int:
        """Where a character of the text without what is dropped stands in the text."""
        at = bisect_right(self._drops, place, key=itemgetter(0)) - 1
        return place + (self._drops[at][1] if at >= 0 else 0)

    @cached_property
    def _drops(self) -> list[Span]:
        """Where something was dropped, in the text without it, and how many characters up to there."""
        drops, total = [], 0
        for match in _DROPPED.finditer(self.text):
            drops.append((match.start() - total, total + match.end() - match.start()))
            total = drops[-1][1]
        return drops

    @cached_property
    def _parts(self) -> list[tuple[int, Span, bool]]:
        """The normal form in parts: where each begins, the characters of the text that it was made from, and whether these
        became its signs one by one."""
        parts: list[tuple[int, Span, bool]] = []
        length, space = 0, None
        text = _DROPPED.sub("", self.text)
        for start, end in _stretches(text):
            stretch = text[start:end]
            one_by_one = stretch.isascii() and not stretch.isspace()
            for sign in (stretch,) if one_by_one else _fold(stretch):
                if sign.isspace():
                    space = (start, end) if space is None else (space[0], end)
                    continue
                if space is not None and parts:
                    parts.append((length, space, False))
                    length += 1
                parts.append((length, (start, end), one_by_one))
                length += len(sign)
                space = None
        return parts


def _fold(text: str) -> str:
    if text.isascii():  # there is nothing to compose and no typography
        return text.lower()
    narrow = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    return unicodedata.normalize("NFC", narrow).translate(_TYPOGRAPHY).casefold()


def quote_pieces(quote: str) -> list[str]:
    """The stretches of a normalised quote between its elisions, without the quotation marks around them."""
    normal = normalise(quote).strip("\"' ")
    parts = _ELISION.split(normal) if "..." in normal or "\u2026" in normal else [normal]
    pieces = (part.strip("\"' ") for part in parts)
    return [piece for piece in pieces if any(sign.isalnum() for sign in piece)]


def _match_in_order(pieces: Sequence[str], text: str, start: int) -> list[Span] | None:
    """Where the pieces follow each other in a normalised text from `start` on; None when one of them is missing."""
    matches = []
    for piece in pieces:
        place = text.find(piece, start)
        if place < 0:
            return None
        start = place + len(piece)
        matches.append((place, start))
    return matches


def _stretches(text: str) -> Iterator[Span]:
    """The text cut where NFC composes nothing across the cut: ASCII words with one space between them, and clusters
    between these."""
    done = 0
    for words in _ASCII_WORDS.finditer(text):
        yield from _clusters(text, done, words.start())
        yield words.span()
        done = words.end()
    yield from _clusters(text, done, len(text))


def _clusters(text: str, start: int, end: int) -> Iterator[Span]:
    """This part of a text, cut before everything but marks and Hangul vowels and finals."""
    for place in range(start + 1, end):
        sign = text[place]
        composes = "\u1160" <= sign <= "\u11ff" or sign in "\uff9e\uff9f"
        if sign < "\u0300" or not (composes or unicodedata.category(sign).startswith("M")):
            yield start, place
            start = place
    if start < end:
        yield start, end
