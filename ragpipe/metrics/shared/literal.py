"""Which stretches of an answer stand word for word in a text."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
_QUOTED = re.compile(r"“([^“”]{3,2000})”|\"([^\"]{3,2000})\"|«([^«»]{3,2000})»|‘([^‘’]{3,2000})’(?!\w)")
_INVISIBLE = str.maketrans({"\u00ad": None, "\u200b": None})


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of the answer that is literally in the text; `marked` when it stands in quotation marks."""

    text: str
    words: int
    marked: bool


@dataclass(frozen=True, slots=True)
class Literal:
    """The literal stretches of an answer in order, and the number of its words that are in none."""

    stretches: tuple[Stretch, ...]
    words_left: int


def literal_in(answer: str, text: str, least: int) -> Literal:
    """Runs of at least `least` words of the answer that occur as a run in the text, and shorter ones of two words or more
    that the answer puts in quotation marks.

    Case, white space, punctuation and typographic signs are not held against a quote. Scripts without spaces count
    characters as words.
    """
    answer = unicodedata.normalize("NFC", answer).translate(_INVISIBLE)
    found = [(m[0].casefold(), m.start(), m.end()) for m in _WORD.finditer(answer)]
    words = _words(text)
    covered = _covered([word for word, _, _ in found], words, least)
    joined = f" {' '.join(words)} "
    quoted: list[tuple[int, int]] = []
    for mark in _QUOTED.finditer(answer):
        inside = [i for i, (_, start, end) in enumerate(found) if mark.start() < start and end < mark.end()]
        if inside and _occurs([found[i][0] for i in inside], joined, least=min(least, 2)):
            covered.update(inside)
            quoted.append((mark.start(), mark.end()))
    stretches = []
    for first, last in _runs(sorted(covered)):
        start, end = found[first][1], found[last][2]
        marked = any(a < end and start < b for a, b in quoted)
        stretches.append(Stretch(answer[start:end], last - first + 1, marked))
    return Literal(tuple(stretches), len(found) - len(covered))


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFC", text).translate(_INVISIBLE)
    return [m[0].casefold() for m in _WORD.finditer(plain)]


def _covered(answer: list[str], text: list[str], least: int) -> set[int]:
    """The places of the answer's words that stand in a run of `least` words which the text holds too."""
    there = {tuple(text[i : i + least]) for i in range(len(text) - least + 1)}
    starts = (i for i in range(len(answer) - least + 1) if tuple(answer[i : i + least]) in there)
    return {place for start in starts for place in range(start, start + least)}


def _occurs(words: list[str], joined: str, least: int) -> bool:
    return len(words) >= least and f" {' '.join(words)} " in joined


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """First and last of every run of consecutive places."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return runs
