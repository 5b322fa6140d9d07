"""Charts of how values lie: histograms, one value against another, and methods by what they give and take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

Floats = NDArray[np.float64]

POINTS_MAX = 2000
"""More points than this are counted in bins."""
BINS = 20
_SIDE = 240  # of the square of a scatter chart, in its own units
_HEIGHT = 40  # of a histogram
_TRADE = 300, 170  # width and height of the plane of quality and cost


@dataclass(frozen=True)
class HistogramBin:
    """A bar of a histogram: how many cases, what a pointer or a screen reader reads, and the link to the cases."""

    count: int
    label: str
    link: str


def histogram(bins: Sequence[HistogramBin], name: str, remark: str, ends: tuple[str, str], highest: int) -> Markup:
    """Bars in a row over an axis from `ends[0]` to `ends[1]`; a bar opens its cases.

    Args:
        bins: the bars from left to right; an empty one takes its place and draws nothing.
        name: what is counted, above the bars.
        remark: how many are counted, beside the name.
        ends: the ends of the axis as text.
        highest: the count of a bar of full height, so that histograms side by side have one height axis.
    """
    step, bars = 100 / max(len(bins), 1), []
    for place, item in enumerate(bins):
        if item.count:
            height = max(1.0, _HEIGHT * item.count / max(highest, 1))
            bars.append(
                Markup(
                    '<a href="{}" aria-label="{}"><title>{}</title><rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/></a>'
                ).format(item.link, item.label, item.label, place * step + 0.5, _HEIGHT - height, step - 1, height)
            )
    return Markup(
        '<div class="histogram"><p>{} <small class="soft">{}</small></p><svg viewBox="0 0 100 {}" preserveAspectRatio="none" role="group" aria-label="{}">'
        '{}</svg><p class="ends"><span>{}</span><span>{}</span></p></div>'
    ).format(name, remark, _HEIGHT, f"{name}: {remark}", Markup("").join(bars), *ends)


def scatter(
    across: Floats,
    up: Floats,
    bounds: tuple[float, float],
    heads: tuple[str, str],
    label: str,
    bounds_up: tuple[float, float] | None = None,
) -> Markup:
    """A point per case; many points, or many on one place, as bins that say their count.

    Args:
        across: the values from left to right; pairs with a NaN are left out.
        up: the values upwards, in the same order.
        bounds: the ends of the axes; values outside are drawn at the edge.
        heads: the names of the two axes.
        label: what a screen reader says in place of the chart.
        bounds_up: the ends of the upright axis where they are others; where both are equal, the diagonal is drawn.
    """
    both = np.isfinite(across) & np.isfinite(up)
    x, y = _places(across[both], bounds), _places(up[both], bounds_up or bounds)
    marks = _point_path(x, y) if len(x) <= POINTS_MAX and not _crowded(x, y) else _bin_rects(x, y)
    diagonal = Markup('<line class="axis" x1="0" y1="{0}" x2="{0}" y2="0"/>').format(_SIDE)
    low_up, high_up = bounds_up or bounds
    return Markup(
        '<svg class="scatter" viewBox="-34 -22 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{label}">'
        '<rect class="frame" x="0" y="0" width="{side}" height="{side}"/>{diagonal}{marks}'
        '<text x="0" y="{below}">{low}</text><text x="{side}" y="{below}" text-anchor="end">{high}</text>'
        '<text x="{middle}" y="{lower}" text-anchor="middle">{head}</text>'
        '<text x="-6" y="{side}" text-anchor="end">{low_up}</text><text x="-6" y="10" text-anchor="end">{high_up}</text>'
        '<text x="0" y="-8">{head_up}</text></svg>'
    ).format(
        w=_SIDE + 46, h=_SIDE + 54, side=_SIDE, below=_SIDE + 14, lower=_SIDE + 28, middle=_SIDE // 2, marks=marks, label=label,
        low=axis_number(bounds[0]), high=axis_number(bounds[1]), low_up=axis_number(low_up), high_up=axis_number(high_up),
        head=heads[0], head_up=heads[1], diagonal="" if bounds_up else diagonal,
    )  # fmt: skip


def axis_number(value: float) -> str:
    """The end of an axis: `0`, `0.25`, `1,500`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _places(values: Floats, bounds: tuple[float, float]) -> Floats:
    low, high = bounds
    places: Floats = np.clip((values - low) / ((high - low) or 1.0), 0, 1)
    return places


