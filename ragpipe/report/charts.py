"""The charts of a page, made here as SVG and HTML (`templates/charts.html.jinja`): no script draws. They print, work without a
script, and a mark is a link. Colour never stands alone: each mark has its number or its word beside it.

Charts with a row per thing are tables: the figures stand beside the marks, so that a screen reader, a printer or a page without
a script loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from ragpipe.report.page_file import page_environment

Floats = NDArray[np.float64]

POINTS_MAX = 2000
"""More points than this are counted in bins."""
BINS = 20
_SIDE = 240  # of the square of a scatter chart, in its own units
_HEIGHT = 40  # of a histogram
_TRADE = 300, 170  # width and height of the plane of quality and cost


_SHAPES = ("M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0Z", "M-4-4h8v8h-8Z", "M0-5.2L5 4H-5Z", "M0-5.6L5.2 0L0 5.6L-5.2 0Z",
           "M0 5.2L5-4H-5Z", "M-1.7-5h3.4v3.3H5v3.4H1.7V5h-3.4V1.7H-5v-3.4h3.3Z")  # fmt: skip
"""The marks of methods around their own middle: a method has a shape and a colour (`m0` to `m5` in core.css), from the seventh on hollow."""


def method_key(number: int) -> Markup:
    """The mark of a method by its number, as it stands beside its name."""
    return Markup(_macros().key(number))


@cache
def _macros() -> Any:
    environment = page_environment(Path(__file__).resolve().parent / "templates")
    environment.filters |= {"breakable": _breakable, "across": _across, "tenths": "{:.1f}".format}
    environment.filters["place"] = lambda place: f"{max(0.0, min(100.0, place)):.1f}"
    environment.filters["thousands"] = "{:,}".format
    environment.globals["shapes"] = _SHAPES
    environment.filters["band"] = lambda half, limit: f"{float(_across(half, limit)) - float(_across(-half, limit)):.1f}"
    return environment.get_template("charts.html.jinja").make_module()


def _across(value: float, limit: float) -> str:
    """A place on an axis of 200 units with 0 in its middle."""
    return f"{100 + 100 * max(-1.0, min(1.0, value / limit)):.1f}"


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
    return Markup(_macros().forest(rows, heads, caption, limit))


def axis_limit(values: Sequence[float]) -> float:
    """The round number up to which an axis reaches so that all values are on it: 1, 2 or 5 times a power of ten."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= largest * (1 - 1e-9))


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map: its text, what a pointer reads over it, its link, and its shade: 2, 1 better, 0 grey, -1, -2 worse."""

    text: str
    title: str
    link: str
    shade: int
    few: bool = False


def heat_map(
    corner: str, columns: Sequence[str], rows: Sequence[tuple[str, str, Sequence[HeatCell | None]]], *, by_method: bool = False
) -> Markup:
    """A table whose cells are shaded links. `rows` are (head, remark, a cell or None per column); `corner` heads the row heads; the
    columns may be the methods in their order."""
    return Markup(_macros().heat_map(corner, columns, rows, by_method))


def map_switch(scores: Sequence[tuple[str, Sequence[Markup]]]) -> Markup:
    """Heat maps of the first score, and a choice that puts those of another one in their place."""
    return Markup(_macros().map_switch(scores))


def _breakable(name: str) -> Markup:
    """A name that may go on in the next line after the underscore next to its middle, and not inside its scale: `groundedness 0-5`."""
    first, space, scale = name.partition(" ")
    ends = [place + 1 for place, letter in enumerate(first[:-1]) if letter == "_"]
    middle = min(ends, key=lambda end: abs(end - len(first) / 2), default=0)
    broken = escape(first[:middle]) + Markup("<wbr>" if middle else "") + escape(first[middle:])
    return broken + (Markup('{}<span class="whole">{}</span>').format(space, scale) if "-" in scale else space + escape(scale))


@dataclass(frozen=True)
class Marks:
    """What is drawn on the axis of a row, in places of 0 to 100 from left to right; None is not drawn.

    `limits` are upright lines: the threshold of a score, the ends of a gate.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    limits: tuple[float, ...] = ()
    grey: bool = False


