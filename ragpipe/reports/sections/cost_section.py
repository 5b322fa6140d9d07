"""What the judge cost: the calls that the results use, by metric, and what this folder paid for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ragpipe.reports.metrics_view import heading, iteration_count, method_groups, table_scores
from ragpipe.reports.model import (
    MARKDOWN,
    PAGES,
    TERMINAL,
    Cell,
    ItemList,
    Note,
    Piece,
    RichText,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
    joined,
    pieces_of,
)
from ragpipe.reports.number_format import count_with_share, is_free, is_recorded, money, percentage, price, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.spread_section import GROUPS_SHOWN
from ragpipe.schema.usage import Usage
from ragpipe.stats.noise_floor import NoiseFloor, best_repeats

_COUNTS = {
    "calls": "calls",
    "calls_failed": "failed",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "tokens_cached": "cached",
}


def cost_section(data: ReportData) -> Section:
    """The calls that the results use. What this folder's own processes paid differs from machine to machine: it is shown
    on the terminal and in Markdown, not in HTML."""
    cost = data.cost
    terminal = Note(cost_line(cost, data.metrics["overall"]["operations"]["usage"]), shown_in=TERMINAL)
    if not cost["used"]["uses"]:
        return Section("cost", "Cost", (Note("No judge was asked.", shown_in=PAGES), terminal), folded=True)
    notes = (Note(text, shown_in=PAGES) for text in _notes(cost))
    spend = Note(_spend(cost), shown_in=MARKDOWN)
    return Section("cost", "Cost", (_by_metric(cost["used"]), *notes, spend, terminal), folded=True)


def _by_metric(used: Mapping[str, Any]) -> Table:
    if _is_computed(used):
        return _questions_by_metric(used)
    rows = []
    for name, usage in (*used["by_metric"].items(), ("all", used)):
        counts = (whole(usage[key]) for key in _COUNTS)
        rows.append(TableRow((Verbatim(name), *counts, "no cost" if is_free(used) else price(Usage.from_json(usage)))))
    columns = (TableColumn("metric", is_text=True), *map(TableColumn, _COUNTS.values()), TableColumn("price"))
    return Table(columns, tuple(rows), "Cost of the judge", shown_in=PAGES)


def _is_computed(used: Mapping[str, Any]) -> bool:
    """Whether every question was answered here, by the embedded judge or by weights: none had to be looked up or sent."""
    return used["calls_computed"] == used["calls"] and not used["failures"].get("missing_reply")


def _questions_by_metric(used: Mapping[str, Any]) -> Table:
    """What was computed here is no call, and has no tokens and no price."""
    rows = (
        TableRow((Verbatim(name), whole(usage["calls"]), whole(usage["calls_failed"])))
        for name, usage in (*used["by_metric"].items(), ("all", used))
    )
    columns = (TableColumn("metric", is_text=True), TableColumn("questions"), TableColumn("failed"))
    return Table(columns, tuple(rows), "Questions answered without a call", shown_in=PAGES)


def _notes(cost: Mapping[str, Any]) -> Iterator[RichText]:
    used = cost["used"]
    yield "A reply that several metrics share is counted with the first of them."
    if _is_computed(used):
        return
    if used["unpriced_reasons"]:
        yield ("Calls without a known price: ", *_counted(used["unpriced_reasons"]), ".")
    yield judge_line(used)
    yield cost_per_case(used)
    if cost["prices"]:
        sources = [(Verbatim(name), f" by {rates['source']}") for name, rates in cost["prices"].items()]
        yield ("Prices: ", *pieces_of(joined(sources, ", ")), ".")


def _counted(counts: Mapping[str, int]) -> tuple[Any, ...]:
    return pieces_of(joined([(Verbatim(name), f" {whole(n)}") for name, n in counts.items()], ", "))


def _spend(cost: Mapping[str, Any]) -> str:
    """What this folder's own processes paid, what of it was wasted, and what others had paid before."""
    spent, saved, wasted = cost["spent"], cost["saved"], cost["wasted"]
    calls = f"{whole(spent['calls'])} calls, {price(Usage.from_json(spent))}"
    texts = [f"Paid by this folder's own processes: {calls}."]
    if wasted["replies"]:
        replies = f"{whole(wasted['replies'])} answers were wasted (asked again, or failed)"
        texts.append(f"Of these, {replies}: {money(wasted['usd'])}.")
    if saved["calls"]:
        texts.append(f"Paid by others before: {whole(saved['calls'])} calls, {money(saved['usd'])}.")
    if change := cost["repriced"]["usd"]:
        direction = "more" if change > 0 else "less"
        texts.append(f"Prices have changed since: what it paid for costs {money(abs(change))} {direction} now.")
    return " ".join(texts)