def _crowded(x: Floats, y: Floats) -> bool:
    """Whether points hide each other: on average more than three share a place."""
    places = np.stack([(x * _SIDE).round(), (y * _SIDE).round()])
    return bool(3 * np.unique(places, axis=1).shape[1] < len(x))


def _point_path(x: Floats, y: Floats) -> Markup:
    """All points as one path of lines without length, whose round ends are the dots."""
    places = zip((x * _SIDE).round().astype(int).tolist(), ((1 - y) * _SIDE).round().astype(int).tolist(), strict=True)
    return Markup('<path class="points" d="{}"/>').format("".join(f"M{a} {b}h0" for a, b in places))


def _bin_rects(x: Floats, y: Floats) -> Markup:
    """`BINS` x `BINS` squares, the more cases the more opaque (square root); each says its count."""
    counts, _, _ = np.histogram2d(x, y, bins=BINS, range=[[0, 1], [0, 1]])
    step, most = _SIDE / BINS, counts.max()
    rects = [
        Markup(
            '<rect x="{:g}" y="{:g}" width="{:g}" height="{:g}" fill-opacity="{:.2f}"><title>{}</title></rect>'
        ).format(
            column * step,
            (BINS - 1 - row) * step,
            step,
            step,
            math.sqrt(counts[column, row] / most),
            int(counts[column, row]),
        )
        for column, row in np.argwhere(counts > 0).tolist()
    ]
    return Markup('<g class="bins">{}</g>').format(Markup("").join(rects))


@dataclass(frozen=True)
class TradePoint:
    """A method in the plane: (value, low, high) across and up, the bounds None where there is no interval; `mark` is its letter."""

    mark: str
    name: str
    across: tuple[float, float | None, float | None]
    up: tuple[float, float | None, float | None]


def trade_chart(
    points: Sequence[TradePoint], limit: float, bounds_up: tuple[float, float], heads: tuple[str, str], label: str
) -> Markup:
    """A letter per method with its interval in both directions, so that what is better and what is cheaper is seen at once.

    Args:
        points: the methods.
        limit: the right end of the axis across, which begins at 0.
        bounds_up: the ends of the upright axis.
        heads: the names of the two axes.
        label: what a screen reader says in place of the chart.
    """
    low, high = bounds_up
    marks = [_trade_mark(point, limit, low, (high - low) or 1.0) for point in points]
    return Markup(
        '<svg class="trade" viewBox="-40 -22 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{label}">'
        '<rect class="frame" x="0" y="0" width="{width}" height="{height}"/>{marks}'
        '<text x="0" y="{below}">0</text><text x="{width}" y="{below}" text-anchor="end">{limit}</text>'
        '<text x="{middle}" y="{below}" text-anchor="middle">{head}</text><text x="0" y="-8">{head_up}</text>'
        '<text x="-6" y="{height}" text-anchor="end">{low}</text><text x="-6" y="10" text-anchor="end">{high}</text></svg>'
    ).format(
        w=_TRADE[0] + 54,
        h=_TRADE[1] + 44,
        width=_TRADE[0],
        height=_TRADE[1],
        below=_TRADE[1] + 15,
        middle=_TRADE[0] // 2,
        label=label,
        limit=axis_number(limit),
        low=axis_number(low),
        high=axis_number(high),
        head=heads[0],
        head_up=heads[1],
        marks=Markup("").join(marks),
    )


def _trade_mark(point: TradePoint, limit: float, low: float, span: float) -> Markup:
    """The letter of a method at its place, with its intervals."""
    (across, left, right), (up, bottom, top) = point.across, point.up

    def x(value: float) -> str:
        return f"{_TRADE[0] * max(0.0, min(1.0, value / (limit or 1.0))):.1f}"

    def y(value: float) -> str:
        return f"{_TRADE[1] * (1 - max(0.0, min(1.0, (value - low) / span))):.1f}"

    bars = []
    if left is not None and right is not None:
        bars.append(Markup('<path class="reach" d="M{} {}H{}"/>').format(x(left), y(up), x(right)))
    if bottom is not None and top is not None:
        bars.append(Markup('<path class="reach" d="M{} {}V{}"/>').format(x(across), y(bottom), y(top)))
    return Markup(
        '<g><title>{}</title>{}<circle cx="{cx}" cy="{cy}" r="8"/>'
        '<text class="mark" x="{cx}" y="{cy}" dy="4" text-anchor="middle">{}</text></g>'
    ).format(point.name, Markup("").join(bars), point.mark, cx=x(across), cy=y(up))
