"""Quotes are found whatever their typography, and every match leads back to the characters of the text itself."""

import json
import re
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ragpipe.core import strict_json
from ragpipe.core.text import MatchableText, code_block, code_span, normalise, occurs, on_one_line, printable
from ragpipe.report.case_views import Quotes, highlight

SIGNS = (
    "ab ABß\n\t'\"-.\u2026[]…\u00e9e\u0301\u0327\u00ad\u200b\u2019\u201c\u201d\u2014\u1112\u1161\u11ab\u0b47\u0b3e\ufb01\u0130\u212b\u00a0"
)
TEXT = st.text(SIGNS, max_size=40)


@pytest.mark.parametrize(("quote", "text", "stretches"), [
    ("coop gesperrt", "heute: co\u00adop gesperrt.", ["co\u00adop gesperrt"]),
    ("Cafe\u0301 open daily", "The Café open daily.", ["Café open daily"]),
    ("Café open daily", "The Cafe\u0301 open daily.", ["Cafe\u0301 open daily"]),
    ("STRASSE zwölf Uhr", "in der straße zwölf Uhr", ["straße zwölf Uhr"]),
    ("opened in 1901", "It opened\u00a0 in\n1901.", ["opened\u00a0 in\n1901"]),
    ("“It’s  here”", "He said: 'it's here' twice", ["it's here"]),
    ("one two ... four", "one two three four; one two four", ["one two", "four", "one two", "four"]),
    ("«ten - twelve»", "from ten\u2013twelve, ten \u2014 twelve \u200bhours", ["ten \u2014 twelve"]),
    ("two [...] one", "one two three", []),
    ("...", "dots ... dots", []),
    ("각", "\u1100\u1161\u11a8 is composed", ["\u1100\u1161\u11a8"]),
])  # fmt: skip
def test_a_quote_is_found_at_its_characters(quote, text, stretches):
    spans = MatchableText(text).find(quote)
    assert [text[start:end] for start, end in spans] == stretches
    assert occurs(quote, [normalise(text)]) is bool(stretches)


@pytest.mark.slow
@given(TEXT, TEXT)
def test_what_occurs_is_highlighted_and_nothing_else(text, quote):
    parts = highlight(text, Quotes([(quote, "quoted")]))
    assert "".join(part.text for part in parts) == text
    assert any(part.mark for part in parts) is occurs(quote, [normalise(text)])


_JOINED = re.compile(r"[-\u00ad\u2010]\r?\n|\*\*")  # a word over two lines and emphasis, which no single sign shows


def test_a_long_text_is_normalised_like_a_short_one():
    assert normalise("“A  b” " * 5_000) == " ".join(['"a b"'] * 5_000)


def clusters(text):
    """The text cut before every character that composes with none before it."""
    cuts = [
        place
        for place, sign in enumerate(text)
        if not place or not (unicodedata.category(sign).startswith("M") or "\u1160" <= sign <= "\u11ff")
    ]
    return pairwise([*cuts, len(text)] if cuts else [])


def signs_with_places(text):
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
def test_every_sign_of_the_normal_form_leads_back_to_its_characters(text):
    """A quote of one letter is found at all the characters from which that letter was made."""
    assume(not _JOINED.search(text))
    expected = signs_with_places(text)
    assert "".join(sign for sign, _ in expected) == normalise(text)
    for letter in {sign for sign, _ in expected if sign.isalnum()}:
        places = [place for sign, place in expected if sign == letter]
        assert MatchableText(text).find(letter) == places


@pytest.mark.parametrize(("text", "shown"), [
    ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"), ("\x1b]8;;http://evil\x07link", "\\x1b]8;;http://evil\\x07link"),
    ("a\x00b\x7f\x9b2J", "a\\x00b\\x7f\\x9b2J"), ("over\rwritten", "over\\x0dwritten"), ("abc\u202ecba", "abc\\u202ecba"),
    ("half \ud800", "half \\ud800"), ("tab\tand\nline é 漢 🙂", "tab\tand\nline é 漢 🙂"),
])  # fmt: skip
def test_control_characters_are_shown(text, shown):
    assert printable(text) == shown


def test_one_line_is_cut_visibly():
    assert on_one_line("a\n b\t c", 80) == "a b c"
    assert on_one_line("x" * 50, 20) == "x" * 16 + " ..."
    assert len(on_one_line("word " * 100, 30)) <= 30


