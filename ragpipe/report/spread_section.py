"""How the values of the cases lie: histograms, one score against another, and quality beside latency and cost. On the page alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ragpipe.report.charts import (
    HeatCell,
    HistogramBin,
    ShareRow,
    TradePoint,
    axis_limit,
    axis_number,
    heat_map,
    histogram,
    scatter,
    share_table,
    trade_chart,
    trade_table,
)
from ragpipe.report.model import (
    EVERYWHERE,
    HTML,
    MARKDOWN,
    PAGES,
    Chart,
    Note,
    Section,
    SectionPart,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.report.page_file import page_address
from ragpipe.report.report_data import (
    LATENCY,
    TOKENS,
    CaseFigures,
    ReportData,
    by_importance,
    category_rows,
    chart_names,
    has_few_questions,
    heading,
    headline_names,
    iteration_count,
    method_groups,
    score_cell,
    table_scores,
)
from ragpipe.report.styled_text import bracketed, decimal, money, plural, whole
from ragpipe.score.normalisation import OVERALL
from ragpipe.score.system_usage import USD
from ragpipe.stats.intervals import estimate_mean, normal_quantile

Floats = NDArray[np.float64]

BINS = 10
_HISTOGRAMS = 12  # on one page
_REACH = 1.25  # of the 95th percentile: as far as an axis of latency reaches
_GRADES = 11  # a scale of at most so many whole numbers has a bar for each
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def spread_section(data: ReportData) -> Section | None:
    """The charts of single cases; None where the page has no figures of them."""
    figures = data.figures
    if figures is None:
        return None
    of_iteration = f" of iteration {figures.iteration}" if iteration_count(data.metrics) > 1 else ""
    charts = (*_histograms(data, figures, of_iteration), *_pairs(data, figures, of_iteration), *_trade(data, figures))
    return Section("spread", "Spread", charts, shown_in=HTML) if charts else None


def _histograms(data: ReportData, figures: CaseFigures, of_iteration: str) -> Iterator[Chart]:
    """A histogram per score and method, those of one score at one height; over all cases where there are too many methods."""
    names, methods = list(figures.values), figures.methods
    if not names:
        return
    each = 1 < len(methods) <= _HISTOGRAMS
    shown = names[: max(1, _HISTOGRAMS // (len(methods) if each else 1))]
    groups: dict[str | None, Any] = dict[str | None, Any](methods.items()) if each else {None: slice(None)}
    rows = []
    for name in shown:
        edges = _edges(figures.values[name], data.metrics["declared"][name])
        counted = {method: _bins(name, figures.values[name][places], edges, method) for method, places in groups.items()}
        highest = max((item.count for bins in counted.values() for item in bins), default=1)
        ends = axis_number(float(edges[0])), axis_number(float(edges[-1]))
        if grades := _whole_numbers(figures.values[name], data.metrics["declared"][name]):
            ends = axis_number(grades[0]), axis_number(grades[-1])
        drawn = [
            histogram(
                bins, name if method is None else f"{name}, {method}", plural(sum(b.count for b in bins), "case"), ends, highest
            )
            for method, bins in counted.items()
        ]
        rows.append(Markup('<div class="multiples">{}</div>').format(Markup("").join(drawn)))
    note = f"Cases{of_iteration} by value; the bars of one score have one height axis. A bar opens its cases."
    yield Chart("Distributions", Markup("\n").join(rows), note, folded=True)


def _whole_numbers(values: Floats, declared: Mapping[str, Any]) -> list[float]:
    """The grades of a scale of whole numbers on which all values are such; else empty."""
    low, high, measured = declared["low"], declared["high"], values[np.isfinite(values)]
    if low is None or high is None or not 1 <= high - low < _GRADES or np.any(measured != np.round(measured)):
        return []
    return [float(grade) for grade in range(int(low), int(high) + 1)]


def _edges(values: Floats, declared: Mapping[str, Any]) -> Floats:
    """The bounds of the bars: around each grade, else `BINS` equal parts of the scale, or of the values without one."""
    if grades := _whole_numbers(values, declared):
        return np.array([*(grade - 0.5 for grade in grades), grades[-1] + 0.5])
    low, high = declared["low"], declared["high"]
    if low is None or high is None:
        measured = values[np.isfinite(values)]
        low, high = (float(measured.min()), float(measured.max())) if len(measured) else (0.0, 1.0)
    edges: Floats = np.linspace(low, high if high > low else low + 1, BINS + 1)
    return edges


def _bins(name: str, values: Floats, edges: Floats, method: str | None) -> list[HistogramBin]:
    """The bars, each with a link that names the least and the largest value in it, so that the list has its very cases."""
    measured = values[np.isfinite(values)]
    places = np.clip(np.searchsorted(edges, measured, side="right") - 1, 0, len(edges) - 2)
    bins = []
    for place in range(len(edges) - 1):
        inside = measured[places == place]
        if not len(inside):
            bins.append(HistogramBin(0, "", ""))
            continue
        least, most = _rounded(float(inside.min()), math.floor), _rounded(float(inside.max()), math.ceil)
        words = least if least == most else f"{least} to {most}"
        link = page_address(method=method, score=name, **{"from": least, "to": most})
        bins.append(HistogramBin(len(inside), f"{plural(len(inside), 'case')}, {words}", link))
    return bins


def _rounded(value: float, direction: Any) -> str:
    """A bound with at most six decimals, rounded so that the value stays within."""
    short = f"{round(value, 6):g}" if abs(value) < 1e5 and float(f"{round(value, 6):g}") == value else ""
    return short or f"{direction(value * 1e6) / 1e6:.10g}"


def _pairs(data: ReportData, figures: CaseFigures, of_iteration: str) -> Iterator[Chart]:
    """The two most weighted headline scores against each other, and the first headline score against latency."""
    weights = data.metrics["scoring"].get("weights_used") or {}
    parts = sorted((name for name in figures.values if name != OVERALL.name), key=lambda name: -weights.get(name, 0.0))
    if len(parts) > 1:
        across, up = parts[0], parts[1]
        bounds, bounds_up = _scale(across, data), _scale(up, data)
        label = f"{up} against {across}, {_counted(figures.values[across], figures.values[up])}"
        markup = scatter(
            figures.values[across], figures.values[up], bounds, (across, up), label, None if bounds_up == bounds else bounds_up
        )
        note = f"A point per case{of_iteration}; squares where many share a place: the darker, the more."
        yield Chart("Score against score", markup, note, folded=True)
    first = next(iter(headline_names(data.metrics)), "")
    if first in figures.values and np.isfinite(figures.operations[LATENCY]).any():
        times = figures.operations[LATENCY]
        label = f"{first} against latency, {_counted(times, figures.values[first])}"
        reach = (0.0, axis_limit([_REACH * float(np.nanquantile(times, 0.95))]))
        markup = scatter(times, figures.values[first], reach, ("latency, ms", first), label, _scale(first, data))
        note = f"A point per case{of_iteration}; slower ones than the axis stand at its end."
        yield Chart("Score against latency", markup, note, folded=True)


def _scale(name: str, data: ReportData) -> tuple[float, float]:
    declared = data.metrics["declared"][name]
    return float(declared["low"]), float(declared["high"])


def _counted(across: Floats, up: Floats) -> str:
    return plural(int(np.count_nonzero(np.isfinite(across) & np.isfinite(up))), "case")


def _trade(data: ReportData, figures: CaseFigures) -> Iterator[Chart]:
    """A point per method: the first headline score over latency, and over cost or tokens; a table has the figures."""
    name = next(iter(headline_names(data.metrics)), None)
    if name is None or data.metrics["declared"][name]["low"] is None:
        return
    groups = {method: group for method, group in method_groups(data.metrics).items() if method in figures.methods}
    rows = [
        _Traded(letter, method, group, figures, data, name)
        for letter, (method, group) in zip(_LETTERS, groups.items(), strict=False)
    ]
    charts = [plane for plane in (_plane(rows, "latency", name, data), _plane(rows, "cost", name, data)) if plane is not None]
    if not charts:
        return
    note = "A letter per method; the lines are the intervals. Upper left is better and cheaper."
    texts = []
    for row in rows:
        time, cost = ("not recorded" if row.latency is None else f"{_bounded(row.latency, 0)} ms"), "not recorded"
        if row.cost is not None:
            cost = money(row.cost[0]) if row.unit == "usd" else f"{_bounded(row.cost, 0)} tokens"
        texts.append((row.letter, row.method, _bounded(row.quality, 2), time, cost))
    markup = Markup('<div class="multiples wide">{}</div>{}').format(Markup("").join(charts), trade_table(texts, name))
    yield Chart("Quality, latency and cost", markup, note, folded=True)


Bounds = tuple[float, float | None, float | None]


class _Traded:
    """What a method gives and takes: quality, latency (p50) and cost or tokens per answer, each with its interval where known."""

    def __init__(self, letter: str, method: str, group: Mapping[str, Any], figures: CaseFigures, data: ReportData, name: str):
        self.letter, self.method = letter, method
        score, level = group["scores"].get(name), data.metrics["scoring"]["level"]
        places = figures.methods[method]
        self.quality: Bounds | None = None
        if score is not None and score["mean"] is not None:
            bounds = {} if has_few_questions(score) else score["interval"] or {}
            self.quality = (score["mean"], bounds.get("low"), bounds.get("high"))
        self.latency = _median(figures.operations[LATENCY][places], figures.samples[places], level)
        usage = group["operations"]["usage"] or {}
        self.unit, self.cost = "", None
        if usage.get("cost_usd"):
            self.unit, self.cost = "usd", _mean(usage["cost_usd"]["mean"], figures, USD, method, level)
        elif usage.get(TOKENS):
            self.unit, self.cost = "tokens", _mean(usage[TOKENS]["mean"], figures, TOKENS, method, level)


def _mean(mean: float, figures: CaseFigures, column: str, method: str, level: float) -> Bounds:
    """The mean of `metrics.json`, with the interval of the recorded values where these are the same."""
    places = figures.methods[method]
    values = figures.operations[column][places]
    measured = np.isfinite(values)
    if not measured.any() or not math.isclose(float(values[measured].mean()), mean, rel_tol=1e-6):
        return mean, None, None
    estimate = estimate_mean(values[measured], figures.samples[places][measured], level=level)
    bounds = estimate.interval
    return (mean, None, None) if bounds is None or bounds.too_few else (mean, bounds.low, bounds.high)


def _median(values: Floats, samples: NDArray[np.int64], level: float) -> Bounds | None:
    """The median with an interval by ranks (Conover, Practical Nonparametric Statistics, 3.2); cases of one question count as one."""
    measured = np.isfinite(values)
    if not measured.any():
        return None
    questions = len(np.unique(samples[measured]))
    middle = float(np.median(values[measured]))
    if questions < 5:
        return middle, None, None
    reach = normal_quantile(level) * 0.5 / math.sqrt(questions)
    low, high = np.quantile(values[measured], [max(0.0, 0.5 - reach), min(1.0, 0.5 + reach)]).tolist()
    return middle, low, high


def _plane(rows: Sequence[_Traded], kind: str, name: str, data: ReportData) -> Markup | None:
    """Quality over one of the two; None where no method has both."""
    units = {row.unit for row in rows if row.cost}
    if kind == "cost" and len(units) != 1:
        return None
    points = []
    for row in rows:
        across = row.latency if kind == "latency" else row.cost
        if row.quality is not None and across is not None:
            points.append(TradePoint(row.letter, row.method, across, row.quality))
    if not points:
        return None
    head = "latency p50, ms" if kind == "latency" else {"usd": "USD per answer", "tokens": "tokens per answer"}[units.pop()]
    limit = axis_limit([value for point in points for value in point.across if value is not None])
    label = f"{name} over {head} for {plural(len(points), 'method')}; the table has the figures"
    return trade_chart(points, limit, _scale(name, data), (head, name), label)


def _bounded(value: Bounds | None, places: int) -> str:
    """`0.66 [0.54, 0.76]`, without decimals `777 [719, 869]`; `-` for none."""
    if value is None:
        return "-"
    mean, low, high = (None if number is None else round(number) if places == 0 else number for number in value)
    texts = [f"{number:,.{places}f}" for number in (mean, low, high) if number is not None]
    return texts[0] if len(texts) < 3 else f"{texts[0]} [{texts[1]}, {texts[2]}]"


GROUPS_SHOWN = 40  # groups of one field; `metrics.json` has all


def categories_section(data: ReportData) -> Section | None:
    """Of every category the cases, how many passed by the first score that is judged, and their share; None for less than two."""
    name, found = category_rows(data.metrics)
    if len(found) < 2 or not name:
        return None
    rows, bars = [], []
    for row in found:
        passed, rate = ("-", "-") if row.rate is None else (whole(row.passed), f"{row.rate:.1%}")
        some = f" of {whole(row.judged)} judged" if 0 < row.judged < row.total else ""
        rows.append(TableRow((Verbatim(row.category), whole(row.total), passed + some, rate)))
        link = page_address(score=name, verdict="miss", slice=f"category:{row.category}")
        bars.append(ShareRow(row.category, link, f"{passed} of {whole(row.judged)}", rate, row.rate or 0.0, "", ""))
    passed_head = TableColumn(("passed by ", Verbatim(name)))
    columns = (TableColumn("category", is_text=True), TableColumn("total"), passed_head, TableColumn("rate"))
    bars_table = share_table(bars, f"by category, passed by {name}")
    chart = Chart(("Passed by ", Verbatim(name)), bars_table, "A category opens its cases that did not pass.")
    table = Table(columns, tuple(rows), shown_in=EVERYWHERE - HTML)
    return Section("categories", "By category", (chart, table), folded=True)


def slices_section(data: ReportData) -> Section | None:
    """A heat map per field on the HTML page, a table per field of all scores in Markdown; the results show the methods."""
    metrics, percent, parts = data.metrics, data.settings.percent, list[SectionPart](slice_charts(data))
    names = by_importance(table_scores(metrics), metrics)
    score_columns = (TableColumn("cases"), *(TableColumn(Verbatim(heading(name, metrics, percent))) for name in names))
    for field, groups in metrics["by"].items():
        if field == "method" or not groups:
            continue
        rows = []
        for group in list(groups)[:GROUPS_SHOWN]:
            scores = groups[group]["scores"]
            cells = (score_cell(scores.get(name), percent=name in percent) for name in names)
            rows.append(TableRow((Verbatim(group), whole(groups[group]["n_cases"]), *cells)))
        columns = (TableColumn(Verbatim(field), is_text=True), *score_columns)
        left_out = len(groups) - len(rows)
        parts.append(Table(columns, tuple(rows), ("By ", Verbatim(field)), rows_left_out=left_out, shown_in=MARKDOWN))
    return Section("slices", "Where", tuple(parts), folded=True, shown_in=PAGES) if parts else None


_OPEN_LEAST, _OPEN_MOST = 3, 5  # rows of the first map
_FIRST_SCREEN = 8  # rows of this map and of the chart of the headline scores together
_ROWS = 8  # of one map; the rest is folded or in metrics.json
_CELLS = 130  # of all maps on a page: a map is for looking, metrics.json has every figure
_COLUMNS = 6  # scores of a map: with more it would not fit beside what is wrong
NOTE = "Blue △▲ is better, orange ▽▼ worse than the whole run (filled: by 15 % of the scale), grey undecided. Cells link to the cases that miss the threshold."


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
            cells = [_cell(group["scores"].get(name), name, f"{field}:{value}", data) for name in names]
            rows.append((value, group["n_cases"], cells))
        outstanding = sum(_shaded(cells) for _, _, cells in rows)
        # values with a shaded cell first, then the most frequent
        yield _Map(field, sorted(rows, key=lambda row: (not _shaded(row[2]), -row[1])), outstanding)


def _shaded(cells: Sequence[HeatCell | None]) -> int:
    return sum(cell is not None and cell.shade != 0 for cell in cells)


def _cell(score: Mapping[str, Any] | None, name: str, chosen: str, data: ReportData) -> HeatCell | None:
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
    link = page_address(score=name, verdict="miss", slice=chosen)
    return HeatCell(f"{mark}{decimal(score['mean'] * factor, places)}", f"{figures}: {words}", link, shade, few)
