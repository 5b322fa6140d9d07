from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ragpipe.core.safe_text import code_block, code_span, on_one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]8;;http://evil\x07link", "\\x1b]8;;http://evil\\x07link"),
        ("a\x00b\x7f\x9b2J", "a\\x00b\\x7f\\x9b2J"),
        ("over\rwritten", "over\\x0dwritten"),
        ("abc\u202ecba", "abc\\u202ecba"),
        ("half \ud800", "half \\ud800"),
        ("tab\tand\nline é 漢 🙂", "tab\tand\nline é 漢 🙂"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_one_line_is_cut_visibly() -> None:
    assert on_one_line("a\n b\t c", 80) == "a b c"
    assert on_one_line("x" * 50, 20) == "x" * 16 + " ..."
    assert len(on_one_line("word " * 100, 30)) <= 30


@pytest.mark.parametrize(
    ("text", "span"),
    [("plain", "`plain`"), ("a `b` c", "``a `b` c``"), ("`", "`` ` ``"), ("``x```", "```` ``x``` ````"), ("  ", "")],
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
