"""Several iterations together: what the judge adds to the variance, how often verdicts flip, and what to buy next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ragpipe.reports.metrics_view import heading, iteration_count, method_groups, table_scores
from ragpipe.reports.model import Cell, Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import money, percentage, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.stats.noise_floor import NoiseFloor, best_repeats

_FIGURES = ("mean", "least - most", "noise floor", "cases sd", "judge sd", "passed", "flips", "judge twice from")


def iterations_section(data: ReportData) -> Section | None:
    """A row per score, and per method where there are several; None for a single iteration."""
    metrics, percent = data.metrics, data.settings.percent
    if iteration_count(metrics) == 1:
        return None
    groups, costs = method_groups(metrics), _costs(data)
    several = len(groups) > 1
    rows = []
    for name in table_scores(metrics):
        for method, group in groups.items():
            keys: list[Cell] = [Verbatim(heading(name, metrics, percent)), *([Verbatim(method)] if several else [])]
            figures = _figures(group["scores"].get(name), metrics["declared"][name], costs, percent=name in percent)
            rows.append(TableRow((*keys, *figures)))
    keys_columns = [TableColumn("score", is_text=True), *([TableColumn("method", is_text=True)] if several else [])]
    table = Table((*keys_columns, *map(TableColumn, _FIGURES)), tuple(rows), key_columns=len(keys_columns))
    return Section("iterations", f"Over {iteration_count(metrics)} iterations", (table, *_notes(data)), folded=True)


def _notes(data: ReportData) -> Iterator[Note]:
    yield Note(
        "least - most: of the iterations' means. noise floor: two runs that judge these answers as often differ in their means by "
        "less in 95 % of pairs. cases sd: how the cases vary without the judge's part; judge sd: how one case varies between "
        "iterations. flips: how often two judgings of a case give different verdicts."
    )
    yield Note(
        "judge twice from: more cases or more judgings? Judging each case twice pays where one more case costs so many times "
        f"what judging it once does; below that, more cases. {_costs_in_words(_costs(data))}"
    )
    if count := data.metrics["flips"]["n"]:
        yield Note(f"{whole(count)} flipping verdicts: the cases are listed in final/metrics.json, under flips.")
    yield Note(
        "The figures, diagnoses and cost of this report are those of all iterations; each iteration's own are in its folder."
    )


class _Costs(NamedTuple):
    """What the answer of one more case costs, and judging a case once; None where it is not known, or nothing."""

    answer: float | None
    judging: float | None


def _costs(data: ReportData) -> _Costs:
    usage = data.metrics["overall"]["operations"]["usage"]
    of_all = data.cost["used"]["per_case"]["usd"]
    return _Costs((usage.get("cost_usd") or {}).get("mean"), of_all / iteration_count(data.metrics) if of_all else None)


def _costs_in_words(costs: _Costs) -> str:
    if costs.judging is None:
        return "What judging a case costs is not known, or nothing."
    once = f"{money(costs.judging)} to judge it once"
    if costs.answer is None:
        return f"A case costs {once}; what its answer costs is not recorded."
    times = costs.answer / costs.judging
    return f"Here it costs {times:.1f} times as much ({money(costs.answer)} for its answer, {once}); best: judgings per case for the most precise mean."


def _judge_twice_from(noise: Mapping[str, Any], costs: _Costs) -> str:
    """`8.0 x`, and where the costs are known the best number of judgings per case: `8.0 x (best 1.0)`."""
    pays_from = noise.get("second_judging_from")
    if pays_from is None:
        return "-"
    best = None
    if costs.answer is not None and costs.judging is not None:
        floor = NoiseFloor(
            noise["n_cases"], noise["repeats"], noise["judge_variance"], noise["item_variance"], noise["floor"]
        )
        best = best_repeats(floor, costs.answer, costs.judging)
    if best is None:
        return f"{pays_from:,.1f} x"
    return f"{pays_from:,.1f} x (best {best:.1f})" if best < 100 else f"{pays_from:,.1f} x (best over 100)"


def _figures(
    score: Mapping[str, Any] | None, declared: Mapping[str, Any], costs: _Costs, *, percent: bool
) -> tuple[str, ...]:
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

    return (
        number(score["mean"]),
        f"{number(spread['min'])} - {number(spread['max'])}" if spread else "-",
        number(noise.get("floor")),
        deviation(noise.get("item_variance")),
        deviation(noise.get("judge_variance")),
        percentage(score.get("pass_rate")),
        percentage(flips.get("rate")),
        _judge_twice_from(noise, costs),
    )