def cost_per_case(used: Mapping[str, Any]) -> str:
    """`A case on average: 3.2 calls, 1,234.0 tokens in, 56.0 out, 820 ms, $0.0012.`, over all iterations together."""
    average, times = used["per_case"], used["case_latency_ms"]
    parts = [f"{average['calls']:,.1f} calls"] if average["calls"] is not None else []
    parts += (
        [f"{average['tokens_in']:,.1f} tokens in, {average['tokens_out']:,.1f} out"] if average["tokens_in"] else []
    )
    parts += [f"{times['sum'] / times['n']:,.0f} ms (of the cases with a measured time)"] if times else []
    return f"A case on average: {', '.join([*parts, money(average['usd'])])}."


def judge_line(used: Mapping[str, Any]) -> RichText:
    """How the judge ran: latency, failures by kind, retries."""
    parts: list[RichText] = []
    for what, times in (("a call p50 / p95", used["latency_ms"]), ("a case", used["case_latency_ms"])):
        if times and "p50" in times:
            parts.append(f"{what} {times['p50']:,.0f} / {times['p95']:,.0f} ms")
    if used["error_rate"] is not None:
        parts.append(", ".join(f"{name} rate {used[f'{name}_rate']:.1%}" for name in ("error", "timeout", "empty")))
    parts += [(Verbatim(kind), f" {whole(n)}") for kind, n in used["failures"].items()]
    parts.append(f"{whole(used['retries'])} retries")
    return ("The judge: ", *pieces_of(joined(parts, "; ")), ".")


def cost_line(cost: Mapping[str, Any], system: Mapping[str, Any] | None = None) -> RichText:
    """`cost: 1,200 calls, 1,234,567 tokens, $0.45; asked here: 12 calls, $0.01; saved: 1,188 calls`; where the answers name their
    usage (`operations.usage`), `cost: system: 48,000 tokens, $0.1200; judge: 1,200 calls, ...`."""
    judge = _judge_cost(cost)
    if not system:
        return ("cost: ", *pieces_of(judge))
    tokens = [f"{whole(system['tokens_total']['sum'])} tokens"] if system.get("tokens_total") else []
    usd = money(system["cost_usd"]["sum"]) if system["cost_usd"] else "price unknown"
    return (f"cost: system: {', '.join([*tokens, usd])}; judge: ", *pieces_of(judge))


def _judge_cost(cost: Mapping[str, Any]) -> RichText:
    used, spent, saved, wasted = (cost[part] for part in ("used", "spent", "saved", "wasted"))
    if not used["uses"]:
        return "no judge was asked"
    if used["calls_computed"] == used["calls"]:
        return _cost_line_without_calls(used)
    tokens = used["tokens_in"] + used["tokens_out"]
    if is_recorded(used, spent):
        return f"{whole(used['calls'])} recorded replies, {whole(tokens)} tokens, no call"
    text = f"{whole(used['calls'])} calls, {whole(tokens)} tokens, {price(Usage.from_json(used))}"
    text += f"; asked here: {whole(spent['calls'])} calls, {price(Usage.from_json(spent))}"
    if held_back := used["failures"].get("budget"):
        text += f"; held back by the budget: {whole(held_back)} calls"
    if saved["calls"]:
        text += f"; saved: {whole(saved['calls'])} calls"
    if wasted["replies"]:
        text += f"; wasted: {whole(wasted['replies'])} answers, {money(wasted['usd'])}"
    if used["usd"] is not None:
        return text
    reasons = [(Verbatim(reason), f" ({whole(n)})") for reason, n in used["unpriced_reasons"].items()]
    return (f"{text}. Price unknown: ", *pieces_of(joined(reasons, ", ")))


def _cost_line_without_calls(used: Mapping[str, Any]) -> RichText:
    """Of a run that called no provider: its judge is embedded, or its replies are missing."""
    if missing := sum(used["failures"].get(kind, 0) for kind in ("missing_reply", "budget")):
        return f"no call to a provider; {whole(missing)} questions have no stored reply"
    names = [Verbatim(name) for name in used.get("by_judge", ())]
    has_encoder = any("@" in name for name in names)  # vectors are computed here too, by weights that the name says
    judge: RichText = joined(names, " and ") if has_encoder else "the embedded judge"
    return (f"{whole(used['calls'])} questions answered by ", *pieces_of(judge), ", no call to a provider")


_FAILURES = {"n_error": "errors", "n_timeout": "timeouts", "n_empty": "empty answers", "n_abstained": "abstained"}
_RETRIED = {"n_retried": "retried"}
_LATENCY = "latency p50 / p95 (ms)"
_USAGE = ("answers", "tokens in", "tokens out", "tokens p50 / p95", "total tokens", "price per answer", "total price")
_TOKENS = {"tokens_in": "tokens in", "tokens_out": "out", "tokens_total": "in total"}


