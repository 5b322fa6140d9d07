"""The line of a score over runs, as nested lists [tag, attributes, children]: a page draws them by script, or has them as markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from ragpipe.report.styled_text import decimal, plural

WIDTH, HEIGHT = 720, 96  # of the drawing, in its own units
_PAD = 12
Node = list[Any]
_SHAPES = {"better": "M-6 5L0 -6L6 5Z", "worse": "M-6 -5L0 6L6 -5Z"}
_DOT = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z"


@dataclass(frozen=True)
class HistoryPoint:
    """A run on the line: its mean and interval, `series`, which is equal for runs that were measured in the same way, `state` against
    the previous run (better, worse, or anything else), what a pointer reads over it, and the address of its report; empty for none."""

    mean: float
    low: float | None
    high: float | None
    series: str
    state: str
    words: str
    link: str


@dataclass(frozen=True)
class HistoryLine:
    """The points in the order of time, the ends of the score's scale (None where it has none), and the judge's noise in the newest run."""

    name: str
    points: Sequence[HistoryPoint]
    scale: tuple[float | None, float | None]
    noise: float | None

    @property
    def axis(self) -> tuple[float, float]:
        """The ends of the axis: all means and intervals with a margin, at least a tenth of the scale, never beyond the scale."""
        values = [v for point in self.points for v in (point.mean, point.low, point.high) if v is not None]
        (low, high), (bottom, top) = (min(values), max(values)), self.scale
        span = (top - bottom) if top is not None and bottom is not None else abs(high) or 1.0
        margin = max(0.05 * (high - low), (0.1 * span - (high - low)) / 2, 0.0) or 0.05
        low, high = low - margin, high + margin
        return (low if bottom is None else max(low, bottom)), (high if top is None else min(high, top))

    @property
    def words(self) -> str:
        """How many runs, what the axis is, and why the line breaks."""
        (low, high), parts = self.axis, len(self._stretches())
        words = [plural(len(self.points), "run"), f"{decimal(low, 2)} to {decimal(high, 2)} from bottom to top"]
        if parts > 1:
            words.append(f"broken where judge, prompts, metrics, scoring or samples changed ({plural(parts, 'part')})")
        if self.noise is not None:
            words.append(f"grey: within the judge's noise of the newest run (±{self.noise:.3f})")
        return "; ".join(words)

    def _stretches(self) -> list[list[int]]:
        """The places of runs one after another that were measured in the same way."""
        stretches: list[list[int]] = []
        for place, point in enumerate(self.points):
            if stretches and self.points[place - 1].series == point.series:
                stretches[-1].append(place)
            else:
                stretches.append([place])
        return stretches

    def drawing(self) -> Node:
        """The line with its intervals, broken where it was measured in another way, and a mark for each run."""
        low, high = self.axis

        def x(place: int) -> str:
            return f"{_PAD + (WIDTH - 2 * _PAD) * place / max(1, len(self.points) - 1):.1f}"

        def y(value: float) -> float:
            share = (value - low) / ((high - low) or 1.0)
            return _PAD + (HEIGHT - 2 * _PAD) * (1 - max(0.0, min(1.0, share)))

        stretches, nodes = self._stretches(), list[Node]()
        if self.noise is not None:
            top, bottom = (y(self.points[-1].mean + sign * self.noise) for sign in (1, -1))
            left = float(x(stretches[-1][0])) - _PAD / 2
            sides = {"x": left, "y": top, "width": WIDTH - _PAD / 2 - left, "height": bottom - top}
            nodes.append(["rect", {"class": "band", **{name: f"{side:.1f}" for name, side in sides.items()}}, []])
        for stretch in stretches:
            path = "L".join(f"{x(place)} {y(self.points[place].mean):.1f}" for place in stretch)
            nodes.append(["path", {"class": "way", "d": f"M{path}"}, []])
        for place, point in enumerate(self.points):
            if point.low is not None and point.high is not None:
                ends = {"x1": x(place), "x2": x(place), "y1": f"{y(point.low):.1f}", "y2": f"{y(point.high):.1f}"}
                nodes.append(["line", {"class": "whisker", **ends}, []])
            nodes.append(_mark(point, f"translate({x(place)} {y(point.mean):.1f})"))
        box = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "group", "aria-label": f"{self.name} over {len(self.points)} runs"}
        return ["svg", box, nodes]


def _mark(point: HistoryPoint, place: str) -> Node:
    """A triangle up for better and down for worse than the previous run, else a dot; a link to the report."""
    form = {"class": f"run {point.state}", "d": _SHAPES.get(point.state, _DOT), "transform": place}
    shape: Node = ["path", form, [["title", {}, [point.words]]]]
    return ["a", {"href": point.link, "aria-label": point.words}, [shape]] if point.link else shape


def markup_of(node: Node | str) -> Markup:
    """A drawing as markup."""
    if isinstance(node, str):
        return escape(node)
    tag, attributes, children = node
    inside = Markup("").join(map(markup_of, children))
    written = Markup("").join(Markup(' {}="{}"').format(name, value) for name, value in attributes.items())
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, inside)
