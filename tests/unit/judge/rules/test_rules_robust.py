"""Odd texts: never an exception beside Skipped, never a number out of range, evidence always literal, no slow input."""

import contextlib
import itertools
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragpipe.core.errors import Skipped
from ragpipe.core.text import normalise
from ragpipe.judge.answers import Groundedness
from ragpipe.judge.rules.claims import index_sources
from ragpipe.judge.rules.rules_judge import decide
from ragpipe.judge.rules.settings import RulesSettings
from tests.support.growth import assert_linear

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

_WORDS = st.sampled_from(
    [
        "tea", "green", "China", "Beijing", "not", "never", "80", "1,000", "two", "million", "%", "$", "minutes", "May", "5", "“", "”",
        '"', "'", "[1]", "(Passage", "2)", ".", "!", "?", ":", ";", "|", "*", "#", "-", "\n", "degrees", "isn't", "北京", "شاي", "U.S.",
        "Dr.", "e.g.", "3.5", "2024-03-15", "\u2028", "\u200f", "é", "ß", "İ", "ﬁ", "²", "٣", "0x1f", "A.", "I",
    ]
)  # fmt: skip
_TEXT = st.one_of(st.text(max_size=200), st.lists(_WORDS, max_size=40).map(" ".join), st.lists(_WORDS, max_size=40).map("".join))


@given(claims=st.lists(_TEXT, max_size=4), sources=st.lists(_TEXT, max_size=4))
@example(claims=["2"], sources=["²", "A'TWO"])
def test_every_text_gets_a_verdict_with_literal_evidence(claims, sources):
    found = []
    with contextlib.suppress(Skipped):  # sources in another language may leave no verdict
        found = decide(claims, index_sources(tuple(sources)), RulesSettings())
        assert [f.claim for f in found] == claims
    for finding in found:
        s = finding.features
        for share in (s.recall, s.window, s.bigrams, s.lcs, s.numbers, s.names, finding.overlap):
            assert math.isfinite(share)
            assert 0 <= share <= 1
        shown = normalise(finding.evidence or "")  # what nobody sees is in no quote
        assert not finding.evidence or any(shown in normalise(source) for source in sources)
        assert finding.evidence or not finding.supported


HUGE = {
    "prose": "The cat sat on the mat in 1999. Dogs bark at Mr. Smith (often) by 5.5 p.m. in May! " * 1_250,
    "counted prose": " ".join(f"The grey cat number {n} sat on a red mat." for n in range(2_500)),
    "one word": "a" * 100_000,
    "no stop": "word " * 20_000,
    "spaces": "a" + " " * 100_000 + "b",
    "open brackets": "[" * 50_000 + "(" * 50_000,
    "bracket and spaces": ("[" + " " * 99) * 1_000,
    "quotes": '"' * 100_000,
    "quoted": '"no such thing here" ' * 5_000,
    "pipes": "| - " * 25_000 + "x",
    "stars": "*" * 50_000 + "_" * 50_000,
    "stops": "." * 100_000 + "a",
    "bullets": "1. " * 33_000 + "end",
    "lines": "\n" * 100_000,
    "digits": "7" * 100_000,
    "numbers": "1,000 two million 5 min " * 4_000,
    "commas": "1," * 50_000,
    "capitals": "Ab Cd Ef " * 11_000,
    "shouting": "NATO " * 20_000,
    "Chinese": "北京是中国的首都。" * 3_700,
    "Arabic": "عاصمة فرنسا هي باريس. " * 4_500,
    "not not": "not " * 25_000,
    "passages": "the passages do " * 6_500,
    "based on": "based on the " * 8_000,
    "apostrophes": "a'" * 50_000,
    "accents": "é\u0301" * 50_000,
}


_LONG = (
    "prose", "counted prose", "Chinese", "Arabic", "bullets", "capitals", "quoted", "accents", "numbers", "shouting", "based on", "passages",
    "not not", "commas", "no stop", "apostrophes", "quotes",
)  # fmt: skip


@pytest.mark.thorough(tried=9)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in _LONG else []) for n in HUGE])
def test_the_time_of_a_hundred_kilobytes_grows_with_their_number(ask, name):
    numbers = itertools.count(1_000)

    def judge(size):
        text = f"{next(numbers)} {HUGE[name][:size]}"  # another text each time: what was read once is remembered
        with contextlib.suppress(Skipped):
            assert 0 <= ask(Groundedness, text=text, sources=[text, HUGE["prose"][:5_000]]).score <= 5

    assert_linear(judge, len(HUGE[name]))
