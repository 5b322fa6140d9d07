"""Where a run is good and bad: heat maps of the values of a field by the charted scores, over all methods and for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from ragpipe.pages.charts import HeatCell, heat_map
from ragpipe.pages.page_address import page_address
from ragpipe.reports.metrics_view import chart_names, has_few_questions, heading, headline_names
from ragpipe.reports.model import HTML, Chart, Note, Verbatim
from ragpipe.reports.number_format import bracketed, decimal, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.scoring.estimates import estimate_of, interval_of

_OPEN_LEAST, _OPEN_MOST = 3, 5  # rows of the first map
_FIRST_SCREEN = 8  # rows of this map and of the chart of the headline scores together
_ROWS = 8  # of one map; the rest is folded or in metrics.json
_CELLS = 130  # of all maps on a page: a map is for looking, metrics.json has every figure
_METHODS = 3  # methods with maps of their own
_COLUMNS = 6  # scores of a map: with more it would not fit beside what is wrong
NOTE = "Blue △▲ is better, orange ▽▼ worse than the whole run (filled: by 15 % of the scale), grey undecided. Cells link to failed cases."


class _Map(NamedTuple):
    """A field with its rows: value, cases, and a cell per score; `outstanding` cells are not grey."""

    field: str
    rows: Sequence[tuple[str, int, Sequence[HeatCell | None]]]
    outstanding: int


def slice_charts(data: ReportData) -> Iterator[Chart | Note]:
    """The field that stands out most first, its most frequent values that stand out before the others; all other maps are folded."""
    charted = chart_names(data.metrics)
    names = charted[:_COLUMNS]
    if not names:
        return
    maps = sorted(_maps(data, names), key=lambda item: -item.outstanding)
    heads = [heading(name, data.metrics, data.settings.percent) for name in names]
    n_open = max(_OPEN_LEAST, min(_OPEN_MOST, _FIRST_SCREEN - len(headline_names(data.metrics))))
    cells, left_out = _CELLS, charted[_COLUMNS:]
    for place, item in enumerate(maps):
        room = max(cells, 0) // len(names)
        rows = item.rows[: min(_ROWS, room)]
        if not rows:
            left_out.append(item.field)
            continue
        cells -= len(rows) * len(names)
        title = ("By ", Verbatim(item.field))
        opened = rows if place else rows[:n_open]
        yield Chart(title, _table(item.field, heads, opened), NOTE if place == 0 else "", folded=place > 0)
        if place == 0 and len(rows) > n_open:
            rest = rows[n_open:]
            yield Chart((*title, f": {len(rest)} more values"), _table(item.field, heads, rest), folded=True)
        if place == 0:
            of_methods = list(_by_method(data, names, item, rows[:n_open]))
            cells -= len(of_methods) * len(rows[:n_open]) * len(names)
            yield from of_methods
        if more := len(item.rows) - len(rows):
            left_out.append(f"{more} more of {item.field}")
    if left_out:
        yield Note(("In report.md and metrics.json: ", Verbatim(", ".join(left_out)), "."), shown_in=HTML)


def _table(field: str, names: Sequence[str], rows: Sequence[tuple[str, int, Sequence[HeatCell | None]]]) -> Markup:
    return heat_map(field, names, [(value, f"n = {whole(n)}", cells) for value, n, cells in rows])


def _maps(data: ReportData, names: Sequence[str]) -> Iterator[_Map]:
    metrics = data.metrics
    for field, groups in metrics["by"].items():
        if field == "method" or not groups or "*" in field:
            continue
        rows = []
        for value, group in groups.items():
            cells = [_cell(group["scores"].get(name), name, f"{field}:{value}", None, data) for name in names]
            rows.append((value, group["n_cases"], cells))
        yield _Map(field, sorted(rows, key=_prominence), sum(_shaded(cells) for _, _, cells in rows))


def _prominence(row: tuple[str, int, Sequence[HeatCell | None]]) -> tuple[bool, int]:
    """Values with a shaded cell first, then the most frequent."""
    return not _shaded(row[2]), -row[1]


def _shaded(cells: Sequence[HeatCell | None]) -> int:
    return sum(cell is not None and cell.shade != 0 for cell in cells)


def _cell(
    score: Mapping[str, Any] | None, name: str, chosen: str, method: str | None, data: ReportData
) -> HeatCell | None:
    """The mean of a slice, shaded by how far it is from the mean of the whole run where its interval leaves that out."""
    if score is None or score["mean"] is None:
        return None
    percent = name in data.settings.percent
    factor, places = (100.0, 1) if percent else (1.0, 2)
    few, whole_run = has_few_questions(score), data.metrics["overall"]["scores"][name]["mean"]
    shade, words = 0, "no difference from the whole run is shown"
    bounds = score["interval"]
    if few:
        words = "too few questions to tell"
    elif bounds and not bounds["low"] <= whole_run <= bounds["high"]:
        declared = data.metrics["declared"][name]
        is_better = (score["mean"] > whole_run) == declared["higher_is_better"]
        distance = abs(score["mean"] - whole_run) / ((declared["high"] - declared["low"]) or 1.0)
        shade = (2 if distance >= 0.15 else 1) * (1 if is_better else -1)
        words = f"{'better' if is_better else 'worse'} than the whole run, {decimal(whole_run * factor, places)}"
    figures = f"n = {whole(score['n_ok'])}" + (f", {bracketed(bounds, factor, places)}" if bounds and not few else "")
    mark = {2: "▲ ", 1: "△ ", -1: "▽ ", -2: "▼ "}.get(shade, "")
    link = page_address(method=method, score=name, verdict="fail", slice=chosen)
    return HeatCell(f"{mark}{decimal(score['mean'] * factor, places)}", f"{figures}: {words}", link, shade, few)


def _by_method(
    data: ReportData, names: Sequence[str], item: _Map, rows: Sequence[tuple[str, int, Sequence[HeatCell | None]]]
) -> Iterator[Chart]:
    """The same map for each of the first methods, from the columns of the cases; None without them."""
    figures = data.figures
    if figures is None or item.field not in figures.slices:
        return
    for method, of_method in list(figures.methods.items())[:_METHODS]:
        table = []
        for value, _, _ in rows:
            places = np.intersect1d(figures.slices[item.field].get(value, of_method[:0]), of_method)
            cells = [_method_cell(name, places, f"{item.field}:{value}", method, data) for name in names]
            table.append((value, len(places), cells))
        yield Chart(
            ("By ", Verbatim(item.field), ", ", Verbatim(method)),
            _table(item.field, [heading(name, data.metrics, data.settings.percent) for name in names], table),
            folded=True,
        )


def _method_cell(
    name: str, places: np.ndarray[Any, np.dtype[np.int64]], chosen: str, method: str, data: ReportData
) -> HeatCell | None:
    figures = data.figures
    if figures is None or name not in figures.values:
        return None
    values = figures.values[name][places]
    measured = np.isfinite(values)
    if not measured.any():
        return None
    codes = np.unique(figures.samples[places][measured], return_inverse=True)[1].astype(np.int64)
    estimate = estimate_of(values[measured], codes, data.metrics["declared"][name], data.metrics["scoring"]["level"])
    score = {"mean": estimate.mean, "n_ok": int(measured.sum()), **interval_of("interval", estimate)}
    return _cell(score, name, chosen, method, data)
