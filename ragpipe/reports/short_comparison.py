"""The headline scores of a comparison as one table that fits the screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.reports.comparison_summary import HEADS, headline_rows, parts_mark
from ragpipe.reports.short_verdict import verdict_word
from ragpipe.reports.styled_text import (
    Grey,
    Head,
    Line,
    Screen,
    cut_apart,
    narrowed,
    table_columns,
    table_lines,
    wrapped,
)

_NAME_WIDTHS = (40, 24, 16)  # columns of the name of a score, tried in turn
_DROPPABLE = ("could show", "w/t/l", "new", "base")  # columns that are left out, the first of them first


def headline_lines(comparison: Mapping[str, Any], screen: Screen) -> Iterator[Line]:
    """A row per headline score, then medians and means of latency and cost; on a narrow screen with fewer columns and shorter
    names. Which composites lack parts stands below the table where the names have no room for it."""
    rows = [list(HEADS), *headline_rows(comparison)]
    marks = {name + mark: name for name, score in comparison["scores"].items() if (mark := parts_mark(score))}
    has_marks = table_columns(narrowed(rows, _DROPPABLE[:1], screen.columns)) <= screen.columns
    if not has_marks:
        rows = [[marks.get(name, name), *figures] for name, *figures in rows]
    for width in _NAME_WIDTHS:
        names = cut_apart([screen.text(row[0]) for row in rows], width)
        grid = [[name, *row[1:]] for name, row in zip(names, rows, strict=True)]
        grid = narrowed(grid, _DROPPABLE, screen.columns)
        if table_columns(grid) <= screen.columns:
            break
    place = grid[0].index("verdict")
    styled = [[*row[:place], verdict_word(row[place]), *row[place + 1 :]] for row in grid[1:]]
    yield from table_lines([[Head(head) for head in grid[0]], *styled], left=(0, place))
    for shown, name in marks.items():
        if not has_marks and any(row[0] == name for row in rows):
            yield from wrapped((Grey(f"{name}: {shown.removeprefix(name).strip(' ()')}"),), screen.columns)
