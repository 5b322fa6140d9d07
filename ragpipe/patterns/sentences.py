"""Sentences, list items and words of a text, by rules that a reader can check: line ends, list marks, full stops."""

from __future__ import annotations

import re

WORD = re.compile(r"[^\W_]+(?:['/][^\W_]+)*")
_BULLET = re.compile(r"\s*(?:[-*•‣◦·>#]+\s+|\(?\d{1,3}[.)]\s+)+")
_ITEM = re.compile(r"^([ \t]*)(?:[-*•‣◦·]|\(?\d{1,3}[.)])[ \t]+(?=\S)", re.MULTILINE)
_MARKUP = re.compile(r"\*\*|__|`")
_STOP = re.compile(r"(?<=[.!?])(?:[\"'”’)\]]|\[[^\[\]\n]{1,12}\]){0,3}\s+(?=[^\s\da-z])|(?<=[。！？؟])")
_ABBREVIATION = re.compile(
    r"(?:\b[A-Z]|\b(?:Mr|Mrs|Ms|Dr|Prof|St|No|vs|Inc|Ltd|Co|approx|e\.g|i\.e|cf|Fig|Jan|Feb|Aug|Sept|Oct|Nov|Dec))\.\Z"
)


def sentences(text: str) -> list[str]:
    """The sentences and list items in order, without list marks and emphasis. Pieces without a letter or digit are left out.

    A stop after an abbreviation or an initial (`Dr. Who`, `U.S. Government`) ends no sentence.
    """
    pieces: list[str] = []
    for line in text.split("\n"):
        mark = _BULLET.match(line)
        body = _MARKUP.sub("", line[mark.end() :] if mark else line)
        start = 0
        for stop in _STOP.finditer(body):
            if not _ABBREVIATION.search(body[max(start, stop.start() - 12) : stop.start()]):
                pieces.append(body[start : stop.end()].strip())
                start = stop.end()
        pieces.append(body[start:].strip())
    return [piece for piece in pieces if any(c.isalnum() for c in piece)]


def list_items(text: str) -> list[str]:
    """The list items of the outermost level in order: only the line of each, without its mark."""
    marks = list(_ITEM.finditer(text))
    outermost = min((_width(mark[1]) for mark in marks), default=0)
    lines = (text[mark.end() :].partition("\n")[0].strip() for mark in marks if _width(mark[1]) == outermost)
    return [_MARKUP.sub("", line) for line in lines]


def words_of(text: str) -> str:
    """The words of a short text in normal form: equal for two whole answers that say the same."""
    return " ".join(WORD.findall(text.replace("\u2019", "'").casefold()))


def _width(indent: str) -> int:
    return len(indent.expandtabs(4))
