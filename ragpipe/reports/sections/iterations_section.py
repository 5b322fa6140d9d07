"""Several iterations together: what the judge adds to the variance, how often verdicts flip, and what to buy next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.reports.metrics_view import heading, iteration_count, method_groups, table_scores
from ragpipe.reports.model import Cell, Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import money, percentage, whole
from ragpipe.reports.report_data import ReportData

_FIGURES = ("mean", "least - most", "noise floor", "cases sd", "judge sd", "passed", "flips", "judge twice from")


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
    return Section("iterations", f"Over {iteration_count(metrics)} iterations", (table, *_notes(data)))


def _notes(data: ReportData) -> Iterator[Note]:
    yield Note(
        "least - most: of the iterations' means. noise floor: two runs that judge these answers as often differ in their means by "
        "less in 95 % of pairs. cases sd: how the cases vary without the judge's part; judge sd: how one case varies between "
        "iterations. flips: how often two judgings of a case give different verdicts."
    )
    yield Note(
        "judge twice from: more cases or more judgings? Judging each case twice pays where one more case costs so many times "
        f"what judging it once does; below that, more cases. {_costs(data)}"
    )
    if count := data.metrics["flips"]["n"]:
        yield Note(f"{whole(count)} flipping verdicts: the cases are listed in final/metrics.json, under flips.")
    yield Note(
        "The figures, diagnoses and cost of this report are those of all iterations; each iteration's own are in its folder."
    )


def _costs(data: ReportData) -> str:
    """What one more case costs here, in judgings of one, as far as it is recorded."""
    usage = data.metrics["overall"]["operations"]["usage"]
    answer = (usage.get("cost_usd") or {}).get("mean")
    of_all = data.cost["used"]["per_case"]["usd"]
    if not of_all:
        return "What judging a case costs is not known, or nothing."
    judging = of_all / iteration_count(data.metrics)
    if answer is None:
        return f"Judging a case once costs {money(judging)}; what its answer costs is not recorded."
    return f"Here it costs {answer / judging:.1f} times as much: {money(answer)} for its answer, {money(judging)} to judge it once."


def _figures(score: Mapping[str, Any] | None, declared: Mapping[str, Any], *, percent: bool) -> tuple[str, ...]:
    if score is None:
        return ("-",) * len(_FIGURES)
    spread, noise, flips = (score.get(key) or {} for key in ("spread", "noise", "flips"))
    factor = 100.0 if percent else 1.0
    wide_scale = declared["low"] is not None and (declared["high"] - declared["low"]) * factor >= 50
    places = 2 if wide_scale else 3  # one more than elsewhere: iterations differ little

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value * factor:.{places}f}"

    def deviation(variance: float | None) -> str:
        return number(None if variance is None else math.sqrt(variance))

    pays_from = noise.get("second_judging_from")
    return (
        number(score["mean"]),
        f"{number(spread['min'])} - {number(spread['max'])}" if spread else "-",
        number(noise.get("floor")),
        deviation(noise.get("item_variance")),
        deviation(noise.get("judge_variance")),
        percentage(score.get("pass_rate")),
        percentage(flips.get("rate")),
        "-" if pays_from is None else f"{pays_from:,.1f} x",
    )
