"""Words of questions and passages in the form in which they are compared: lower case, without stop words and endings."""

from __future__ import annotations

import re

from ragpipe.judging.heuristic.lexicon import STOP_WORDS
from ragpipe.judging.heuristic.tokenized_text import stem

_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")
_QUARTER = re.compile(r"\b(first|second|third|fourth) quarter(?: of)?\b")
_QUARTERS = {"first": "q1", "second": "q2", "third": "q3", "fourth": "q4"}


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SAY_NOTHING = STOP_WORDS | _set(
    """according be else exactly far fast get gets give given large least long longer lot me might more most much must my name need
    needs per please quick run running runs s tarnwick tell under until us whose why would"""
)
_SAME_WORD = dict(
    pair.split("=", 1)
    for pair in _set(
        """accurate=accuracy bought=buy ceo=chief cost=price costs=price kept=keep phone=telephone sales=sold sell=sold sells=sold
        staff=employee weigh=weight weighs=weight"""
    )
)
"""Written by hand: what a lexical retriever cannot know by itself."""


def search_words(text: str) -> list[str]:
    """The stems of all words that carry meaning, in order and with repetitions; `third quarter of 2025` becomes `q3 2025`."""
    plain = _QUARTER.sub(lambda match: _QUARTERS[match[1]], text.casefold().replace("\u2019", "'"))
    words = (_SAME_WORD.get(word, word) for word in _WORD.findall(plain) if word not in _SAY_NOTHING)
    return [word if has_digit(word) else stem(word) for word in words]


def has_digit(word: str) -> bool:
    """Whether it is a number, a year, a quarter or a code such as E13."""
    return any(character.isdigit() for character in word)
