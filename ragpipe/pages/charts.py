"""Differences by score and heat maps, made here as SVG and HTML: no script draws. They print, work without a script, and a mark is a link.

Colour never stands alone: each mark has its number or its word beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True)
class ForestRow:
    """One row of a forest chart: texts for its columns, and the place of its difference on the axis.

    `share`, `low` and `high` are in units of the axis, positive is better; None draws nothing. `same_within` is the half width of
    the band in which a difference is as good as none. `state` is better, worse, same or inconclusive.
    """

    name: str
    link: str
    base: str
    candidate: str
    difference: str
    bounds: str
    share: float | None
    low: float | None
    high: float | None
    same_within: float | None
    state: str
    remark: str
    wins: int
    ties: int
    losses: int
    few: bool = False


def forest(rows: Sequence[ForestRow], heads: tuple[str, str], caption: str) -> Markup:
    """A table with a row per score: means, the difference with its interval on one axis, and wins, ties and losses.

    `heads` are the names of the two sides. The axis is common to all rows and reaches as far as the widest interval.
    """
    limit = axis_limit([v for row in rows for v in (row.share, row.low, row.high) if v is not None])
    head = Markup(
        '<thead><tr><th scope="col">score</th><th scope="col" class="num means">{}</th><th scope="col" class="num means">{}</th>'
        '<th scope="col" class="plot">worse <span aria-hidden="true">&#8592; &#8594;</span> better</th><th scope="col" class="num">difference</th>'
        '<th scope="col" class="counts-head">better / equal / worse</th></tr></thead>'
    ).format(*map(_breakable, heads))
    body = Markup("\n").join(_forest_row(row, limit) for row in rows)
    return Markup('<table class="forest"><caption>{}</caption>{}<tbody>\n{}\n</tbody></table>').format(
        caption, head, body
    )


def axis_limit(values: Sequence[float]) -> float:
    """The round number up to which an axis reaches so that all values are on it: 1, 2 or 5 times a power of ten."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= largest * (1 - 1e-9))


def _forest_row(row: ForestRow, limit: float) -> Markup:
    return Markup(
        '<tr class="{}{}"><th scope="row"><a href="{}">{}</a> <small class="soft few-columns">{} → {}</small>{}</th><td class="num means">{}</td><td class="num means">{}</td>'
        '<td class="plot">{}</td><td class="num"><span class="difference">{}</span> <span class="bounds">{}</span></td>'
        '<td class="counts">{} / {} / {}{}</td></tr>'
    ).format(
        row.state,
        " few" if row.few else "",
        row.link,
        row.name,
        row.base,
        row.candidate,
        Markup(' <small class="soft">{}</small>').format(row.remark) if row.remark else "",
        row.base,
        row.candidate,
        _interval_svg(row, limit),
        row.difference,
        row.bounds,
        row.wins,
        row.ties,
        row.losses,
        _counts_svg(row.wins, row.ties, row.losses),
    )


def _interval_svg(row: ForestRow, limit: float) -> Markup:
    def x(value: float) -> str:
        return f"{100 + 100 * max(-1.0, min(1.0, value / limit)):.1f}"

    marks = [Markup('<line class="axis" x1="100" x2="100" y1="0" y2="18"/>')]
    if row.same_within:
        left, right = x(-row.same_within), x(row.same_within)
        marks.insert(
            0,
            Markup('<rect class="band" x="{}" y="2" width="{:.1f}" height="14"/>').format(
                left, float(right) - float(left)
            ),
        )
    if row.low is not None and row.high is not None:
        marks.append(Markup('<line class="interval" x1="{}" x2="{}" y1="9" y2="9"/>').format(x(row.low), x(row.high)))
    if row.share is not None:
        marks.append(Markup('<line class="mean" x1="{0}" x2="{0}" y1="4" y2="14"/>').format(x(row.share)))
    grey = "grey" if row.state in ("inconclusive", "same") or row.few else ""
    return Markup(
        '<svg viewBox="0 0 200 18" preserveAspectRatio="none" aria-hidden="true"><g class="{}">{}</g></svg>'
    ).format(grey, Markup("").join(marks))


def _counts_svg(wins: int, ties: int, losses: int) -> Markup:
    total = wins + ties + losses
    if not total:
        return Markup("")
    bars, left = [], 0.0
    for kind, count in (("wins", wins), ("ties", ties), ("losses", losses)):
        width = 100 * count / total
        bars.append(Markup('<rect class="{}" x="{:.1f}" y="0" width="{:.1f}" height="5"/>').format(kind, left, width))
        left += width
    return Markup('<svg viewBox="0 0 100 5" preserveAspectRatio="none" aria-hidden="true">{}</svg>').format(
        Markup("").join(bars)
    )


_WIDE = 6
"""Columns of a heat map, with more of which the heads of its rows may break."""


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map: its text, what a pointer reads over it, its link, and its shade: 2, 1 better, 0 grey, -1, -2 worse."""

    text: str
    title: str
    link: str
    shade: int
    few: bool = False


def heat_map(corner: str, columns: Sequence[str], rows: Sequence[tuple[str, str, Sequence[HeatCell | None]]]) -> Markup:
    """A table whose cells are shaded links. `rows` are (head, remark, a cell or None per column); `corner` heads the row heads."""
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(_breakable(name)) for name in columns)
    body = Markup("\n").join(
        Markup('<tr><th scope="row">{} <small class="soft">{}</small></th>{}</tr>').format(
            name, remark, Markup("").join(_heat_cell(cell) for cell in cells)
        )
        for name, remark, cells in rows
    )
    return Markup(
        '<table class="heat{}"><thead><tr><th scope="col">{}</th>{}</tr></thead><tbody>\n{}\n</tbody></table>'
    ).format(" wide" if len(columns) > _WIDE else "", corner, head, body)


def _breakable(name: str) -> Markup:
    """A name that may go on in the next line after the underscore next to its middle, and not inside its scale: `groundedness 0-5`."""
    first, space, scale = name.partition(" ")
    ends = [place + 1 for place, letter in enumerate(first[:-1]) if letter == "_"]
    middle = min(ends, key=lambda end: abs(end - len(first) / 2), default=0)
    broken = escape(first[:middle]) + Markup("<wbr>" if middle else "") + escape(first[middle:])
    return broken + (
        Markup('{}<span class="whole">{}</span>').format(space, scale) if "-" in scale else space + escape(scale)
    )


def _heat_cell(cell: HeatCell | None) -> Markup:
    if cell is None:
        return Markup('<td class="grey"><span></span></td>')
    shade = {2: "better-2", 1: "better-1", 0: "grey", -1: "worse-1", -2: "worse-2"}[cell.shade]
    return Markup('<td class="{}{}"><a href="{}" title="{}">{}</a></td>').format(
        shade, " few" if cell.few else "", cell.link, cell.title, cell.text
    )
