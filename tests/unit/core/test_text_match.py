"""Quotes are found whatever their typography, and every match leads back to the characters of the text itself."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.text_match import MatchableText, normalise, occurs, quote_pieces
from ragpipe.reports.case_views import Quotes, TextPart, highlight

SIGNS = (
    "ab ABß\n\t'\"-.\u2026[]…"
    "\u00e9e\u0301\u0327\u00ad\u200b\u2019\u201c\u201d\u2014\u1112\u1161\u11ab\u0b47\u0b3e\ufb01\u0130\u212b\u00a0"
)
TEXT = st.text(SIGNS, max_size=40)


@pytest.mark.parametrize(
    ("quote", "text", "stretches"),
    [
        ("coop gesperrt", "heute: co\u00adop gesperrt.", ["co\u00adop gesperrt"]),
        ("Cafe\u0301 open daily", "The Café open daily.", ["Café open daily"]),
        ("Café open daily", "The Cafe\u0301 open daily.", ["Cafe\u0301 open daily"]),
        ("STRASSE zwölf Uhr", "in der straße zwölf Uhr", ["straße zwölf Uhr"]),
        ("opened in 1901", "It opened\u00a0 in\n1901.", ["opened\u00a0 in\n1901"]),
        ("“It’s  here”", "He said: 'it's here' twice", ["it's here"]),
        ("one two ... four", "one two three four; one two four", ["one two", "four", "one two", "four"]),
        ("two [...] one", "one two three", []),
        ("...", "dots ... dots", []),
        ("각", "\u1100\u1161\u11a8 is composed", ["\u1100\u1161\u11a8"]),
    ],
)
def test_a_quote_is_found_at_its_characters(quote: str, text: str, stretches: list[str]) -> None:
    spans = MatchableText(text).find(quote)
    assert [text[start:end] for start, end in spans] == stretches
    assert occurs(quote, [normalise(text)]) is bool(stretches)


@pytest.mark.slow
@given(TEXT, TEXT)
def test_what_occurs_is_highlighted_and_nothing_else(text: str, quote: str) -> None:
    parts = highlight(text, Quotes([(quote, "quoted")]))
    assert "".join(part.text for part in parts) == text
    assert any(part.mark for part in parts) is occurs(quote, [normalise(text)])


@pytest.mark.slow
@given(TEXT, st.integers(0, 40), st.integers(1, 12))
def test_every_span_holds_its_piece(text: str, start: int, length: int) -> None:
    """The stretch found for a piece of the text has that piece in its own normal form, and stretches do not overlap."""
    quote = text[start : start + length]
    pieces, spans = quote_pieces(quote), MatchableText(text).find(quote)
    for place, (first, end) in enumerate(spans):
        assert pieces[place % len(pieces)] in normalise(text[first:end])
    assert all(before[0] <= after[0] for before, after in pairwise(spans))


_TYPOGRAPHY = {
    sign: plain
    for signs, plain in (("‘’‚′", "'"), ("«»“”„″", '"'), ("‐‑‒–—−", "-"), ("\u00ad\u200b", ""))
    for sign in signs
}
_ANY_ELISION = re.compile(r"\s*(?:\[\s*)?(?:\.{3,}|…)(?:\s*\])?\s*")


def _slowly_normalised(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    return " ".join("".join(_TYPOGRAPHY.get(sign, sign) for sign in composed).casefold().split())


def _slow_pieces(quote: str) -> list[str]:
    pieces = (piece.strip("\"' ") for piece in _ANY_ELISION.split(_slowly_normalised(quote).strip("\"' ")))
    return [piece for piece in pieces if any(sign.isalnum() for sign in piece)]


@pytest.mark.slow
@given(st.one_of(TEXT, st.text(max_size=40), st.text(st.characters(max_codepoint=127), max_size=40)))
def test_the_short_ways_give_the_same_normal_form_and_pieces(text: str) -> None:
    assert normalise(text) == normalise(text) == _slowly_normalised(text)
    assert quote_pieces(text) == _slow_pieces(text)


def test_a_long_text_is_normalised_like_a_short_one() -> None:
    assert normalise("“A  b” " * 5_000) == " ".join(['"a b"'] * 5_000)


def clusters(text: str) -> Iterator[tuple[int, int]]:
    """The text cut before every character that composes with none before it."""
    cuts = [
        place
        for place, sign in enumerate(text)
        if not place or not (unicodedata.category(sign).startswith("M") or "\u1160" <= sign <= "\u11ff")
    ]
    return pairwise([*cuts, len(text)] if cuts else [])


def signs_with_places(text: str) -> list[tuple[str, tuple[int, int]]]:
    """The signs of the normal form, each with the characters that it was made from: cluster by cluster, sign by sign."""
    signs: list[tuple[str, tuple[int, int]]] = []
    for start, end in clusters(text):
        space = " " if text[start].isspace() else ""
        for sign in space + normalise(text[start:end]):
            if sign == " " and signs and signs[-1][0] == " ":
                signs[-1] = (" ", (signs[-1][1][0], end))
            elif sign != " " or signs:
                signs.append((sign, (start, end)))
    return signs[:-1] if signs and signs[-1][0] == " " else signs


@pytest.mark.slow
@given(TEXT)
def test_every_sign_of_the_normal_form_leads_back_to_its_characters(text: str) -> None:
    """A quote of one letter is found at all the characters from which that letter was made."""
    expected = signs_with_places(text)
    assert "".join(sign for sign, _ in expected) == normalise(text)
    for letter in {sign for sign, _ in expected if sign.isalnum()}:
        places = [place for sign, place in expected if sign == letter]
        assert MatchableText(text).find(letter) == places


def highlighted_character_by_character(text: str, quotes: Sequence[tuple[str, str]], limit: int) -> list[TextPart]:
    """Every character gets the kind of the first quote that covers it."""
    kinds: list[str | None] = [None] * len(text)
    for quote, kind in quotes:
        for start, end in MatchableText(text).find(quote):
            kinds[start:end] = [before or kind for before in kinds[start:end]]
    shown = list(zip(text, kinds, strict=True))[:limit]
    return [
        TextPart("".join(sign for sign, _ in part), kind)
        for kind, part in ((kind, list(group)) for kind, group in groupby(shown, key=lambda pair: pair[1]))
    ]


@pytest.mark.slow
@given(TEXT, st.lists(st.tuples(TEXT | st.sampled_from("abeß"), st.sampled_from(("supports", "against", "quoted")))), st.integers(0, 50))  # fmt: skip
def test_the_first_of_two_overlapping_quotes_wins(text: str, quotes: list[tuple[str, str]], limit: int) -> None:
    quotes = quotes + [(text[start : start + 5], kind) for start, (_, kind) in enumerate(quotes)]
    assert highlight(text, Quotes(quotes), limit) == highlighted_character_by_character(text, quotes, limit)
