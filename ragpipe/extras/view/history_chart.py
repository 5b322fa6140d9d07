"""The main score of each name over its runs: a line with intervals and, where it is known, the band of the judge's noise.

The drawing is made here, as a tree of SVG elements `[tag, attributes, children]`; the script of the page only makes the elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.safe_text import on_one_line
from ragpipe.extras.view.listed_run import ListedRun, MainScore
from ragpipe.extras.view.run_changes import RunChange
from ragpipe.extras.view.run_row import run_address, score_words
from ragpipe.reports.number_format import decimal, plural

NAMES_MAX = 6
RUNS_MAX = 60
WIDTH, HEIGHT = 720, 96  # of the drawing, in its own units
_PAD = 12
Node = list[Any]
_SHAPES = {"better": "M-6 5L0 -6L6 5Z", "worse": "M-6 -5L0 6L6 -5Z"}
_DOT = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z"


def history_lines(runs: Sequence[ListedRun], changes: Mapping[str, RunChange | None]) -> list[dict[str, Any]]:
    """A line for each of the newest names with two runs or more: `runs` is newest first. At most `RUNS_MAX` runs each."""
    by_name: dict[str, list[ListedRun]] = {}
    for run in runs:
        if run.main is not None and not run.is_unfinished and not run.selftest:
            by_name.setdefault(run.name, []).append(run)
    lines: list[dict[str, Any]] = []
    for name, of_name in by_name.items():
        score = of_name[0].main.name if of_name[0].main else ""
        shown = [run for run in of_name if run.main and run.main.name == score][:RUNS_MAX]
        if len(shown) > 1 and len(lines) < NAMES_MAX:
            lines.append(_line(name, list(reversed(shown)), changes))
    return lines


def _line(name: str, runs: Sequence[ListedRun], changes: Mapping[str, RunChange | None]) -> dict[str, Any]:
    scores = [run.main for run in runs if run.main is not None]
    newest, words = scores[-1], []
    low, high = _axis(scores)
    parts = len(_stretches(runs))
    if parts > 1:
        words.append(f"broken where judge, prompts, metrics, scoring or samples changed ({plural(parts, 'part')})")
    if newest.noise is not None:
        words.append(f"grey: within the judge's noise of the newest run (±{newest.noise:.3f})")
    return {
        "name": on_one_line(name),
        "score": on_one_line(newest.name),
        "newest": score_words(newest),
        "words": f"{plural(len(runs), 'run')}; {decimal(low, 2)} to {decimal(high, 2)} from bottom to top"
        + "".join(f"; {word}" for word in words),
        "from": runs[0].created.strftime("%Y-%m-%d"),
        "to": runs[-1].created.strftime("%Y-%m-%d"),
        "svg": _drawing(runs, scores, changes, (low, high)),
    }


def _axis(scores: Sequence[MainScore]) -> tuple[float, float]:
    """The ends of the axis: all means and intervals with a margin, at least a tenth of the scale, never beyond the scale."""
    values = [value for score in scores for value in (score.mean, score.low, score.high) if value is not None]
    low, high = min(values), max(values)
    bottom, top = scores[-1].scale
    span = (top - bottom) if top is not None and bottom is not None else abs(high) or 1.0
    margin = max(0.05 * (high - low), (0.1 * span - (high - low)) / 2, 0.0) or 0.05
    low, high = low - margin, high + margin
    return (low if bottom is None else max(low, bottom)), (high if top is None else min(high, top))


def _stretches(runs: Sequence[ListedRun]) -> list[list[int]]:
    """The places of runs one after another that were measured in the same way."""
    stretches: list[list[int]] = []
    for place, run in enumerate(runs):
        if stretches and runs[place - 1].series == run.series:
            stretches[-1].append(place)
        else:
            stretches.append([place])
    return stretches


def _drawing(
    runs: Sequence[ListedRun],
    scores: Sequence[MainScore],
    changes: Mapping[str, RunChange | None],
    axis: tuple[float, float],
) -> Node:
    low, high = axis

    def x(place: int) -> str:
        return f"{_PAD + (WIDTH - 2 * _PAD) * place / (len(runs) - 1):.1f}"

    def y(value: float) -> float:
        share = (value - low) / ((high - low) or 1.0)
        return _PAD + (HEIGHT - 2 * _PAD) * (1 - max(0.0, min(1.0, share)))

    stretches, nodes = _stretches(runs), list[Node]()
    if (noise := scores[-1].noise) is not None:
        top, bottom, newest = y(scores[-1].mean + noise), y(scores[-1].mean - noise), stretches[-1]
        left = float(x(newest[0])) - _PAD / 2
        box = {
            "x": f"{left:.1f}",
            "y": f"{top:.1f}",
            "width": f"{WIDTH - _PAD / 2 - left:.1f}",
            "height": f"{bottom - top:.1f}",
        }
        nodes.append(["rect", {"class": "band", **box}, []])
    for stretch in stretches:
        path = "L".join(f"{x(place)} {y(scores[place].mean):.1f}" for place in stretch)
        nodes.append(["path", {"class": "way", "d": f"M{path}"}, []])
    for place, (run, score) in enumerate(zip(runs, scores, strict=True)):
        if score.low is not None and score.high is not None:
            ends = {"x1": x(place), "x2": x(place), "y1": f"{y(score.low):.1f}", "y2": f"{y(score.high):.1f}"}
            nodes.append(["line", {"class": "whisker", **ends}, []])
        nodes.append(_mark(run, score, changes.get(run.key), f"translate({x(place)} {y(score.mean):.1f})"))
    return [
        "svg",
        {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "group", "aria-label": f"{scores[-1].name} over {len(runs)} runs"},
        nodes,
    ]


def _mark(run: ListedRun, score: MainScore, change: RunChange | None, place: str) -> Node:
    """The point of a run: a triangle up for better and down for worse than the run before, else a dot; a link to the report."""
    state = change.state if change else ""
    words = f"{on_one_line(run.run_id)}, {run.created:%Y-%m-%d %H:%M}: {score_words(score)}"
    if change is not None:
        words += f"; {change.words} {state} against {change.before.rpartition('/')[2]}"
    shape: Node = [
        "path",
        {"class": f"run {state}", "d": _SHAPES.get(state, _DOT), "transform": place},
        [["title", {}, [words]]],
    ]
    if "report.html" not in run.files:
        return shape
    return ["a", {"href": run_address(run.key, "report.html"), "aria-label": words}, [shape]]