@pytest.mark.parametrize(
    ("text", "span"), [("plain", "`plain`"), ("a `b` c", "``a `b` c``"), ("`", "`` ` ``"), ("``x```", "```` ``x``` ````"), ("  ", "")]
)
def test_code_spans(text, span):
    assert code_span(text) == span


@given(st.text(alphabet=st.sampled_from("ab`~<>[]()!|\\*_#&;:/.@\n\r\t\x1b \u202e\ud800é-="), max_size=60))
def test_in_code_nothing_is_markup(text):
    """CommonMark reads back exactly the printable text: one code span, one block, nothing else."""
    reader = MarkdownIt("commonmark")
    if span := code_span(text, 1000):
        (inline,) = [t for t in reader.parse("x " + span) if t.type == "inline"]
        (found,) = [t for t in inline.children or [] if t.type != "text"]
        assert (found.type, found.content) == ("code_inline", on_one_line(text, 1000))
    tokens = reader.parse(code_block(text, 1000) + "\n\nafter")
    assert [t.type for t in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert tokens[0].content == printable(text.replace("\r\n", "\n").replace("\r", "\n")) + "\n"


REFUSED = [
    '{"a": 1, "a": 2}', '{"a": 1, "b": {"c": 1, "c": 1}}', '{"a": "x\\u0022:", "b": 1, "b": 2}', '{"\\u0061": 1, "a": 2}', '{"a": 1e999}',
    '{"a":1,"a" :2}', '{"a": "b: c", "x":\t1, "x"\n: 2}', '[{"a": ":"}, {"a":1, "a":2}]', "[[2], [-1e999]]", "1e999",
    '{"a":1,"a":"\\u003A"}', '{":":1,"a":":","a":2}', f"[{'9' * 400}.0]",
    '{"a": NaN}', '{"a": -Infinity}', '"\\ud800"', "[" * 101 + "]" * 101, "1" * 4301, '{"a": 1} x', "\ufeff{}",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_strict_json_is_refused(text):
    with pytest.raises(strict_json.InvalidJson):
        strict_json.strict_loads(text)


@pytest.mark.parametrize("text", [
    ' {"a": "Infinity"}\n', '"\ud800"', '{"a:b": ":", "b": "\\u003a", "c" : 1}', '"\\ud83d\\ude00"', "[" * 100 + "]" * 100, "null",
    '{"a": 1.5, "b": [true]}',
])  # fmt: skip
def test_all_other_json_is_read_as_json_reads_it(text):
    assert strict_json.strict_loads(text) == json.loads(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text('ab":\\ ,{}é', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab": ', max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]), st.booleans(), st.booleans(), st.integers(0, 60))
def test_strict_json_is_what_a_reader_of_pairs_says(value, separators, ascii_only, colon_escaped, twice):
    """Whatever stands in texts and between them, and with a name once more."""
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
    if colon_escaped:  # also the structure's, where it makes no JSON
        text = text.replace("b:", "b\\u003a").replace(":b", "\\u003Ab")
    text = text[:twice] + re.sub(r"\{", '{"a"' + separators[1] + "1, ", text[twice:], count=1)
    found: list[str] = []

    def pairs(items):
        found.extend(name for name, times in Counter(name for name, _ in items).items() if times > 1)
        return dict(items)

    try:
        expected = json.loads(text, object_pairs_hook=pairs, parse_constant=found.append)
    except ValueError:
        expected, found = None, ["no JSON"]
    if found:
        with pytest.raises(strict_json.InvalidJson):
            strict_json.strict_loads(text)
    else:
        assert strict_json.strict_loads(text) == expected


@pytest.mark.parametrize(("text", "message", "column"), [
    ('{"a": "x', "Unterminated string", 7), ('["\x01"]', "Invalid control character", 3), ('{"a" 1}', "Expecting ':' delimiter", 6),
    ('"\\q"', "Invalid \\escape", 2),
])  # fmt: skip
def test_a_message_is_whole_without_the_place(text, message, column):
    """Readers add ` at column 7`; the messages of `json` may end in `at` already."""
    with pytest.raises(strict_json.InvalidJson) as found:
        strict_json.strict_loads(text)
    assert (str(found.value), found.value.column) == (message, column)
