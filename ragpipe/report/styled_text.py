"""Lines of a terminal: pieces of text with a style each, cut, padded and wrapped to the columns of a screen."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, zip_longest
from typing import Any

from ragpipe.core.text import on_one_line
from ragpipe.core.usage import Usage

GAP = 2  # columns between two cells
_TEXT_MAX = 4000  # characters of one text of the data
_FOLDED = 20  # columns of a cell that is broken into lines


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


def folded_name(name: str, columns: int) -> str:
    """The whole name in lines of at most so many columns, broken behind the marks in it: `human_`, `hallucinated`."""
    return type(name)("\n".join(name[start:end] for start, end in _breaks(name, columns, 0)))


def wrapped(line: Line, columns: int, indent: str = "  ", *, breaks_words: bool = True) -> list[Line]:
    """The line broken at blanks to lines of at most so many columns; all but the first begin with `indent`. Without `breaks_words` a
    word that is wider than a line, such as a path, stays whole."""
    text = "".join(line)
    if columns_of(text) <= columns:
        return [line]
    styles = [type(piece) for piece in line for _ in piece]
    lines: list[Line] = []
    for start, end in _breaks(text, max(columns, 20), columns_of(indent), breaks_words=breaks_words):
        pieces = tuple(_styled(text[start:end], styles[start:end]))
        lines.append((indent, *pieces) if lines else pieces)
    return lines


_MARK = re.compile(r".+[_./:@-]")  # up to the last mark behind which a word may be broken


def _breaks(text: str, columns: int, indent: int, *, breaks_words: bool = True) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends: between words; one that is wider than a line is broken, behind a mark in it where it has one."""
    start, end, room = 0, 0, columns
    for word in re.finditer(r"\S+", text):
        place = word.start()
        if end and columns_of(text[start : word.end()]) > room:
            yield start, end
            start, room = place, columns - indent
        while breaks_words and columns_of(text[start : word.end()]) > room:
            width = accumulate(map(_columns, text[start : word.end()]))
            last = start + max(1, sum(used <= room for used in width))
            mark = _MARK.match(text, max(start, word.start()), last)
            yield start, (mark.end() if mark else last)
            start = mark.end() if mark else last
            room = columns - indent
        end = word.end()
    yield start, end


def _styled(text: str, styles: Sequence[type[str]]) -> Iterator[str]:
    """The text in pieces of one style each; `styles` has the style of each character."""
    for style, run in groupby(zip(text, styles, strict=True), key=lambda pair: pair[1]):
        yield style("".join(character for character, _ in run))


def table_columns(rows: Sequence[Sequence[str]]) -> int:
    """Columns that a table of these rows takes."""
    return sum(_widths(rows)) + GAP * (len(rows[0]) - 1)


def folded_cells(rows: Sequence[Sequence[str]], columns: int) -> list[list[str]]:
    """The rows with the cells of the widest columns broken into lines, as far as that lets the table fit."""
    grid = [list(row) for row in rows]
    for _ in range(len(grid[0])):
        widths = _widths(grid)
        widest = max(range(len(widths)), key=widths.__getitem__)
        room = max(_FOLDED, widths[widest] + columns - table_columns(grid))
        for row in grid:
            lines = (wrapped((line,), room, indent="") for line in row[widest].split("\n"))
            text = "\n".join("".join(pieces) for broken in lines for pieces in broken)
            row[widest] = type(row[widest])(text)
    return grid


def table_lines(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[Line]:
    """The rows of a table as lines: cells of the columns `left` aligned left, the others right. A cell may have several lines."""
    widths = _widths(rows)
    lines: list[Line] = []
    for row in rows:
        for cells in zip_longest(*([type(cell)(line) for line in cell.split("\n")] for cell in row), fillvalue=""):
            pieces: list[str] = []
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
                blank = " " * (width - columns_of(cell))
                pieces += [cell, blank] if place in left else [blank, cell]
                pieces.append(" " * GAP)
            while pieces and not pieces[-1].strip():
                pieces.pop()
            lines.append(tuple(piece for piece in pieces if piece))
    return lines


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(columns_of(line) for cell in column for line in cell.split("\n")) for column in zip(*rows, strict=True)]


def run_words(run: Mapping[str, Any]) -> str:
    """`2026-11-29 18:27 UTC, took 8.2 s, the system 2 min 3 s`: when a run was started, how long it took, and the time of
    the system under test. What is not recorded is left out."""
    date = f"{run['created_at'][:16].replace('T', ' ')} UTC" if run.get("created_at") else ""
    took = f"took {_seconds(run['duration_s'])}" if run.get("duration_s") is not None else ""
    suite = f"the system {_seconds(run['suite_s'])}" if run.get("suite_s") is not None else ""
    return ", ".join(filter(None, (date, took, suite)))