def operations_section(data: ReportData) -> Section:
    """The systems by method and by type of the documents; one line on the terminal."""
    metrics = data.metrics
    parts: list[Table | Note] = [_operations("method", method_groups(metrics))]
    by_type = metrics["by"].get("doc_type") or {}
    if by_type:
        parts.append(replace(_operations("type of the documents", by_type), shown_in=MARKDOWN))
    if set(metrics["by"]) - {"method", "doc_type"}:
        parts.append(Note("For other fields see metrics.json, under by.", shown_in=PAGES))
    if metrics["overall"]["operations"]["usage"]:
        parts += [_usage(metrics), *(Note(text, shown_in=PAGES) for text in _usage_notes(metrics))]
    if line := _terminal_line(metrics):
        parts.append(Note(line, shown_in=TERMINAL))
    return Section("operations", "Operations", tuple(parts), folded=True)


def _operations(by: str, groups: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row per group: failures with their share of the cases, and the latency of each stage of the system."""
    rows = []
    has_retried = any(group["operations"]["n_retried"] for group in groups.values())
    counts = {**_FAILURES, **(_RETRIED if has_retried else {})}
    for name, group in list(groups.items())[:GROUPS_SHOWN]:
        operations, n = group["operations"], group["n_cases"]
        failures = (count_with_share(operations[key], n) for key in counts)
        latency = ItemList(tuple(_latencies(operations)) or ("-",), separator=", ")
        rows.append(TableRow((Verbatim(name), whole(n), *failures, latency)))
    columns = (
        TableColumn(by, is_text=True),
        TableColumn("cases"),
        *map(TableColumn, counts.values()),
        TableColumn(_LATENCY, is_text=True),
    )
    return Table(columns, tuple(rows), f"By {by}", rows_left_out=len(groups) - len(rows), shown_in=PAGES)


def _latencies(operations: Mapping[str, Any]) -> Iterator[RichText]:
    for stage, times in operations["latency_ms"].items():
        yield Verbatim(stage), f" {times['p50']:,.0f} / {times['p95']:,.0f}"


def _usage(metrics: Mapping[str, Any]) -> Table:
    """A row per group whose answers name their usage: means per answer, percentiles and sum of all tokens, money."""
    rows = []
    for name, group in method_groups(metrics).items():
        if usage := group["operations"]["usage"]:
            means = (f"{usage[key]['mean']:,.1f}" if key in usage else "-" for key in ("tokens_in", "tokens_out"))
            total = usage.get("tokens_total")
            spread = (f"{total['p50']:,.0f} / {total['p95']:,.0f}", whole(total["sum"])) if total else ("-", "-")
            rows.append(TableRow((Verbatim(name), whole(usage["n_cases"]), *means, *spread, *_prices(usage))))
    columns = (TableColumn("method", is_text=True), *map(TableColumn, _USAGE))
    return Table(columns, tuple(rows), "Tokens and money of the system", shown_in=PAGES)


def _prices(usage: Mapping[str, Any]) -> tuple[str, str]:
    usd = usage["cost_usd"]
    return (money(usd["mean"]), money(usd["sum"])) if usd else (f"unknown for {whole(usage['n_unpriced'])}", "-")


def _usage_notes(metrics: Mapping[str, Any]) -> Iterator[str]:
    yield "Tokens in and out are means over the answers that name them."
    if unpriced := metrics["overall"]["operations"]["usage"]["n_unpriced"]:
        yield f"{whole(unpriced)} answers have no known price: set system.prices, or let usage hold cost_usd."


def _terminal_line(metrics: Mapping[str, Any]) -> RichText:
    """`system: 3 errors, 1 timeouts; total 820 / 1,940 ms (p50 / p95); 448.5 tokens in, 33.8 out per answer`."""
    operations = metrics["overall"]["operations"]
    named = {**_FAILURES, **_RETRIED}
    failures = ((operations[key], named[key]) for key in ("n_error", "n_timeout", "n_empty", "n_retried"))
    parts: list[RichText] = []
    if counts := ", ".join(f"{whole(n)} {noun}" for n, noun in failures if n):
        parts.append(counts)
    if latencies := tuple(_latencies(operations)):
        parts.append((*pieces_of(joined(latencies, ", ")), " ms (p50 / p95)"))
    if operations["usage"]:
        parts.append(_usage_per_answer(operations["usage"]))
    pieces: tuple[Piece, ...] = ("system: ", *pieces_of(joined(parts, "; ")))
    return pieces if parts else ""


def _usage_per_answer(usage: Mapping[str, Any]) -> str:
    """`1,234.5 tokens in, 56.0 out per answer, $0.0140 per answer`."""
    names = [key for key in ("tokens_in", "tokens_out") if key in usage] or [key for key in _TOKENS if key in usage]
    tokens = ", ".join(f"{usage[key]['mean']:,.1f} {_TOKENS[key]}" for key in names)
    price = usage["cost_usd"]["mean"] if usage["cost_usd"] else None
    texts = [f"{tokens} per answer"] if tokens else []
    return ", ".join([*texts, money(price) + (" per answer" if price is not None else "")])


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
    return Section(
        "iterations", f"Over {iteration_count(metrics)} iterations", (table, *_iteration_notes(data)), folded=True
    )


def _iteration_notes(data: ReportData) -> Iterator[Note]:
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
