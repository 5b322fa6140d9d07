"""The first chart: whether a method is better than the first one, score by score; for one method, how good it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ragpipe.pages.charts_rows import Marks, MeanRow, mean_table
from ragpipe.pages.page_address import page_address
from ragpipe.reports.compare.compare_charts import has_scale, score_forest, unscaled_forest
from ragpipe.reports.metrics_view import (
    HEADLINES,
    chart_names,
    heading,
    headline_names,
    measured_parts,
    method_groups,
    score_cell,
)
from ragpipe.reports.model import HTML, Chart, Plot, Section, Verbatim
from ragpipe.reports.number_format import whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.results_section import times_100
from ragpipe.reports.sections.verdict import best_method


def better_section(data: ReportData) -> Section | None:
    """A chart per method against the first one, the best method first; None where nothing has a value."""
    charts = tuple(_differences(data)) if data.methods else ()
    if charts:
        return Section("better", "Better?", charts, shown_in=HTML)
    charts = tuple(_means(data))
    return Section("better", "How good?", charts, shown_in=HTML) if charts else None


def _differences(data: ReportData) -> Iterator[Chart]:
    """The headline scores that both methods have values for. Charts after the first are folded."""
    assert data.methods is not None
    base, candidates, percent = data.methods["base"], data.methods["candidates"], data.settings.percent
    best = best_method(data)
    for method in (best, *(name for name in candidates if name != best)):
        measured = [(name, score) for name, score in candidates[method].items() if score["n"]][:HEADLINES]
        names = {heading(name, data.metrics, percent): name for name, _ in measured}
        shown = {
            head: times_100(score) if name in percent else score
            for (head, name), (_, score) in zip(names.items(), measured, strict=True)
        }
        scaled = {head: score for head, score in shown.items() if has_scale(score)}
        others = {head: score for head, score in shown.items() if not has_scale(score)}
        title, link = (Verbatim(method), " minus ", Verbatim(base)), _Differing(names)
        if scaled:
            markup = score_forest(scaled, (base, method), link, _parts_words(names.values(), data))
            yield Chart(title, markup, folded=method != best)
        if others:
            yield Chart(title, unscaled_forest(others, (base, method), link), folded=method != best)


def _parts_words(names: Iterable[str], data: ReportData) -> str:
    """`overall_score: 2 of 8 parts (retrieval_score, faithfulness).`, for each composite that lacks parts."""
    parts = ((name, *measured_parts(name, data.metrics)) for name in names)
    return " ".join(f"{name}: {count} ({measured})." for name, count, measured in parts if count)


@dataclass(frozen=True)
class _Differing:
    """The address of the questions on which the methods differ in a score. `names` are the scores by their headings."""

    names: Mapping[str, str]

    def __call__(self, head: str) -> str:
        return page_address(score=self.names[head], only="1")


def _means(data: ReportData) -> Iterator[Chart]:
    """The means of a run of one method; of several without shared cases, a chart for each."""
    metrics, groups = data.metrics, method_groups(data.metrics)
    names = list(dict.fromkeys([*headline_names(metrics), *chart_names(metrics)]))[:HEADLINES]
    level = f"{metrics['scoring']['level']:.0%}"
    note = f"The bar is the {level} interval, the upright line the mean, the thin line the threshold of the score."
    for place, (method, group) in enumerate(groups.items()):
        rows = [_mean_row(name, group["scores"].get(name), method if len(groups) > 1 else None, data) for name in names]
        measured = [row for row in rows if row is not None]
        if measured:
            title = Verbatim(method) if metrics["by"].get("method") else ""
            yield Chart(title, mean_table(measured, note), folded=place > 0)


def _mean_row(name: str, score: Mapping[str, Any] | None, method: str | None, data: ReportData) -> MeanRow | None:
    if score is None or score["mean"] is None:
        return None
    percent = name in data.settings.percent
    cell = score_cell(score, percent=percent, declared=data.metrics["declared"][name])
    scale = heading(name, data.metrics, data.settings.percent).removeprefix(name).strip()
    return MeanRow(
        name,
        page_address(method=method, score=name, verdict="fail"),
        cell.mean,
        f"n = {whole(score['n_ok'])}: too few" if cell.few else cell.interval,
        cell.passed,
        scale,
        _marks(cell.plot, few=cell.few),
        cell.few,
    )


def _marks(plot: Plot | None, *, few: bool) -> Marks | None:
    if plot is None:
        return None
    limits = () if plot.threshold is None else (plot.threshold,)
    return Marks(plot.mean, None if few else plot.low, None if few else plot.high, limits, few)
