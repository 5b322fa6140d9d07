"""Which stretches of an answer stand word for word in a text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ragpipe.core.text_match import compose

_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
_QUOTED = re.compile(r"“([^“”]{3,2000})”|\"([^\"]{3,2000})\"|«([^«»]{3,2000})»|‘([^‘’]{3,2000})’(?!\w)")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of the answer that is literally in the text; `marked` when it stands in quotation marks, `own` when
    something of it that would be a stretch by itself stands nowhere else."""

    text: str
    words: int
    marked: bool
    own: bool


@dataclass(frozen=True, slots=True)
class Literal:
    """The literal stretches of an answer in order, and the number of its words that are in none."""

    stretches: tuple[Stretch, ...]
    words_left: int


@dataclass(frozen=True, slots=True)
class Passages:
    """The words of some texts, to look runs up in: all runs of `least` words, all pairs of neighbours, and the words of
    all texts in one line, the texts apart."""

    least: int
    runs: frozenset[tuple[str, ...]]
    pairs: frozenset[tuple[str, str]]
    joined: str

    @classmethod
    def of(cls, texts: Iterable[str], least: int) -> Passages:
        several = [[word for word, _, _ in _words(compose(text))] for text in texts]
        return cls(
            least,
            frozenset(tuple(some[i : i + least]) for some in several for i in range(len(some) - least + 1)),
            frozenset(pair for some in several for pair in pairwise(some)),
            "\n".join(f" {' '.join(some)} " for some in several),
        )

    def covered(self, words: Sequence[str]) -> set[int]:
        """The places of the words that stand in a run of `least` words which a text holds too."""
        starts = (i for i in range(len(words) - self.least + 1) if tuple(words[i : i + self.least]) in self.runs)
        return {place for start in starts for place in range(start, start + self.least)}

    def hold(self, words: Sequence[str]) -> bool:
        """Whether one of the texts holds these words, two or more, as a run. Pairs rule most out without a search."""
        if len(words) < 2 or not all(pair in self.pairs for pair in pairwise(words)):
            return False
        return f" {' '.join(words)} " in self.joined


def literal_in(answer: str, text: str, least: int, elsewhere: Passages | None = None) -> Literal:
    """Runs of at least `least` words of the answer that occur as a run in the text, and shorter ones of two words or more
    that the answer puts in quotation marks.

    Case, white space, punctuation and typographic signs are not held against a quote. Scripts without spaces count
    characters as words. With `elsewhere` (of the same `least`), a stretch is its own only by a run of `least` words, or
    a quotation, that those texts do not hold.
    """
    answer = compose(answer)
    found = _words(answer)
    words = [word for word, _, _ in found]
    there = Passages.of([text], least)
    covered = there.covered(words)
    own = covered if elsewhere is None else _long(covered - elsewhere.covered(words), least)
    starts, ends = [start for _, start, _ in found], [end for _, _, end in found]
    quoted: set[int] = set()
    quotes_own: set[int] = set()
    for mark in _QUOTED.finditer(answer):
        inside = range(bisect_right(starts, mark.start()), bisect_left(ends, mark.end()))
        quote = words[inside.start : inside.stop]
        if there.hold(quote):
            quoted.update(inside)
            if elsewhere is None or not elsewhere.hold(quote):
                quotes_own.update(inside)
    covered, own = covered | quoted, own | quotes_own
    stretches = []
    for first, last in _runs(sorted(covered)):
        places = range(first, last + 1)
        piece = answer[found[first][1] : found[last][2]]
        stretches.append(Stretch(piece, len(places), not quoted.isdisjoint(places), not own.isdisjoint(places)))
    return Literal(tuple(stretches), len(found) - len(covered))


def _words(plain: str) -> list[tuple[str, int, int]]:
    """The words with where they start and end."""
    return [(m[0].casefold(), m.start(), m.end()) for m in _WORD.finditer(plain)]


def _long(places: set[int], least: int) -> set[int]:
    """The places that stand in a run of at least `least`."""
    runs = _runs(sorted(places))
    return {place for first, last in runs if last - first + 1 >= least for place in range(first, last + 1)}


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """First and last of every run of consecutive places."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return runs
