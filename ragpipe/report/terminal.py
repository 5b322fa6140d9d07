"""The terminal: a report as lines of text and tables that fit the width; warnings on standard error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ragpipe.core.text import on_one_line
from ragpipe.report.console import Console, column_lots
from ragpipe.report.model import (
    CaseName,
    Cell,
    ItemList,
    Note,
    Piece,
    Prose,
    Report,
    RichText,
    RowHead,
    ScoreCell,
    Strong,
    Table,
    TableColumn,
    Verbatim,
    joined,
    pieces_of,
    plain_text,
)
from ragpipe.report.styled_text import (
    GAP,
    Bad,
    Caution,
    Good,
    Grey,
    Head,
    Screen,
    columns_of,
    cut,
    folded_cells,
    folded_name,
    plural,
    table_columns,
    table_lines,
    wrapped,
)

_TEXT_LIMIT = 4000  # characters of one text of the data in a line
_CASE = 60  # characters of the sample id and the method of a case
_CASE_WIDTH = 28  # columns of a case in a table
_NAME_WIDTHS = (40, 24, 16, 12)  # columns of the names of rows, tried in turn
_LEAST = 24  # columns that a text which fills the room needs to say anything
_MOST = 60  # columns of it, at most
_WIDE = 80  # columns from which three lines of warnings are enough
_KINDS: Mapping[str, type[str]] = {"good": Good, "warn": Caution, "bad": Bad}
_WORDS: Mapping[type[str], tuple[str, ...]] = {
    Good: ("better", "passed", "best"),
    Bad: ("worse", "failed", "behind"),
    Caution: ("inconclusive", "uncalibrated", "no evidence", "not enough evidence"),
}
_STYLES = {word: style for style, words in _WORDS.items() for word in words}
_Grid = list[list[str]]


def print_report(report: Report, console: Console, page: str = "") -> None:
    """Print the verdict, what the run is, the sections, the warnings, and the path of the `page` that has more. The sections of a
    report without a verdict have their titles."""
    report, columns = report.for_medium("terminal"), console.width
    if verdict := report.verdict:
        sentence = console.screen.text(_line(verdict.sentence), _TEXT_LIMIT)
        lead = (_KINDS.get(verdict.kind, str)(f"{verdict.lead}:"), " ") if verdict.lead else ()
        console.lines(wrapped((*lead, sentence), columns))
    for note in report.notices:
        _print_note(note, console)
    notes: list[Note] = []
    for section in report.sections:
        for part in section.parts:
            if isinstance(part, Table):
                print_table(part, console, "" if report.verdict else section.title)
            elif isinstance(part, Note):
                notes.append(part)
                _print_note(part, console)
    notes += report.notices
    print_warnings([(note.about, _line(note.text)) for note in notes if note.kind == "warning"], console, page)
    if page:
        console.lines([(f"report: {console.screen.text(page)}",)])


def _print_note(note: Note, console: Console) -> None:
    if note.kind != "warning":
        pieces = (
            (Head if isinstance(piece, Strong) else str)(console.screen.writable(_piece(piece)))
            for piece in pieces_of(note.text)
        )
        console.lines(wrapped(tuple(pieces), console.width))


def print_warnings(warnings: Iterable[tuple[str, str]], console: Console, page: str) -> None:
    """Print warnings (what each is about, and its text) that were not printed before: the first one about the same, as many as
    fit three lines, six on a narrow screen, and how many more there are in the `page`, which has them in full."""
    screen = console.screen
    texts = each_kind_once((about or text, text) for about, text in warnings if not console.has_warned(text))
    limit = 3 if screen.columns >= _WIDE else 6
    room = _TEXT_LIMIT if len(texts) == 1 else (limit - 1) * (screen.columns - _LEAST)
    blocks = [wrapped((Caution("warning:"), f" {screen.text(text, max(room, 20))}"), screen.columns) for text in texts]
    lines = blocks[0] if blocks else []
    kept = 1
    while kept < len(blocks) and len(lines) + len(blocks[kept]) < limit + (kept == len(blocks) - 1):
        lines, kept = lines + blocks[kept], kept + 1
    console.warn_lines(lines)
    if kept < len(blocks):
        more = f" and {len(blocks) - kept} more" + (f" in {Path(page).name}" if page else "")
        console.warn_lines([(Caution("warning:"), more)])
    for _, text in warnings:
        console.note_warned(text)


def each_kind_once(warnings: Iterable[tuple[str, str]]) -> list[str]:
    """The first warning of each kind, and how many others of its kind there are; equal ones count once."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for kind, text in dict.fromkeys(warnings):
        by_kind[kind].append(text)
    return [first + (f" (and {plural(len(more), 'more such warning')})" if more else "") for first, *more in by_kind.values()]


