"""What a section of a document holds that a question can be about: facts with a key, lists, periods with figures, paragraphs.

    - **Notice period:** four weeks        a fact: key and value
    - A spare filter                       items of a list, of three or more, bulleted or numbered
    - **Q1 2026:** 1,240 orders            a row of a series: three or more periods of one unit, one after the other

The rules read line ends and list marks, nothing else: what they do not find is asked about by nobody. A value or an item with Markdown in
it (links, code, tables) is passed over, since an answer would not repeat it word by word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ragpipe.documents.markdown import Document, DocumentSection
from ragpipe.extras.test_sets.periods import Period, read_period

_MARK = re.compile(r"(?P<indent>[ \t]*)(?:[-*+]|\d{1,3}[.)])[ \t]+(?P<text>\S.*)")
_KEYED = re.compile(r"\*\*(?P<key>[^*:]{1,60}?)(?::\*\*|\*\*:)\s*(?P<value>\S.*)")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_MARKUP = re.compile(r"[\[\]`*|<>#]|(?<!\w)_|_(?!\w)")
_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
_OTHER_BLOCK = re.compile(r"[ \t]*(?:[|>]|#{1,6} |-{3,}$|={3,}$)")
FEWEST_ITEMS = 3
LONGEST_VALUE, LONGEST_PARAGRAPH = 200, 700
"""Characters of a value, an item and a paragraph that a reference answer repeats."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A key with its value. `value` stands in the text of the section word by word, white space aside."""

    document: Document
    section: DocumentSection
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class SectionList:
    """The one list of a section: all items of its outermost level."""

    document: Document
    section: DocumentSection
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PeriodSeries:
    """Figures of consecutive periods, the earliest first."""

    document: Document
    section: DocumentSection
    rows: tuple[tuple[Period, str], ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """The text of a section that has nothing but paragraphs, on one line."""

    document: Document
    section: DocumentSection
    text: str


def facts(document: Document) -> Iterator[Fact]:
    """The facts of a document in order, without those whose key is a period."""
    for section in document.sections:
        for key, value in _keyed(section):
            if read_period(key) is None and _is_plain(key) and _is_plain(value):
                yield Fact(document, section, key, value)


def item_lists(document: Document) -> Iterator[SectionList]:
    """The lists of a document: of a section with one list, whose items are no facts and no periods."""
    for section in document.sections:
        items = [_BOLD.sub(r"\1", item) for item in _outermost_items(section.text) or ()]
        is_keyed = any(True for _ in _keyed(section)) or any(_period_row(item) for item in items)
        if len(items) >= FEWEST_ITEMS and not is_keyed and all(map(_is_plain, items)) and len(set(items)) == len(items):
            yield SectionList(document, section, tuple(items))


def period_series(document: Document) -> Iterator[PeriodSeries]:
    """The series of a document: sections whose list gives three or more periods of one unit without a gap, in either order."""
    for section in document.sections:
        read = [row for item in _outermost_items(section.text) or () if (row := _period_row(item))]
        rows = sorted(((period, figure) for period, figure in read if _is_plain(figure)), key=lambda row: row[0].number)
        if len(rows) < FEWEST_ITEMS or len(rows) != len(read) or len({period.form for period, _ in rows}) != 1:
            continue
        first = rows[0][0].number
        if [period.number for period, _ in rows] == list(range(first, first + len(rows))):
            yield PeriodSeries(document, section, tuple(rows))


def paragraphs(document: Document) -> Iterator[Paragraph]:
    """The sections of a document that are plain paragraphs, of `LONGEST_PARAGRAPH` characters at most."""
    for section in document.sections:
        text = " ".join(section.text.split())
        lines = section.text.splitlines()
        is_text = not any(_MARK.match(line) or _OTHER_BLOCK.match(line) or _FENCE.match(line) for line in lines)
        if text and is_text and not _MARKUP.search(text) and len(text) <= LONGEST_PARAGRAPH:
            yield Paragraph(document, section, text)


def _keyed(section: DocumentSection) -> Iterator[tuple[str, str]]:
    for item in _items(section.text):
        if match := _KEYED.fullmatch(item):
            yield " ".join(match["key"].split()), match["value"].strip()


def _period_row(item: str) -> tuple[Period, str] | None:
    """The period and the figure of an item such as `**Q1 2026:** 1,240 orders` or `Q1 2026: 1,240 orders`."""
    name, separator, figure = _BOLD.sub(r"\1", item).partition(":")
    period = read_period(name)
    return (period, figure.strip()) if separator and period and figure.strip() else None


def _is_plain(text: str) -> bool:
    return len(text) <= LONGEST_VALUE and not _MARKUP.search(text) and any(sign.isalnum() for sign in text)


def _items(text: str) -> list[str]:
    """Every list item of a text, of any level, each on one line; none inside a code block."""
    return [item for _, _, item in _marked_items(text)]


def _outermost_items(text: str) -> list[str] | None:
    """The items of the outermost level of the text's list; None where the text has several lists, with a paragraph between."""
    marked = _marked_items(text)
    if len({block for block, _, _ in marked}) != 1:
        return None
    outermost = min(indent for _, indent, _ in marked)
    return [item for _, indent, item in marked if indent == outermost]


def _marked_items(text: str) -> list[tuple[int, int, str]]:
    """Each list item as (number of its list, width of its indent, text). Lines that go on with an item are joined to it."""
    items: list[tuple[int, int, str]] = []
    block, is_open, is_code = 0, False, False
    for line in text.splitlines():
        if _FENCE.match(line):
            is_code, is_open = not is_code, False
            block += 1
        elif is_code or not line.strip():
            continue
        elif match := _MARK.fullmatch(line):
            items.append((block, len(match["indent"].expandtabs(4)), match["text"].strip()))
            is_open = True
        elif is_open and line[:1].isspace():
            number, indent, item = items[-1]
            items[-1] = (number, indent, f"{item} {line.strip()}")
        else:
            block, is_open = block + 1, False
    return items
