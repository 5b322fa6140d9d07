"""Quotes are found whatever their typography, and every match leads back to the characters of the text itself."""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ragpipe.core import strict_json
from ragpipe.core.safe_text import code_block, code_span, on_one_line, printable
from ragpipe.core.text_match import MatchableText, normalise, occurs, quote_pieces
from ragpipe.reports.case_views import Quotes, TextPart, highlight

SIGNS = (
    "ab ABß\n\t'\"-.\u2026[]…\u00e9e\u0301\u0327\u00ad\u200b\u2019\u201c\u201d\u2014\u1112\u1161\u11ab\u0b47\u0b3e\ufb01\u0130\u212b\u00a0"
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
    for signs, plain in (
        ("‘’‚′", "'"),
        ("«»“”„″", '"'),
        ("‐‑‒–—−", "-"),
        ("\u00ad\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", ""),
    )
    for sign in signs
}
_ANY_ELISION = re.compile(r"\s*(?:\[\s*)?(?:\.{3,}|…)(?:\s*\])?\s*")


_JOINED = re.compile(r"[-\u00ad\u2010]\r?\n|\*\*")  # a word over two lines and emphasis, which no single sign shows


def _slowly_normalised(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    return " ".join("".join(_TYPOGRAPHY.get(sign, sign) for sign in composed).casefold().split())


def _slow_pieces(quote: str) -> list[str]:
    pieces = (piece.strip("\"' ") for piece in _ANY_ELISION.split(_slowly_normalised(quote).strip("\"' ")))
    return [piece for piece in pieces if any(sign.isalnum() for sign in piece)]


@pytest.mark.slow
@given(st.one_of(TEXT, st.text(st.characters(max_codepoint=0x5FF), max_size=40), st.text(st.characters(max_codepoint=127), max_size=40)))
def test_the_short_ways_give_the_same_normal_form_and_pieces(text: str) -> None:
    assume(not _JOINED.search(text))
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
    assume(not _JOINED.search(text))
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


@pytest.mark.parametrize(("text", "shown"), [
    ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"), ("\x1b]8;;http://evil\x07link", "\\x1b]8;;http://evil\\x07link"),
    ("a\x00b\x7f\x9b2J", "a\\x00b\\x7f\\x9b2J"), ("over\rwritten", "over\\x0dwritten"), ("abc\u202ecba", "abc\\u202ecba"),
    ("half \ud800", "half \\ud800"), ("tab\tand\nline é 漢 🙂", "tab\tand\nline é 漢 🙂"),
])  # fmt: skip
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_one_line_is_cut_visibly() -> None:
    assert on_one_line("a\n b\t c", 80) == "a b c"
    assert on_one_line("x" * 50, 20) == "x" * 16 + " ..."
    assert len(on_one_line("word " * 100, 30)) <= 30


@pytest.mark.parametrize(
    ("text", "span"), [("plain", "`plain`"), ("a `b` c", "``a `b` c``"), ("`", "`` ` ``"), ("``x```", "```` ``x``` ````"), ("  ", "")]
)
def test_code_spans(text: str, span: str) -> None:
    assert code_span(text) == span


@given(st.text(alphabet=st.sampled_from("ab`~<>[]()!|\\*_#&;:/.@\n\r\t\x1b \u202e\ud800é-="), max_size=60))
def test_in_code_nothing_is_markup(text: str) -> None:
    """CommonMark reads back exactly the printable text: one code span, one block, nothing else."""
    reader = MarkdownIt("commonmark")
    if span := code_span(text, 1000):
        (inline,) = [t for t in reader.parse("x " + span) if t.type == "inline"]
        (found,) = [t for t in inline.children or [] if t.type != "text"]
        assert (found.type, found.content) == ("code_inline", on_one_line(text, 1000))
    tokens = reader.parse(code_block(text, 1000) + "\n\nafter")
    assert [t.type for t in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert tokens[0].content == printable(text.replace("\r\n", "\n").replace("\r", "\n")) + "\n"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def outcome(text: str) -> Any:
    try:
        return repr(strict_json.strict_loads(text))
    except strict_json.InvalidJson as error:
        return str(error), error.column


def thorough(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(strict_json, "_fast_loads", lambda text: None)
        return outcome(text)


@pytest.mark.slow
@given(PLAIN, st.booleans(), st.sampled_from([(", ", ": "), (",", ":"), (" ,", " :")]))
def test_values_are_the_same(value: Any, ascii_only: bool, separators: tuple[str, str]) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=separators)
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(text) == thorough(text, patch)


@pytest.mark.slow
@given(st.text('{}[]:,"\\u0022aeE1.-9 ', max_size=24))
def test_any_text_ends_alike(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(text) == thorough(text, patch)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}', '{"a": 1, "b": {"c": 1, "c": 1}}', '{"a" :1, "a":2}', '{"a":1, "a"\t:2}',
        '{"a": "x\\u0022:", "b": 1, "b": 2}', '{"a": "x\\":", "b": 1, "b": 2}', '{"\\u0061": 1, "a": 2}', '{"a": 1e999}', '{"a": NaN}',
        '{"a": -Infinity}', '{"a": "Infinity"}', '"\\ud800"', '"\\ud83d\\ude00"', "[" * 101 + "]" * 101, "[" * 100 + "]" * 100,
        "1" * 4301, '{"a": 1} x', "\ufeff{}", "null",
    ],
)  # fmt: skip
def test_what_only_one_parser_would_accept(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(text) == thorough(text, monkeypatch)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ('{"a": "x', "Unterminated string", 7), ('["\x01"]', "Invalid control character", 3), ('{"a" 1}', "Expecting ':' delimiter", 6),
        ('"\\q"', "Invalid \\escape", 2),
    ],
)  # fmt: skip
def test_a_message_is_whole_without_the_place(text: str, message: str, column: int) -> None:
    """Readers add ` at column 7`; the messages of `json` may end in `at` already."""
    assert outcome(text) == (message, column)