def print_table(table: Table, console: Console, section: str = "") -> None:
    """Print a table in the first of its layouts that fits the width, one without a broken name before others; where none does, in blocks that repeat the names of the rows. One
    without a title has that of its `section`."""
    screen = console.screen
    if title := plain_text(table.title) or section:
        console.lines(wrapped((Head(screen.text(title)),), screen.columns))
    layouts = list(_layouts(table, screen))
    fitting = [each for each in layouts if table_columns(each[0]) <= screen.columns]
    unbroken = (each for each in fitting if not any("\n" in cell for row in each[0] for cell in row))
    grid, aligned = next(unbroken, (fitting or layouts[-1:])[0])
    for lot in column_lots(grid, screen.columns, table.key_columns):
        rows = [[row[place] for place in lot] for row in grid]
        rows = folded_cells(rows, screen.columns) if table_columns(rows) > screen.columns else rows
        shown: _Grid = [[*map(Head, rows[0])], *rows[1:]] if any(rows[0]) else rows[1:]
        console.lines(table_lines(shown, [number for number, place in enumerate(lot) if place in aligned]))


def _layouts(table: Table, screen: Screen) -> Iterator[tuple[_Grid, set[int]]]:
    """The table from its widest form to its narrowest, in the end with rows and columns exchanged, each with its columns of words."""
    limits = sorted({column.drop for column in table.columns}, reverse=True)
    has_count = any(0 < limit < 4 for limit in limits)
    for intervals in (True, False):
        for width in _NAME_WIDTHS[:3] if intervals else _NAME_WIDTHS:
            # a count goes after the intervals, words before them
            for limit in [limit for limit in limits if limit or not (intervals and has_count)]:
                kept = [place for place, column in enumerate(table.columns) if column.drop <= limit]
                left = {number for number, place in enumerate(kept) if table.columns[place].is_text}
                yield _grid(table, kept, width, screen, intervals=intervals), left
    if table.turnable:
        for width in _NAME_WIDTHS[1:]:
            grid = _grid(table, range(len(table.columns)), width, screen, intervals=False)
            yield [list(column) for column in zip(*grid, strict=True)], {0}


def _grid(table: Table, kept: Iterable[int], width: int, screen: Screen, *, intervals: bool) -> _Grid:
    """The texts of the columns that are kept, heads first, with names of at most `width` columns."""
    columns: list[list[str]] = []
    for place in (place for place in kept if not table.columns[place].fills):
        column, cells = table.columns[place], [row.cells[place] for row in table.rows]
        texts = [_cell(cell, column, screen, intervals=intervals) for cell in cells]
        head = _head(column, screen, intervals=intervals)
        if place < table.key_columns:
            texts = _names(cells, texts, width, screen)
        widest = max((columns_of(line) for text in texts for line in text.split("\n")), default=0)
        columns.append([folded_name(head, max(width, widest)), *texts])
    grid = [list(row) for row in zip(*columns, strict=True)]
    return _filled(grid, table, screen)


def _names(cells: Iterable[Cell], texts: list[str], width: int, screen: Screen) -> list[str]:
    """The names of the rows with the marks behind them, those that are too long in several lines."""
    marks = (screen.writable(cell.mark) if isinstance(cell, RowHead) else "" for cell in cells)
    return [folded_name(name + mark, width) for name, mark in zip(texts, marks, strict=True)]


def _filled(grid: _Grid, table: Table, screen: Screen) -> _Grid:
    """The grid with the columns of texts that share the room that is left, each of them as far as it has some."""
    places = [place for place, column in enumerate(table.columns) if column.fills]
    room = screen.columns - table_columns(grid)
    for number, place in enumerate(places):
        width = min(_MOST, max(_LEAST, room // (len(places) - number) - GAP))
        texts = [screen.text(_line(row.cells[place])) for row in table.rows]  # type: ignore[arg-type]
        if width + GAP <= room and any(texts):
            column = ["", *(Grey(cut(text, width)) for text in texts)]
            grid = [[*row, text] for row, text in zip(grid, column, strict=True)]
            room = screen.columns - table_columns(grid)
    return grid


def _head(column: TableColumn, screen: Screen, *, intervals: bool) -> str:
    head = screen.text(_line(column.head), _CASE)
    return head if intervals or isinstance(column.head, Verbatim) else head.partition(" [")[0]


def _cell(cell: Cell, column: TableColumn, screen: Screen, *, intervals: bool) -> str:
    if isinstance(cell, ScoreCell):
        if cell.few:
            return Grey(f"{cell.mean} too few")
        return cell.estimate if intervals else cell.mean
    if isinstance(cell, RowHead):
        return screen.text(_line(cell.name))
    if isinstance(cell, CaseName):
        return folded_name(screen.text(_piece(cell)), _CASE_WIDTH)
    text = _line(joined(cell.texts, cell.separator) if isinstance(cell, ItemList) else cell)
    style = _STYLES.get(text, str) if column.is_text and not isinstance(cell, Verbatim) else str
    return style(screen.text(text))


def _line(text: RichText) -> str:
    return "".join(map(_piece, pieces_of(text)))


def _piece(piece: Piece) -> str:
    if isinstance(piece, CaseName):
        sample, method = on_one_line(piece.sample_id, _CASE), on_one_line(piece.method, _CASE)
        return f"{sample}/{method}{piece.suffix}"
    return on_one_line(piece, _TEXT_LIMIT) if isinstance(piece, Prose | Verbatim) else str(piece)