@dataclass(frozen=True)
class MeanRow:
    """A mean with its interval: texts for the columns, and its marks; None for a score without a scale."""

    name: str
    link: str
    mean: str
    bounds: str
    passed: str
    remark: str
    marks: Marks | None
    few: bool = False


def mean_table(
    rows: Sequence[MeanRow], caption: str, heads: tuple[str, str, str] = ("score", "mean", "on its scale")
) -> Markup:
    """A row per score: mean, the interval on the axis of the score's own scale, and the share that passed, where any row has one."""
    return Markup(_macros().means(rows, caption, heads))


@dataclass(frozen=True)
class Difference:
    """How a method differs from the first one in a score, in words; `state` is better, worse, equal or inconclusive, `needed`
    says of the latter how many cases would tell. `of` is its number, `is_first` marks the one that stands there before one is chosen."""

    of: int
    text: str
    bounds: str
    state: str
    remark: str
    needed: str = ""
    is_first: bool = False


@dataclass(frozen=True)
class MethodRow:
    """A method in a score: its mean with interval as texts and marks, how many cases passed, and its difference; None for the first."""

    number: int
    name: str
    link: str
    mean: str
    bounds: str
    passed: str
    marks: Marks | None
    difference: Difference | None
    few: bool = False


Ends = Sequence[tuple[float, str]]
"""Ticks of an axis: places of 0 to 100 with their texts."""


def method_forest(rows: Sequence[MethodRow], ticks: Ends, head: str, base: str, caption: str) -> Markup:
    """A row per method on the axis of one score, with its difference from the method `base`, empty where there is nothing to compare."""
    return Markup(_macros().methods(rows, ticks, head, base, caption))


@dataclass(frozen=True)
class LaneRow:
    """A score: what each method has, as (number, name, text, marks), on the score's own scale, and the differences from the first."""

    name: str
    link: str
    methods: Sequence[tuple[int, str, str, Marks | None]]
    differences: Sequence[Difference]


def score_lanes(rows: Sequence[LaneRow], methods: Sequence[tuple[int, str]], base: str, caption: str) -> Markup:
    """A row per score with a mark per method on its scale from worst to best, and the difference of a method from `base`."""
    return Markup(_macros().lanes(rows, methods, base, caption))


@dataclass(frozen=True)
class Problem:
    """What is wrong: in how many cases of each method as (number, count, share of 0 to 1, link); what it means and what to do."""

    name: str
    link: str
    message: str
    remedy: str
    counts: Sequence[tuple[int, str, float, str]]


def problem_table(rows: Sequence[Problem], methods: Sequence[tuple[int, str]], label: str) -> Markup:
    """A row per problem and a column per method: how many of its cases have it. A count opens them."""
    return Markup(_macros().problems(rows, methods, label))


@dataclass(frozen=True)
class ShareRow:
    """A share of the cases: `share` of 0 to 1 is drawn; `count` and `percent` are texts. An empty `link` links nothing."""

    name: str
    link: str
    count: str
    percent: str
    share: float
    message: str
    remedy: str


def share_table(rows: Sequence[ShareRow], label: str) -> Markup:
    """A row per share, drawn as a bar of the whole width, with what is wrong and what to try. `label` names the table."""
    return Markup(_macros().shares(rows, label))


@dataclass(frozen=True)
class LimitRow:
    """A limit, what was measured, the state in a word and in a sentence; `kind` colours the state: good, bad, warn or empty."""

    name: str
    link: str
    remark: str
    value: str
    limit: str
    marks: Marks | None
    kind: str
    state: str
    sentence: str = ""


def limit_table(rows: Sequence[LimitRow], label: str) -> Markup:
    """A row per gate: value, limit, both on an axis with the interval, and the state. `label` names the table."""
    return Markup(_macros().limits(rows, label))


@dataclass(frozen=True)
class HistogramBin:
    """A bar of a histogram: how many cases, what a pointer or a screen reader reads, and the link to the cases."""

    count: int
    label: str
    link: str


