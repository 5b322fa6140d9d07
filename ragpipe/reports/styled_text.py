"""Lines of a terminal: pieces of text with a style each, cut, padded and wrapped to the columns of a screen."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, takewhile

from ragpipe.core.safe_text import on_one_line

GAP = 2  # columns between two cells
_TEXT_MAX = 4000  # characters of one text of the data


class Head(str):
    """The head of a table or of a paragraph: bold."""


class Good(str):
    """A good verdict: green."""


class Bad(str):
    """A bad verdict: red."""


class Caution(str):
    """A verdict that needs a look: yellow."""


class Grey(str):
    """What matters less, such as a figure from too few questions: dim."""


STYLES: dict[type[str], str] = {Head: "bold", Good: "green", Bad: "bold red", Caution: "yellow", Grey: "dim"}
"""The style of each kind of piece, in the words of rich. The words of a piece say the same without it."""

Line = tuple[str, ...]
"""A line as pieces of text; a piece of a class of this module has a style."""


@dataclass(frozen=True)
class Screen:
    """Where lines are shown: `columns` wide; `writable` is a text as the stream will show it."""

    columns: int
    writable: Callable[[str], str] = str

    def text(self, text: str, limit: int = _TEXT_MAX) -> str:
        """A text of others on one line, every control character as an escape, at most `limit` columns wide."""
        return cut(self.writable(on_one_line(text, _TEXT_MAX)), limit)


def columns_of(text: str) -> int:
    """Columns that a text takes on a terminal: two for a wide character, none for one that is combined with the one before."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and `...` in at most `limit` columns; its style stays."""
    if columns_of(text) <= limit:
        return text
    left, kept = max(0, limit - 3), 0
    for character in text:
        left -= _columns(character)
        if left < 0:
            break
        kept += 1
    return type(text)(text[:kept].rstrip() + "..."[:limit])


def cut_in_the_middle(text: str, limit: int) -> str:
    """Beginning and end of a name that is too long: long names differ at either."""
    if columns_of(text) <= limit or limit < 8:
        return cut(text, limit)
    end = text[-((limit - 2) // 3) :]
    while columns_of(end) > (limit - 2) // 3:
        end = end[1:]
    return type(text)(cut(text, limit - columns_of(end)) + end)


def cut_apart(names: Sequence[str], limit: int) -> list[str]:
    """Each of the names in at most `limit` columns, so that two that differ stay different: those that `cut_in_the_middle` would make
    the same are cut around the place where they differ, and numbered where there is no room for it."""
    shortened = {name: cut_in_the_middle(name, limit) for name in names}
    for text in set(shortened.values()):
        alike = [name for name in shortened if shortened[name] == text]
        if len(alike) > 1:
            shortened |= {name: type(name)(_around_difference(name, alike, limit)) for name in alike}
    if len(set(shortened.values())) < len(shortened):
        shortened = {name: type(name)(cut(f"{place}: {name}", limit)) for place, name in enumerate(shortened, 1)}
    return [shortened[name] for name in names]


def _around_difference(name: str, alike: Sequence[str], limit: int) -> str:
    """The name with what not all of these names share: with all that follows where there is room for it, else with all that stands
    before, else with neither."""
    start = _alike_from_start(alike)
    end = _alike_from_start([text[start:][::-1] for text in alike])
    tail, head = name[start:], name[: len(name) - end]
    if columns_of(tail) + 3 <= limit:
        return cut(name[:start] + "...", limit - columns_of(tail)) + tail
    if columns_of(head) + 3 <= limit:
        return cut(name, limit)
    return "..." + cut(tail, limit - 3)


def _alike_from_start(texts: Sequence[str]) -> int:
    """How many first characters all of the texts share."""
    return sum(1 for _ in takewhile(lambda characters: len(set(characters)) == 1, zip(*texts, strict=False)))


def joined_line(texts: Sequence[Line], separator: str) -> Line:
    """Several lines as one."""
    return tuple([piece for line in texts for piece in (separator, *line)][1:])


def wrapped(line: Line, columns: int, indent: str = "  ") -> list[Line]:
    """The line broken at blanks to lines of at most so many columns; all but the first begin with `indent`."""
    text = "".join(line)
    if columns_of(text) <= columns:
        return [line]
    styles = [type(piece) for piece in line for _ in piece]
    lines: list[Line] = []
    for start, end in _breaks(text, max(columns, 20), columns_of(indent)):
        pieces = tuple(_styled(text[start:end], styles[start:end]))
        lines.append((indent, *pieces) if lines else pieces)
    return lines


def _breaks(text: str, columns: int, indent: int) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends: at blanks, and within a word that is wider than a line."""
    start, end, room = 0, 0, columns
    for word in re.finditer(r"\S+", text):
        place = word.start()
        if end and columns_of(text[start : word.end()]) > room:
            yield start, end
            start, room = place, columns - indent
        while columns_of(text[start : word.end()]) > room:
            width = accumulate(map(_columns, text[start : word.end()]))
            start, last = start + max(1, sum(used <= room for used in width)), start
            yield last, start
            room = columns - indent
        end = word.end()
    yield start, end


def _styled(text: str, styles: Sequence[type[str]]) -> Iterator[str]:
    """The text in pieces of one style each; `styles` has the style of each character."""
    for style, run in groupby(zip(text, styles, strict=True), key=lambda pair: pair[1]):
        yield style("".join(character for character, _ in run))


def narrowed(rows: Sequence[Sequence[str]], droppable: Sequence[str], columns: int) -> list[list[str]]:
    """The rows of a table with as many columns as fit: those with the heads `droppable` are left out, the first of them first."""
    grid = [list(row) for row in rows]
    for head in droppable:
        if head in grid[0] and table_columns(grid) > columns:
            place = grid[0].index(head)
            grid = [row[:place] + row[place + 1 :] for row in grid]
    return grid


def table_columns(rows: Sequence[Sequence[str]]) -> int:
    """Columns that a table of these rows takes."""
    return sum(_widths(rows)) + GAP * (len(rows[0]) - 1)


def table_lines(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[Line]:
    """The rows of a table as lines: cells of the columns `left` aligned left, the others right. The first row is the head."""
    widths = _widths(rows)
    lines: list[Line] = []
    for row in rows:
        pieces: list[str] = []
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - columns_of(cell))
            pieces += [cell, blank] if place in left else [blank, cell]
            pieces.append(" " * GAP)
        lines.append(_without_end_blanks(pieces))
    return lines


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(columns_of, column)) for column in zip(*rows, strict=True)]


def _without_end_blanks(pieces: list[str]) -> Line:
    while pieces and not pieces[-1].strip():
        pieces.pop()
    return tuple(piece for piece in pieces if piece)
