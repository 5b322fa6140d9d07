"""Where scores are low, and how the values of the cases lie: histograms, ranks, quality beside latency and cost. The charts are on the
page alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ragpipe.comparison.score_differences import LATENCY, TOKENS
from ragpipe.report.charts import (
    HeatCell,
    HistogramBin,
    Line,
    ShareRow,
    TradePoint,
    axis_limit,
    axis_number,
    heat_map,
    histogram,
    line_chart,
    map_switch,
    share_table,
    trade_chart,
    trade_table,
)
from ragpipe.report.model import EVERYWHERE, HTML, MARKDOWN, PAGES, Cell, Chart, Section, SectionPart, Table, Verbatim
from ragpipe.report.page_file import page_address
from ragpipe.report.report_data import (
    RANK,
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
from ragpipe.score.normalisation import estimate_of, interval_of
from ragpipe.score.system_usage import USD
from ragpipe.stats.intervals import estimate_mean, normal_quantile

Floats = NDArray[np.float64]

BINS = 10
_HISTOGRAMS = 4  # beside each other; more are folded
_METHODS = 8  # of which each has its own
_GRADES = 11  # a scale of at most so many whole numbers has a bar for each


def spread_section(data: ReportData) -> Section | None:
    """The charts of single cases; None where the page has no figures of them."""
    figures = data.figures
    if figures is None:
        return None
    of_iteration = f" of iteration {figures.iteration}" if iteration_count(data.metrics) > 1 else ""
    charts = (*_histograms(data, figures, of_iteration), *_trade(data, figures), *_retrieval(data, figures), *_iterations(data))
    return Section("spread", "Charts", charts, shown_in=HTML) if charts else None


def _histograms(data: ReportData, figures: CaseFigures, of_iteration: str) -> Iterator[Chart]:
    """A histogram per score, its methods below each other; over all cases where there are too many methods."""
    methods = figures.methods if 1 < len(figures.methods) <= _METHODS else None
    drawn = []
    for name, values in figures.values.items():
        declared = data.metrics["declared"][name]
        edges = _edges(values, declared)
        groups: list[tuple[int | None, str, list[HistogramBin]]] = [
            (number, method, _bins(name, values[places], edges, method))
            for number, (method, places) in enumerate((methods or {}).items())
        ] or [(None, "", _bins(name, values, edges, None))]
        span = float(edges[-1] - edges[0])
        grades = _whole_numbers(values, declared)
        ticks = [(100 * (float(end) - float(edges[0])) / span, axis_number(float(end))) for end in grades or edges[[0, 5, 10]]]
        passes = declared["threshold"]
        threshold = None if passes is None else 100 * (passes - (0.5 if grades else 0) - float(edges[0])) / span
        drawn.append(histogram(groups, heading(name, data.metrics, ()), ticks, threshold))
    note = f"Cases{of_iteration} by value, of each score on one axis and of one height; upright line: the threshold. A bar opens its cases."
    for place in range(0, len(drawn), _HISTOGRAMS):
        some = drawn[place : place + _HISTOGRAMS]
        title = f"Distributions of {plural(len(some), 'more score')}" if place else "Distributions"
        markup = Markup('<div class="multiples">{}</div>').format(Markup("").join(some))
        yield Chart(title, markup, "" if place else note, folded=place > 0)


_RANKS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, 10**9))
_RANK_WORDS = ("1", "2", "3", "4-5", "6-10", "later", "none")


def _retrieval(data: ReportData, figures: CaseFigures) -> Iterator[Chart]:
    """Recall and precision over k, where several k were measured, and the rank of the first relevant chunk."""
    groups = method_groups(data.metrics)
    for measure in ("recall", "precision"):
        names = {int(name.partition("@")[2]): name for name in data.metrics["declared"] if name.startswith(f"{measure}@")}
        if len(names) < 2 or not any(data.metrics["overall"]["scores"][name]["n_ok"] for name in names.values()):
            continue
        ks = sorted(names)
        places = [(0.06 + 0.88 * place / (len(ks) - 1), f"{k}") for place, k in enumerate(ks)]
        lines = [
            Line(number, method, [(group["scores"].get(names[k]) or {"mean": None})["mean"] for k in ks])
            for number, (method, group) in enumerate(groups.items())
        ]
        n = data.metrics["overall"]["scores"][names[ks[0]]]["n_ok"]
        note = f"Mean over the questions with relevance labels, n = {whole(n)} cases."
        yield Chart(f"{measure}@k", line_chart(lines, places, ("k", f"{measure}@k"), ("0", "1")), note, narrow=True)
    if figures.ranks is None or not np.isfinite(figures.ranks).any():
        return
    drawn: list[tuple[int | None, str, list[HistogramBin]]] = [
        (number, method, _rank_bins(figures.ranks[cases], method))
        for number, (method, cases) in enumerate(figures.methods.items())
    ]
    if len(drawn) == 1:
        drawn = [(None, "", _rank_bins(figures.ranks, None))]
    step = 100 / len(_RANK_WORDS)
    ticks = [(step * (place + 0.5), words) for place, words in enumerate(_RANK_WORDS)]
    yield Chart(
        "Rank of the first relevant chunk", histogram(drawn, "", ticks), "Cases with relevance labels, by 1 / mrr.", narrow=True
    )


def _rank_bins(values: Floats, method: str | None) -> list[HistogramBin]:
    """A bar per bracket of ranks, and one for none."""
    measured = values[np.isfinite(values)]
    ranks, bins = np.round(1 / measured[measured > 0]), []
    for (least, most), words in zip(_RANKS, _RANK_WORDS, strict=False):
        n = int(np.count_nonzero((ranks >= least) & (ranks <= most)))
        ends = {"from": _rounded(1 / most, math.floor), "to": _rounded(1 / least, math.ceil)}
        bins.append(HistogramBin(n, f"{plural(n, 'case')}, rank {words}", page_address(method=method, score=RANK, **ends)))
    n = int(np.count_nonzero(measured == 0))
    return [*bins, HistogramBin(n, f"{plural(n, 'case')}, none", page_address(method=method, score=RANK, to="0"))]


def _iterations(data: ReportData) -> Iterator[Chart]:
    """The mean of the first headline score in each iteration."""
    metrics, numbers = data.metrics, data.metrics.get("iterations", ())
    name = next(iter(headline_names(metrics)), "")
    if len(numbers) < 2 or not name or metrics["declared"][name]["low"] is None:
        return
    low, high = _scale(name, data)
    lines = [
        Line(number, method, [None if mean is None else (mean - low) / (high - low) for mean in score.get("means", ())])
        for number, (method, group) in enumerate(method_groups(metrics).items())
        if (score := group["scores"].get(name)) and len(score.get("means", ())) == len(numbers)
    ]
    if lines:
        places = [(0.06 + 0.88 * place / (len(numbers) - 1), f"{number}") for place, number in enumerate(numbers)]
        chart = line_chart(lines, places, ("iteration", name), (axis_number(low), axis_number(high)))
        yield Chart("Over the iterations", chart, f"Mean of {name}, {whole(metrics['n_cases'])} cases in each.", narrow=True)


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


def _scale(name: str, data: ReportData) -> tuple[float, float]:
    declared = data.metrics["declared"][name]
    return float(declared["low"]), float(declared["high"])


def _trade(data: ReportData, figures: CaseFigures) -> Iterator[Chart]:
    """A point per each of several methods: the first headline score over latency, and over cost or tokens; a table has the figures."""
    name = next(iter(headline_names(data.metrics)), None)
    groups = {method: group for method, group in method_groups(data.metrics).items() if method in figures.methods}
    if name is None or data.metrics["declared"][name]["low"] is None or len(groups) < 2:
        return
    rows = [_Traded(number, method, group, figures, data, name) for number, (method, group) in enumerate(groups.items())]
    charts = [plane for plane in (_plane(rows, "latency", name, data), _plane(rows, "cost", name, data)) if plane is not None]
    if not charts:
        return
    note = f"{plural(len(rows), 'method')}; the lines are the intervals. Upper left is better and cheaper."
    texts = []
    for row in rows:
        time, cost = ("not recorded" if row.latency is None else f"{_bounded(row.latency, 0)} ms"), "not recorded"
        if row.cost is not None:
            cost = money(row.cost[0]) if row.unit == "usd" else f"{_bounded(row.cost, 0)} tokens"
        texts.append((row.number, row.method, _bounded(row.quality, 2), time, cost))
    markup = Markup('<div class="multiples wide">{}{}</div>').format(Markup("").join(charts), trade_table(texts, name))
    yield Chart("Quality, latency and cost", markup, note)


Bounds = tuple[float, float | None, float | None]


class _Traded:
    """What a method gives and takes: quality, latency (p50) and cost or tokens per answer, each with its interval where known."""

    def __init__(self, number: int, method: str, group: Mapping[str, Any], figures: CaseFigures, data: ReportData, name: str):
        self.number, self.method = number, method
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
            points.append(TradePoint(row.number, row.method, across, row.quality))
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
        rows.append((Verbatim(row.category), whole(row.total), passed + some, rate))
        link = page_address(score=name, verdict="miss", slice=f"category:{row.category}")
        bars.append(ShareRow(row.category, link, f"{passed} of {whole(row.judged)}", rate, row.rate or 0.0, "", ""))
    drawn = share_table(bars, f"by category, passed by {name}")
    pooled = "All methods together. " if len(method_groups(data.metrics)) > 1 else ""
    chart = Chart(("Passed by ", Verbatim(name)), drawn, f"{pooled}A category opens its cases that did not pass.")
    table = Table.of(("category", "total", ("passed by ", Verbatim(name)), "rate"), rows, shown_in=EVERYWHERE - HTML)
    return Section("categories", "By category", (chart, table), folded=True)


def slices_section(data: ReportData) -> Section | None:
    """A heat map per field on the HTML page, a table per field of all scores in Markdown; the results show the methods."""
    metrics, percent, parts = data.metrics, data.settings.percent, list[SectionPart](slice_charts(data))
    names = by_importance(table_scores(metrics), metrics)
    scores_shown = [Verbatim(heading(name, metrics, percent)) for name in names]
    for field, groups in metrics["by"].items():
        if field == "method" or not groups:
            continue
        rows = list[tuple[Cell, ...]]()
        for group in list(groups)[:GROUPS_SHOWN]:
            scores = groups[group]["scores"]
            cells = (score_cell(scores.get(name), percent=name in percent) for name in names)
            rows.append((Verbatim(group), whole(groups[group]["n_cases"]), *cells))
        heads, left_out = (Verbatim(field), "cases", *scores_shown), len(groups) - len(rows)
        parts.append(Table.of(heads, rows, title=("By ", Verbatim(field)), rows_left_out=left_out, shown_in=MARKDOWN))
    return Section("slices", "Where", tuple(parts), folded=True, shown_in=PAGES) if parts else None


_ROWS = 8  # of one map
_FIELDS = 3  # maps in sight, or of a score that is chosen
_SCORES = 6  # to choose from
_CELLS = 130  # of all maps of a score: a map is for looking, metrics.json has every figure
_COLUMNS = 8  # of a map
NOTE = "Blue △▲ is better, orange ▽▼ worse than {whole} (filled: by 15 % of the scale), grey undecided."


class _Map(NamedTuple):
    """A field with its rows: value, cases, and a cell per column; `outstanding` cells are not grey."""

    field: str
    rows: Sequence[tuple[str, int, Sequence[HeatCell | None]]]
    outstanding: int


def slice_charts(data: ReportData) -> Iterator[Chart]:
    """A map per field, those that stand out most first: of several methods the values of a score, which may be chosen, by method; of one
    method all scores."""
    names = chart_names(data.metrics)[:_COLUMNS]
    methods = list(data.figures.methods) if data.figures is not None else []
    if not names:
        return
    if not (data.figures and data.figures.groups) or len(methods) > _COLUMNS:
        heads = [heading(name, data.metrics, data.settings.percent) for name in names]
        if drawn := _drawn(list(_maps(data, names)), heads, by_method=False):
            note = f"{NOTE.format(whole='the whole run')} Cells link to the cases that miss the threshold."
            yield Chart("", map_switch([("", [markup for _, markup in drawn])]), note)
        return
    first = _drawn(list(_method_maps(data, names[0], list(data.figures.groups))), methods, by_method=True)
    by_score = {names[0]: first}
    for name in names[1:_SCORES]:
        by_score[name] = _drawn(
            list(_method_maps(data, name, [field for field, _ in first[:_FIELDS]])), methods, by_method=True
        )
    scores = [
        (heading(name, data.metrics, data.settings.percent), [markup for _, markup in maps]) for name, maps in by_score.items()
    ]
    if first:
        yield Chart("", map_switch(scores), f"{NOTE.format(whole='all cases of the method')} Cells link to their cases.")


def _drawn(maps: Sequence[_Map], heads: Sequence[str], *, by_method: bool) -> list[tuple[str, Markup]]:
    """Field and map, while there is room for cells: of each field the values with a shaded cell first, then the most frequent."""
    drawn, room = [], _CELLS
    for item in sorted(maps, key=lambda item: -item.outstanding):
        rows = [(value, f"n = {whole(n)}", cells) for value, n, cells in item.rows[: min(_ROWS, room // max(1, len(heads)))]]
        room -= len(rows) * len(heads)
        if rows:
            drawn.append((item.field, heat_map(item.field, heads, rows, by_method=by_method)))
    return drawn


def _method_maps(data: ReportData, name: str, fields: Sequence[str]) -> Iterator[_Map]:
    """The mean of a score by method in each value of these fields, estimated as those of `metrics.json` are."""
    figures, declared = data.figures, data.metrics["declared"][name]
    assert figures is not None
    level, values = data.metrics["scoring"]["level"], figures.values[name]
    wholes = {method: group["scores"].get(name) for method, group in method_groups(data.metrics).items()}
    for field in fields:
        frequent = sorted(figures.groups[field].items(), key=lambda item: -len(item[1]))[:_ROWS]
        rows = []
        for value, places in frequent:
            cells = []
            for method, of_method in figures.methods.items():
                chosen = np.intersect1d(places, of_method, assume_unique=True)
                chosen = chosen[np.isfinite(values[chosen])]
                estimate = estimate_of(values[chosen], figures.samples[chosen], declared, level)
                score = {"n_ok": len(chosen), "mean": estimate.value, **interval_of("interval", estimate)}
                link = page_address(method=method, score=name, slice=f"{field}:{value}")
                cells.append(_cell(score, wholes[method], name, link, "all cases of the method", data))
            rows.append((value, len(places), cells))
        yield _Map(field, rows, sum(_shaded(cells) for _, _, cells in rows))


def _maps(data: ReportData, names: Sequence[str]) -> Iterator[_Map]:
    metrics, scores = data.metrics, data.metrics["overall"]["scores"]
    for field, groups in metrics["by"].items():
        if field == "method" or not groups or "*" in field:
            continue
        rows = []
        for value, group in groups.items():
            links = [page_address(score=name, verdict="miss", slice=f"{field}:{value}") for name in names]
            cells = [
                _cell(group["scores"].get(name), scores[name], name, link, "the whole run", data)
                for name, link in zip(names, links, strict=True)
            ]
            rows.append((value, group["n_cases"], cells))
        outstanding = sum(_shaded(cells) for _, _, cells in rows)
        # values with a shaded cell first, then the most frequent
        yield _Map(field, sorted(rows, key=lambda row: (not _shaded(row[2]), -row[1])), outstanding)


def _shaded(cells: Sequence[HeatCell | None]) -> int:
    return sum(cell is not None and cell.shade != 0 for cell in cells)


def _cell(
    score: Mapping[str, Any] | None, of: Mapping[str, Any] | None, name: str, link: str, whole_words: str, data: ReportData
) -> HeatCell | None:
    """The mean of a slice, shaded by how far it is from the mean `of` all where its interval leaves that out."""
    if score is None or score["mean"] is None or of is None or of["mean"] is None:
        return None
    factor, places = (100.0, 1) if name in data.settings.percent else (1.0, 2)
    few, shade, words = has_few_questions(score), 0, f"no difference from {whole_words} is shown"
    bounds = score["interval"]
    if few:
        words = "too few questions to tell"
    elif bounds and not bounds["low"] <= of["mean"] <= bounds["high"]:
        declared = data.metrics["declared"][name]
        is_better = (score["mean"] > of["mean"]) == declared["higher_is_better"]
        distance = abs(score["mean"] - of["mean"]) / ((declared["high"] - declared["low"]) or 1.0)
        shade = (2 if distance >= 0.15 else 1) * (1 if is_better else -1)
        words = f"{'better' if is_better else 'worse'} than {whole_words}, {decimal(of['mean'] * factor, places)}"
    figures = f"n = {whole(score['n_ok'])}" + (f", {bracketed(bounds, factor, places)}" if bounds and not few else "")
    mark = {2: "▲ ", 1: "△ ", -1: "▽ ", -2: "▼ "}.get(shade, "")
    return HeatCell(f"{mark}{decimal(score['mean'] * factor, places)}", f"{figures}: {words}", link, shade, few)