def histogram(
    groups: Sequence[tuple[int | None, str, Sequence[HistogramBin]]], name: str, ticks: Ends, threshold: float | None = None
) -> Markup:
    """Bars of each group below each other on one axis and of one height; a bar has its count and opens its cases.

    Args:
        groups: (number of the method or None, its name, its bars from left to right); an empty bar draws nothing.
        name: what is counted.
        ticks: the axis.
        threshold: the place of 0 to 100 from which cases pass.
    """
    highest = max((item.count for _, _, bins in groups for item in bins), default=1) or 1
    drawn = []
    for number, group, bins in groups:
        step = 100 / max(len(bins), 1)
        bars = [
            (item, place * step + step * 0.05, step * 0.9, max(1.0, _HEIGHT * item.count / highest))
            for place, item in enumerate(bins)
            if item.count
        ]
        drawn.append((number, group, sum(item.count for item in bins), bars))
    return Markup(_macros().histogram(drawn, name, ticks, threshold, _HEIGHT))


@dataclass(frozen=True)
class Line:
    """A curve of a method: its values at the places of the axis, in shares of the upright axis; None is not drawn."""

    number: int
    name: str
    values: Sequence[float | None]


def line_chart(
    lines: Sequence[Line], places: Sequence[tuple[float, str]], heads: tuple[str, str], ends: tuple[str, str]
) -> Markup:
    """A curve per method with its marks over the `places` (0 to 1, with their texts). `heads` name the axes, `ends` are the lower and the
    upper end of the upright one."""
    width, height = _TRADE
    drawn, said = [], []
    for line in lines:
        dots = [(width * x, height * (1 - y)) for (x, _), y in zip(places, line.values, strict=True) if y is not None]
        drawn.append((line, "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in dots) if dots else "", dots))
        values = ", ".join("-" if value is None else f"{value:.2f}" for value in line.values)
        said.append(f"{line.name}: {values}".removeprefix(": "))
    ticks = [(width * x, text) for x, text in places]
    return Markup(_macros().curves(drawn, ticks, width, height, heads, ends, f"{heads[1]} over {heads[0]}; {'; '.join(said)}"))


Part = tuple[str, int, str]
"""A part of a bar: what it is, how many, and the class of its colour."""


def part_bars(rows: Sequence[tuple[int | None, str, str, Sequence[Part]]], label: str) -> Markup:
    """A bar per row, (number of a method or None, name, remark, parts), divided into its parts with their counts; a legend below."""
    legend = {name: kind for _, _, _, parts in rows for name, _, kind in parts}
    drawn = []
    for number, name, remark, parts in rows:
        total, start, places = sum(n for _, n, _ in parts) or 1, 0.0, []
        for what, n, kind in parts:
            places.append((what, n, kind, start, 100 * n / total))
            start += 100 * n / total
        drawn.append((number, name, remark, places))
    return Markup(_macros().bars(drawn, legend, label))


def scatter(across: Floats, up: Floats, bounds: tuple[float, float], heads: tuple[str, str], label: str) -> Markup:
    """A point per case; many points, or many on one place, as bins that say their count.

    Pairs of values with a NaN are left out, and those outside `bounds`, the ends of both axes, are drawn at the edge. `heads`
    are the names of the two axes, `label` is what a screen reader says in place of the chart.
    """
    both = np.isfinite(across) & np.isfinite(up)
    x, y = _places(across[both], bounds), _places(up[both], bounds)
    places = np.stack([(x * _SIDE).round(), (y * _SIDE).round()])
    is_crowded = 3 * np.unique(places, axis=1).shape[1] < len(x)  # on average more than three share a place
    has_points = len(x) <= POINTS_MAX and not is_crowded
    ends = map(axis_number, bounds * 2)
    points, bins = (_path(x, y), ()) if has_points else (None, _bins(x, y))
    return Markup(_macros().scatter(_SIDE, points, bins, *ends, heads, label))


def axis_number(value: float) -> str:
    """The end of an axis: `0`, `0.25`, `1,500`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _places(values: Floats, bounds: tuple[float, float]) -> Floats:
    low, high = bounds
    places: Floats = np.clip((values - low) / ((high - low) or 1.0), 0, 1)
    return places


def _path(x: Floats, y: Floats) -> str:
    """All points as one path of lines without length, whose round ends are the dots."""
    places = zip((x * _SIDE).round().astype(int).tolist(), ((1 - y) * _SIDE).round().astype(int).tolist(), strict=True)
    return "".join(f"M{a} {b}h0" for a, b in places)


def _bins(x: Floats, y: Floats) -> list[tuple[str, str, str, str, int]]:
    """`BINS` x `BINS` squares, the more cases the more opaque (square root): place, side, opacity and count."""
    counts, _, _ = np.histogram2d(x, y, bins=BINS, range=[[0, 1], [0, 1]])
    step, most = _SIDE / BINS, counts.max()
    bins = []
    for column, row in np.argwhere(counts > 0).tolist():
        n, left, top = int(counts[column, row]), f"{column * step:g}", f"{(BINS - 1 - row) * step:g}"
        bins.append((left, top, f"{step:g}", f"{math.sqrt(n / most):.2f}", n))
    return bins


@dataclass(frozen=True)
class TradePoint:
    """A method in the plane: (value, low, high) across and up, the bounds None where there is no interval; `number` gives its mark."""

    number: int
    name: str
    across: tuple[float, float | None, float | None]
    up: tuple[float, float | None, float | None]


def trade_chart(
    points: Sequence[TradePoint], limit: float, bounds_up: tuple[float, float], heads: tuple[str, str], label: str
) -> Markup:
    """A mark per method with its interval in both directions, so that what is better and what is cheaper is seen at once.

    The axis across goes from 0 to `limit`, the upright one between `bounds_up`; `heads` are the names of the two, `label` is
    what a screen reader says in place of the chart.
    """
    low, high = bounds_up
    width, height = _TRADE

    def x(value: float | None) -> str:
        return "" if value is None else f"{width * max(0.0, min(1.0, value / (limit or 1.0))):.1f}"

    def y(value: float | None) -> str:
        return "" if value is None else f"{height * (1 - max(0.0, min(1.0, (value - low) / ((high - low) or 1.0)))):.1f}"

    marks = [(point, [*map(x, point.across)], [*map(y, point.up)]) for point in points]
    ends = map(axis_number, (limit, low, high))
    return Markup(_macros().trade(marks, width, height, *ends, heads, label))


def trade_table(rows: Sequence[tuple[int, str, str, str, str]], name: str) -> Markup:
    """The figures of `trade_chart`: number, method, the score called `name`, latency, and tokens or money per answer."""
    return Markup(_macros().trade_table(rows, name))


@dataclass(frozen=True)
class CalibrationPoint:
    """Cases that a judge scored alike: its mean `score`, the mean of people's `label` with its interval, both in shares of the scale,
    and how many cases they are. Bounds are None for too few."""

    score: float
    label: float
    low: float | None
    high: float | None
    n: int


def calibration_plot(points: Sequence[CalibrationPoint], heads: tuple[str, str] = ("judge", "people")) -> Markup:
    """People's labels over the judge's scores: on the diagonal both agree. `heads` name the axes; scores and labels lie in 0 to 1."""
    marks = []
    for point in points:
        x, y, interval = f"{_SIDE * point.score:.1f}", f"{_SIDE * (1 - point.label):.1f}", ""
        if point.low is not None and point.high is not None:
            interval = f"M{x} {_SIDE * (1 - point.low):.1f}V{_SIDE * (1 - point.high):.1f}"
        marks.append((point, x, y, interval, f"{min(9.0, 3 + math.sqrt(point.n) / 3):.1f}"))
    label = f"{heads[1]} against {heads[0]}, {sum(point.n for point in points):,} cases: " + "; ".join(
        f"{point.score:.2f} → {point.label:.2f} (n = {point.n:,})" for point in points
    )
    return Markup(_macros().calibration(_SIDE, marks, heads, label))


def confusion_matrix(
    counts: Sequence[Sequence[int]], labels: Sequence[str], heads: tuple[str, str] = ("judge", "people")
) -> Markup:
    """A table of how often people (rows) and judge (columns) gave each of `labels`: the more of a row, the darker its cell; where both
    agree it is blue, else orange."""
    rows = []
    for place, row in enumerate(counts):
        total = max(1, sum(row))
        cells = [(n, f"{n / total:.0%}", _tint(n / total, agrees=place == column)) for column, n in enumerate(row)]
        rows.append((labels[place], sum(row), cells))
    return Markup(_macros().confusion(rows, labels, heads, sum(map(sum, counts))))


def _tint(share: float, *, agrees: bool) -> str:
    """The class of a cell."""
    return "grey" if share < 0.05 else f"{'better' if agrees else 'worse'}-{2 if share >= 0.5 else 1}"
