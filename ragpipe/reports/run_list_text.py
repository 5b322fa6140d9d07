"""The list of runs on a terminal: one line of figures per run, and one of what it changes against the run before it."""

from __future__ import annotations

from collections.abc import Sequence

from ragpipe.core.safe_text import on_one_line, printable
from ragpipe.reports.runs_page import RunLine, differences_text, run_list_cells, run_list_heads, run_list_scores

_GAP = "  "
_INDENT = "  "
_LEFT = 5  # the first columns are texts, aligned left; the others are figures


def run_list_text(lines: Sequence[RunLine], width: int) -> list[str]:
    """The list in lines of at most `width` columns, in which no word and no number is broken.

    Columns that do not fit are left out, the least wanted first, and named below; run and main score always stay. A run
    that cannot be read has its reason in one line.
    """
    heads = run_list_heads(lines)[:-1]
    scores = run_list_scores(lines)
    rows = {line.run_id: [printable(cell) for cell in run_list_cells(line, scores)[:-1]] for line in lines}
    table = [heads, *(rows[line.run_id] for line in lines if not line.unread)]
    widths = [max(len(row[place]) for row in table) for place in range(len(heads))]
    shown = _fitting(heads, widths, width)
    text = [_row(heads, widths, shown)]
    for line in lines:
        if line.unread:
            text.append(on_one_line(f"{printable(line.run_id)} {printable(line.unread)}", width))
            continue
        text.append(_row(rows[line.run_id], widths, shown))
        if line.before:
            text.append(_INDENT + differences_text(line, width - len(_INDENT)))
    if hidden := [head for place, head in enumerate(heads) if place not in shown]:
        names = f"not shown in {width} columns: {', '.join(hidden)}"
        text.append(names if len(names) <= width else f"{len(hidden)} columns do not fit; runs.md has all")
    return text


def _fitting(heads: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """The places of the columns that fit together, in the order of the table; chosen by how much they are wanted."""
    run, created, state, cases, judge = range(_LEFT)
    gates, cost = len(heads) - 2, len(heads) - 1
    main, *others = [*range(_LEFT, gates)] or [gates]
    wanted = dict.fromkeys([run, main, created, gates, state, cases, *others[:1], cost, judge, *others[1:]])
    kept: list[int] = []
    used = 0
    for place in wanted:
        needed = widths[place] + (len(_GAP) if kept else 0)
        if used + needed <= width or place in (run, main):
            kept.append(place)
            used += needed
    return sorted(kept)


def _row(cells: Sequence[str], widths: Sequence[int], shown: Sequence[int]) -> str:
    padded = (
        cells[place].ljust(widths[place]) if place < _LEFT and place != 3 else cells[place].rjust(widths[place])
        for place in shown
    )
    return _GAP.join(padded).rstrip()
