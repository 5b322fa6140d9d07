"""Verbatim matching: which spans of an answer occur word for word in a text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ragpipe.core.text_match import without_invisible

_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
_QUOTATION = re.compile(  # the marks of English, German, French, Polish, Swedish, Japanese ..., and Markdown block quotes
    r"“([^“”]{3,2000})”|\"([^\"]{3,2000})\"|«([^«»]{3,2000})»|‘([^‘’]{3,2000})’(?!\w)"
    r"|„([^„“”\"]{3,2000})[“”\"]|”([^”]{3,2000})”|»([^«»]{3,2000})[«»]|‹([^‹›]{3,2000})›|›([^‹›]{3,2000})‹|‚([^‚‘’]{3,2000})[‘’](?!\w)"
    r"|「([^「」]{3,2000})」|『([^『』]{3,2000})』|《([^《》]{3,2000})》|＂([^＂]{3,2000})＂|(?<!\w)'([^'\n]{3,2000})'(?!\w)"
    r"|^[ \t]*>[ \t]?([^\n]{3,2000}(?:\n[ \t]*>[^\n]{0,2000}){0,20})",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class VerbatimSpan:
    """A span of the answer that occurs in the text.

    `quoted`: some of it is in quotation marks. `exclusive`: some of it would be a span by itself and occurs in no other
    source of the words.
    """

    text: str
    words: int
    quoted: bool
    exclusive: bool


@dataclass(frozen=True, slots=True)
class VerbatimMatch:
    """The verbatim spans of an answer in order, and the number of its words that are in no span."""

    spans: tuple[VerbatimSpan, ...]
    words_left: int


@dataclass(frozen=True, slots=True)
class WordRuns:
    """The words of some texts, indexed to look up runs: all runs of `min_words` words, all pairs of neighbouring words,
    and the words of each text as one line of `joined`."""

    min_words: int
    runs: frozenset[tuple[str, ...]]
    pairs: frozenset[tuple[str, str]]
    joined: str

    @classmethod
    def of(cls, texts: Iterable[str], min_words: int) -> WordRuns:
        """Index some texts."""
        word_lists = [[word for word, _, _ in _words(without_invisible(text))] for text in texts]
        return cls(
            min_words,
            frozenset(run for words in word_lists for run in _runs_of(words, min_words)),
            frozenset(pair for words in word_lists for pair in pairwise(words)),
            "\n".join(f" {' '.join(words)} " for words in word_lists),
        )

    def matching_positions(self, words: Sequence[str]) -> set[int]:
        """The positions of the words that are in a run of `min_words` words which a text contains too."""
        starts = (start for start, run in enumerate(_runs_of(words, self.min_words)) if run in self.runs)
        return {position for start in starts for position in range(start, start + self.min_words)}

    def contain(self, words: Sequence[str]) -> bool:
        """Whether one of the texts contains these words, two or more, as a run. Pairs rule most out without a search."""
        if len(words) < 2 or not all(pair in self.pairs for pair in pairwise(words)):
            return False
        return f" {' '.join(words)} " in self.joined


def find_verbatim(answer: str, text: str, min_words: int, elsewhere: WordRuns | None = None) -> VerbatimMatch:
    """Runs of at least `min_words` words of the answer that occur as a run in the text, and shorter ones of two words or
    more that the answer puts in quotation marks.

    Case, white space, punctuation and typographic signs do not count. Scripts without spaces count characters as words.
    With `elsewhere` (of the same `min_words`), a span is exclusive only by a run of `min_words` words, or a quotation, that
    those texts do not contain.
    """
    answer = without_invisible(answer)
    located = _words(answer)
    words = [word for word, _, _ in located]
    source = WordRuns.of([text], min_words)
    matching = source.matching_positions(words)
    exclusive = matching
    if elsewhere is not None:
        exclusive = _in_long_runs(matching - elsewhere.matching_positions(words), min_words)
    quoted: set[int] = set()
    exclusively_quoted: set[int] = set()
    for quotation in _quotations(answer, located):
        quote = words[quotation.start : quotation.stop]
        if source.contain(quote):
            quoted.update(quotation)
            if elsewhere is None or not elsewhere.contain(quote):
                exclusively_quoted.update(quotation)
    matching, exclusive = matching | quoted, exclusive | exclusively_quoted
    spans = []
    for first, last in _runs(sorted(matching)):
        positions = range(first, last + 1)
        piece = answer[located[first][1] : located[last][2]]
        spans.append(
            VerbatimSpan(piece, len(positions), not quoted.isdisjoint(positions), not exclusive.isdisjoint(positions))
        )
    return VerbatimMatch(tuple(spans), len(located) - len(matching))


def _words(composed: str) -> list[tuple[str, int, int]]:
    """The words with their start and end."""
    return [(match[0].casefold(), match.start(), match.end()) for match in _WORD.finditer(composed)]


def _quotations(answer: str, located: list[tuple[str, int, int]]) -> Iterable[range]:
    """The positions of the words in each pair of quotation marks."""
    starts, ends = [start for _, start, _ in located], [end for _, _, end in located]
    for quotation in _QUOTATION.finditer(answer):
        yield range(bisect_right(starts, quotation.start()), bisect_left(ends, quotation.end()))


def _runs_of(words: Sequence[str], length: int) -> Iterable[tuple[str, ...]]:
    """All runs of this number of words."""
    return (tuple(words[start : start + length]) for start in range(len(words) - length + 1))


def _in_long_runs(positions: set[int], min_length: int) -> set[int]:
    """The positions that are in a run of at least this length."""
    runs = _runs(sorted(positions))
    return {position for first, last in runs if last - first + 1 >= min_length for position in range(first, last + 1)}


def _runs(positions: list[int]) -> list[tuple[int, int]]:
    """First and last of every run of consecutive positions."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position - 1:
            runs[-1] = (runs[-1][0], position)
        else:
            runs.append((position, position))
    return runs
