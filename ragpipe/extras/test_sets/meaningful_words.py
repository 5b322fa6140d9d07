"""The words of a question that carry its meaning: by them near-equal questions are told, and whether documents could answer."""

from __future__ import annotations

from ragpipe.judging.heuristic.lexicon import STOP_WORDS
from ragpipe.judging.heuristic.tokenized_text import normalize_word, stem
from ragpipe.patterns.sentences import WORD


def word_set(words: str) -> frozenset[str]:
    """The words of a text that lists them, divided by blanks."""
    return frozenset(words.split())


_FRAME = word_set(
    "ask exact find giv good hello help hi know list look nam need pleas quot read say short show sum tell thank want "
    "wonder word writ"
)
"""Stems of words that only frame a question: two questions that differ in them alone are the same question."""


def meaning_words(text: str) -> frozenset[str]:
    """The stems of the words of a text, without stop words and without words that only frame a question."""
    words = (normalize_word(word) for word in WORD.findall(text))
    return frozenset(stem(word) for word in words if word not in STOP_WORDS and stem(word) not in _FRAME)