def _seconds(seconds: float) -> str:
    """`8.2 s`, `12 min 34 s`, `2 h 3 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {left} s"


def whole(number: float) -> str:
    """`12,345`."""
    return f"{int(number):,}"


def money(usd: float | None) -> str:
    """`$0.0123`, `price unknown`."""
    if usd is None:
        return "price unknown"
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def percent_with_interval(row: Mapping[str, Any]) -> str:
    """A row's `share` and `interval` as `90 [66, 98]`, in percent; `-` where there is no share."""
    if row["share"] is None:
        return "-"
    interval = row["interval"]
    bounds = f" [{100 * interval['low']:.0f}, {100 * interval['high']:.0f}]" if interval else ""
    return f"{100 * row['share']:.0f}{bounds}"


def price(usage: Usage) -> str:
    """`$0.0123`, or `at least $0.0123 (4 calls without a price)`; `price unknown` when no price is known."""
    known, unpriced = usage.usd_known, usage.unpriced
    if not unpriced:
        return money(known)
    if not known:
        return money(None)
    return f"at least {money(known)} ({whole(unpriced)} call{'s' if unpriced > 1 else ''} without a price)"


def is_free(used: Mapping[str, Any]) -> bool:
    """Whether the replies that the results use cost nothing, as those of a recorded judge; `used` is that of `cost.json`."""
    return not (used["usd_known"] or used["unpriced"])


def is_recorded(used: Mapping[str, Any], spent: Mapping[str, Any]) -> bool:
    """Whether they cost nothing and none was asked for here; `used` and `spent` are those of `cost.json`."""
    return is_free(used) and not spent.get("calls")


def decimal(value: float, places: int) -> str:
    """A mean or a bound: `0.85`; from 100 on `1,234.5`."""
    return f"{value:.{places}f}" if abs(value) < 100 else f"{value:,.1f}"


def bracketed(bounds: Mapping[str, Any] | None, factor: float = 1.0, places: int = 2) -> str:
    """An interval as `[0.82, 0.88]`; empty where there is none."""
    if bounds is None:
        return ""
    return f"[{decimal(bounds['low'] * factor, places)}, {decimal(bounds['high'] * factor, places)}]"


def share_below_one(value: float) -> str:
    """A percentage that never rounds up to 100 %."""
    return f"{min(value, 0.999):.1%}"


def percentage(value: float | None, missing: str = "-") -> str:
    """`95.0%`; `missing` where there is no value."""
    return missing if value is None else f"{value:.1%}"


def count_with_share(count: int, total: int) -> str:
    """`3 (7.5%)`; `0` alone where nothing was counted."""
    return f"{whole(count)} ({count / total:.1%})" if count else "0"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 error`, `2 errors`; `nouns` is the plural where it is not the noun and an s."""
    return f"{whole(count)} {noun if count == 1 else nouns or noun + 's'}"


_ID = 60


def difference_text(score: Mapping[str, Any]) -> str:
    """`+0.043 [+0.012, +0.074]`; `n = 3: too few` in place of an interval of fewer than 5 questions."""
    if score["difference"] is None:
        return "-"
    interval = score["interval"]
    if not interval or interval["too_few"]:
        return figure_text(score["difference"], sign=True) + (f" (n = {whole(score['n'])}: too few)" if interval else "")
    bounds = [score["difference"], interval["low"], interval["high"]]
    is_small = max(map(abs, bounds)) < 0.001  # else a figure that three decimals show as none is none
    text, low, high = (figure_text(value if is_small else round(value, 3), sign=True) for value in bounds)
    return f"{text} [{low}, {high}]"


_LEAST = 1e-6


def figure_text(value: float | None, *, sign: bool = False) -> str:
    """Three decimals below 10, one below 1,000, none above; two digits where three decimals show none; `-` for none. What is less
    than a millionth is 0."""
    if value is None:
        return "-"
    size = abs(value)
    if _LEAST <= size < 0.001:
        places = 1 - math.floor(math.log10(size))
    else:
        value, places = 0.0 if size < _LEAST else value, 3 if size < 10 else 1 if size < 1000 else 0
    return f"{value:+,.{places}f}" if sign else f"{value:,.{places}f}"


def wins_text(score: Mapping[str, Any]) -> str:
    """`26/6/7`: cases in which the candidate is better, equal and worse."""
    return f"{whole(score['wins'])}/{whole(score['ties'])}/{whole(score['losses'])}"


def state_text(score: Mapping[str, Any]) -> str:
    """The verdict with the way that the value went: `↑ better`, `↓ better` where less is better, `→ same`; `inconclusive`."""
    if score["state"] == "inconclusive":
        return "inconclusive"
    arrow = "→" if score["state"] == "same" else "↑" if score["difference"] > 0 else "↓"
    return f"{arrow} {score['state']}"


def case_text(key: Sequence[Any], has_one_method: bool) -> str:
    """`dao-01`, with the method where the side has several, and with the repeat where it is not the first."""
    sample, method, repeat = key
    name = sample if has_one_method else f"{sample}/{method}"
    return on_one_line(name + (f" repeat {repeat}" if repeat != 1 else ""), _ID)
