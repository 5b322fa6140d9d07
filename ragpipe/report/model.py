"""The report of a run as values: sections of tables and notes, built once and rendered as terminal, Markdown or HTML.

Builders make these values from the files of a run and say where each of them is shown. Renderers take
`Report.for_medium(...)` and decide nothing but layout: rows, columns and words are equal everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from markupsafe import Markup

from ragpipe.report.page_file import case_name, page_address

Medium = Literal["terminal", "markdown", "html"]
Media = frozenset[Medium]

EVERYWHERE: Media = frozenset(("terminal", "markdown", "html"))
PAGES: Media = frozenset(("markdown", "html"))
TERMINAL: Media = frozenset(("terminal",))
MARKDOWN: Media = frozenset(("markdown",))
HTML: Media = frozenset(("html",))


class Verbatim(str):
    """A text of the data set, a system, a judge or a name from the configuration: shown as it is, never markup."""


class Prose(str):
    """A sentence from the configuration: shown as running text, never markup."""


class Strong(str):
    """Words of our own that stand out."""


@dataclass(frozen=True)
class CaseName:
    """A case, which `report.html` links to."""

    sample_id: str
    method: str
    repeat: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> CaseName:
        """The case of a row of a table."""
        return cls(row["sample_id"], row["method"], row["repeat"])

    @property
    def address(self) -> str:
        """Its address on the page."""
        return page_address(case=case_name(self.sample_id, self.method, self.repeat))

    @property
    def suffix(self) -> str:
        """` repeat 2` for another output of the same method for the same sample, else nothing."""
        return "" if self.repeat == 1 else f" repeat {self.repeat}"

    def __str__(self) -> str:
        return f"{self.sample_id} / {self.method}{self.suffix}"


Piece = str | CaseName
RichText = Piece | tuple[Piece, ...]
"""One line: a piece or several in a row. A plain `str` is our own words or a figure and may hold no text of others."""


@dataclass(frozen=True)
class ItemList:
    """Several texts in one cell."""

    texts: tuple[RichText, ...]
    separator: str = "\n"


@dataclass(frozen=True)
class Plot:
    """A mean, its interval and the threshold as places on an axis of 0 to 100; None where there is none."""

    mean: float
    low: float | None
    high: float | None
    threshold: float | None


@dataclass(frozen=True)
class ScoreCell:
    """One score of one group: mean and interval, the share that passed of how many were judged, and what is missing.

    `few` marks a mean of too few questions, which is shown grey.
    """

    mean: str
    interval: str = ""
    passed: str = ""
    note: str = ""
    few: bool = False
    plot: Plot | None = None

    @property
    def estimate(self) -> str:
        """Mean and interval: `87.5 [78.9, 93.0]`."""
        return f"{self.mean} {self.interval}".rstrip()

    @property
    def lines(self) -> list[str]:
        """`87.5 [78.9, 93.0]`, `88% of 40`, `coverage 96%`."""
        return [line for line in (self.estimate, self.passed, self.note) if line]


@dataclass(frozen=True)
class RowHead:
    """What a row is about: its name, `remarks` for the pages, and a `mark` behind the name, which a terminal never cuts."""

    name: RichText
    mark: str = ""
    remarks: tuple[RichText, ...] = ()


Cell = RichText | ItemList | ScoreCell | RowHead


@dataclass(frozen=True)
class TableColumn:
    """A column's head. `is_text` columns are aligned left, figures right.

    On a narrow terminal columns with a `drop` are left out, the largest first. A column that `fills` is cut to the room that
    the others leave, or left out.
    """

    head: RichText
    is_text: bool = False
    shown_in: Media = EVERYWHERE
    drop: int = 0
    fills: bool = False


@dataclass(frozen=True)
class TableRow:
    """One row: a cell for each column."""

    cells: tuple[Cell, ...]
    shown_in: Media = EVERYWHERE


@dataclass(frozen=True)
class Table:
    """Rows under column heads.

    The first `key_columns` columns name a row: a narrow terminal cuts and repeats them. `layout` is a grid, or in Markdown a
    list of entries for rows of long texts: the first two columns are their title. A `turnable` grid may be shown with rows and
    columns exchanged where only that fits. `rows_left_out` are in `metrics.json` only.
    """

    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    title: RichText = ""
    key_columns: int = 1
    layout: Literal["grid", "entries"] = "grid"
    turnable: bool = False
    rows_left_out: int = 0
    shown_in: Media = EVERYWHERE

    @classmethod
    def of(
        cls, heads: Iterable[RichText | TableColumn], rows: Iterable[Sequence[Cell] | TableRow], *, texts: int = 1, **more: Any
    ) -> Self:
        """A table whose first `texts` columns are words and name a row, the others figures, as those without a head are words. A
        column that is more than a head is what it is."""
        columns = (
            head if isinstance(head, TableColumn) else TableColumn(head, is_text=place < texts or not head)
            for place, head in enumerate(heads)
        )
        made = tuple(row if isinstance(row, TableRow) else TableRow(tuple(row)) for row in rows)
        return cls(tuple(columns), made, key_columns=texts, **more)

    def told(self) -> Table:
        """The table without columns that say nothing in every row; those that name a row stay."""

        def says(place: int) -> bool:
            return place < self.key_columns or any(row.cells[place] not in ("", "-", "the same") for row in self.rows)

        kept = [place for place in range(len(self.columns)) if says(place)]
        rows = tuple(replace(row, cells=tuple(row.cells[place] for place in kept)) for row in self.rows)
        return replace(self, columns=tuple(self.columns[place] for place in kept), rows=rows)


@dataclass(frozen=True)
class Note:
    """A line of text. A `warning` goes to standard error on a terminal, which shows the first one of those `about` the same;
    `good` and `bad` are the verdict of gates."""

    text: RichText
    kind: Literal["plain", "warning", "good", "bad"] = "plain"
    shown_in: Media = EVERYWHERE
    about: str = ""


@dataclass(frozen=True)
class CaseExcerpt:
    """A case in short: its lines, then texts of the data, each under its label."""

    case: CaseName
    lines: tuple[RichText, ...]
    texts: tuple[tuple[str, str], ...]
    shown_in: Media = EVERYWHERE


@dataclass(frozen=True)
class Chart:
    """A chart of a page, drawn in Python (`ragpipe.report.charts`). Its figures are also in tables or in its own marks.

    `title` heads it, `note` below it says what is drawn. A `folded` chart opens at a click; a `narrow` one stands beside another.
    """

    title: RichText
    markup: Markup
    note: RichText = ""
    folded: bool = False
    narrow: bool = False
    shown_in: Media = HTML


SectionPart = Table | Note | CaseExcerpt | Chart


@dataclass(frozen=True)
class Section:
    """A titled part of the report. `name` is its address on the page; HTML folds the tables of a `folded` section."""

    name: str
    title: str
    parts: tuple[SectionPart, ...]
    folded: bool = False
    shown_in: Media = EVERYWHERE


Kind = Literal["plain", "good", "warn", "bad"]


@dataclass(frozen=True)
class RunVerdict:
    """What a page says first: the sentence of `verdict.json`, its first words apart where they stand out, and remarks in small print.
    `kind` colours it; the words say the same."""

    kind: Kind
    lead: str
    sentence: RichText
    remarks: tuple[RichText, ...] = ()


@dataclass(frozen=True)
class PageLink:
    """Another page: its name, and its path from the folder of the page that leads there."""

    name: str
    path: str


@dataclass(frozen=True)
class Report:
    """A whole report: what the run is, its verdict, and notices before the sections. `run` is its id, name, date and times, `pages` are
    the other pages about it, `methods` those that its page can be narrowed to, in the order of their marks; empty for one."""

    name: str
    summary: str
    signature: str
    verdict: RunVerdict | None
    notices: tuple[Note, ...]
    sections: tuple[Section, ...]
    run: RichText = ""
    pages: tuple[PageLink, ...] = ()
    methods: tuple[str, ...] = ()

    def for_medium(self, medium: Medium) -> Report:
        """The report with what this medium shows, in the same order. Sections without any part are left out."""
        shown = (section for section in self.sections if medium in section.shown_in)
        sections = (
            replace(section, parts=tuple(_part_for(part, medium) for part in section.parts if medium in part.shown_in))
            for section in shown
        )
        notices = tuple(note for note in self.notices if medium in note.shown_in)
        return replace(self, notices=notices, sections=tuple(section for section in sections if section.parts))


def _part_for(part: SectionPart, medium: Medium) -> SectionPart:
    if not isinstance(part, Table):
        return part
    places = [place for place, column in enumerate(part.columns) if medium in column.shown_in]
    rows = (replace(row, cells=tuple(row.cells[place] for place in places)) for row in part.rows if medium in row.shown_in)
    return replace(part, columns=tuple(part.columns[place] for place in places), rows=tuple(rows))


def pieces_of(text: RichText) -> tuple[Piece, ...]:
    """The pieces of a line."""
    return text if isinstance(text, tuple) else (text,)


def texts_of(cell: Cell) -> tuple[RichText, ...]:
    """The lines of any cell, as pages show them below each other."""
    if isinstance(cell, ItemList):
        return cell.texts
    if isinstance(cell, ScoreCell):
        return tuple(cell.lines)
    if isinstance(cell, RowHead):
        remarks = [piece for text in cell.remarks for piece in ("; ", *pieces_of(text))]
        return (cell.name, *([tuple(remarks[1:])] if remarks else []))
    return (cell,)


def joined(texts: Sequence[RichText], separator: str) -> RichText:
    """Several texts as one line."""
    return tuple([piece for text in texts for piece in (separator, *pieces_of(text))][1:])


def plain_text(text: RichText) -> str:
    """A line without any markup."""
    return "".join(map(str, pieces_of(text)))
