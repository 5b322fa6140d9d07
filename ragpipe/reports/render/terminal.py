"""The terminal: a report as tables that fit the width, and lines of text."""

from __future__ import annotations

import textwrap

from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.console import Console, column_lots
from ragpipe.reports.model import (
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
    Section,
    Table,
    Verbatim,
    joined,
    pieces_of,
    plain_text,
)
from ragpipe.reports.styled_text import Grey

_HEAD_FOLD = 12  # characters of one line of a folded head
_TEXT_LIMIT = 4000  # characters of one text of the data in a line
_NAME_LIMIT = 60  # characters of the sample id and the method of a case

_Grid = list[list[str]]


def print_report(report: Report, console: Console) -> None:
    """Print the sections that the terminal shows, then warnings, then the closing lines."""
    report = report.for_medium("terminal")
    for section in report.sections:
        _print_section(section, console)
    for note in (*report.notices, *report.closing):
        _print_note(note, console)


def _print_section(section: Section, console: Console) -> None:
    for part in section.parts:
        if isinstance(part, Note):
            _print_note(part, console)
        elif isinstance(part, Table) and part.layout == "entries":
            _print_entries(part, console)
        elif isinstance(part, Table):
            _print_grid(part, plain_text(part.title) or section.title, console)


def _print_note(note: Note, console: Console) -> None:
    text = _line(note.text)
    if note.kind == "warning":
        console.warn(text)
    else:
        console.say(text)


def _print_entries(table: Table, console: Console) -> None:
    """`name: figure: first text`, wrapped, then each further cell that is not empty with the head of its column."""
    for row in table.rows:
        name, figure, text, *others = (_inline(cell) for cell in row.cells)
        lines = _wrapped(f"{name}: {figure}: {text}", console.width, "")
        for column, value in zip(table.columns[3:], others, strict=True):
            if value:
                lines += _wrapped(f"{plain_text(column.head)}: {value}", console.width, "  ")
        for line in lines:
            console.say(line)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, max(width, 40), initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False)


def _inline(cell: Cell) -> str:
    """A cell within a sentence, with as many of its items as a terminal shows."""
    if not isinstance(cell, ItemList):
        return _cell(cell, compact=True, narrow=False)
    separator = ", " if cell.separator == ", " else " "
    return _line(joined(cell.texts[: cell.terminal_items], separator))


def _print_grid(table: Table, title: str, console: Console) -> None:
    """The table in the layout that needs the fewest blocks: as it is, with intervals on their own lines, or turned."""
    grids = [_grid(table, narrow=narrow) for narrow in ((False, True) if table.turnable else (False,))]
    if table.turnable:
        grids = [layout for grid in grids for layout in (grid, _turned(grid))]
    heads, *rows = min(grids, key=lambda grid: len(column_lots(grid, console.width, table.key_columns)))
    console.folded(heads, rows, title=title, names=table.key_columns)


def _grid(table: Table, *, narrow: bool) -> _Grid:
    heads = [_line(column.head) for column in table.columns]
    rows = ([_cell(cell, compact=table.compact, narrow=narrow) for cell in row.cells] for row in table.rows)
    return [heads, *rows]


def _turned(grid: _Grid) -> _Grid:
    (_, *methods), *rows = grid
    heads = ["method", *(_folded(row[0]) for row in rows)]
    return [heads, *([method, *(row[place] for row in rows)] for place, method in enumerate(methods, 1))]


def _cell(cell: Cell, *, compact: bool, narrow: bool) -> str:
    if isinstance(cell, ScoreCell):
        return _score(cell, compact=compact, narrow=narrow)
    if isinstance(cell, RowHead):
        return "\n".join(filter(None, (_line(cell.name), cell.mark)))
    if isinstance(cell, ItemList):
        return cell.separator.join(map(_line, cell.texts[: cell.terminal_items]))
    return _line(cell)


def _score(cell: ScoreCell, *, compact: bool, narrow: bool) -> str:
    if compact:
        text = f"{cell.estimate} too few" if cell.few else cell.estimate
    else:
        text = "\n".join(cell.narrow_lines if narrow else cell.lines)
    return Grey(text) if cell.few else text


def _line(text: RichText) -> str:
    return "".join(map(_piece, pieces_of(text)))


def _piece(piece: Piece) -> str:
    if isinstance(piece, CaseName):
        sample, method = on_one_line(piece.sample_id, _NAME_LIMIT), on_one_line(piece.method, _NAME_LIMIT)
        return f"{sample}/{method}{piece.suffix}"
    return on_one_line(piece, _TEXT_LIMIT) if isinstance(piece, Prose | Verbatim) else piece


def _folded(head: str) -> str:
    """A head on several lines: broken at blanks, and a long name at its underscores."""
    lines: list[str] = []
    for word in head.split():
        for place, part in enumerate(word.split("_")):
            extended = f"{lines[-1]}_{part}" if place else part
            if place and len(extended) <= _HEAD_FOLD:
                lines[-1] = extended
            else:
                lines[-1:] = [f"{lines[-1]}_", part] if place else [*lines[-1:], part]
    return "\n".join(lines)
