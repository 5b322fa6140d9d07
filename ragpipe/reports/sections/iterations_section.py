"""Several iterations together: how far their means lie apart, and how many verdicts flip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.reports.metrics_view import heading, iteration_count, method_groups, table_scores
from ragpipe.reports.model import Cell, Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import percentage, whole
from ragpipe.reports.report_data import ReportData

_FIGURES = ("mean", "least - most", "sd", "noise", "passed", "flips")


def iterations_section(data: ReportData) -> Section | None:
    """A row per score, and per method where there are several; None for a single iteration."""
    metrics, percent = data.metrics, data.settings.percent
    if iteration_count(metrics) == 1:
        return None
    groups = method_groups(metrics)
    several = len(groups) > 1
    rows = []
    for name in table_scores(metrics):
        for method, group in groups.items():
            keys: list[Cell] = [Verbatim(heading(name, metrics, percent)), *([Verbatim(method)] if several else [])]
            figures = _figures(group["scores"].get(name), metrics["declared"][name], percent=name in percent)
            rows.append(TableRow((*keys, *figures)))
    keys_columns = [TableColumn("score", is_text=True), *([TableColumn("method", is_text=True)] if several else [])]
    table = Table((*keys_columns, *map(TableColumn, _FIGURES)), tuple(rows), key_columns=len(keys_columns))
    return Section("iterations", f"Over {iteration_count(metrics)} iterations", (table, *_notes(metrics)))


def _notes(metrics: Mapping[str, Any]) -> Iterator[Note]:
    yield Note(
        "mean: of the iterations' means; sd: their standard deviation; noise: standard deviation of a case's value between "
        "iterations; flips: cases whose verdict is not the same in all iterations."
    )
    if count := metrics["flips"]["n"]:
        yield Note(f"{whole(count)} flipping verdicts: the cases are listed in final/metrics.json, under flips.")
    yield Note(
        "The figures, diagnoses and cost of this report are those of all iterations; each iteration's own are in its folder."
    )


def _figures(score: Mapping[str, Any] | None, declared: Mapping[str, Any], *, percent: bool) -> tuple[str, ...]:
    if score is None:
        return ("-",) * len(_FIGURES)
    spread, flips = score.get("spread"), score.get("flips")
    factor = 100.0 if percent else 1.0
    wide_scale = declared["low"] is not None and (declared["high"] - declared["low"]) * factor >= 50
    places = 2 if wide_scale else 3  # one more than elsewhere: iterations differ little

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value * factor:.{places}f}"

    return (
        number(score["mean"]),
        f"{number(spread['min'])} - {number(spread['max'])}" if spread else "-",
        number(spread["sd"] if spread else None),
        number(score.get("within_sd")),
        percentage(score.get("pass_rate")),
        f"{flips['share']:.1%} ({whole(flips['n_flipping'])} of {whole(flips['n_cases'])})" if flips else "-",
    )
