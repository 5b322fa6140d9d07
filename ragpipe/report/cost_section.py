"""What was measured and what it cost: coverage, operations, iterations, the calls that the results use, by metric, and what this
folder paid for."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ragpipe.core.usage import Usage
from ragpipe.report.model import (
    MARKDOWN,
    PAGES,
    TERMINAL,
    Cell,
    ItemList,
    Note,
    RichText,
    Section,
    SectionPart,
    Table,
    TableColumn,
    Verbatim,
    joined,
    pieces_of,
)
from ragpipe.report.report_data import ReportData, heading, iteration_count, method_groups, table_scores, times_of, weights_of
from ragpipe.report.spread_section import GROUPS_SHOWN
from ragpipe.report.styled_text import count_with_share, is_free, is_recorded, money, percentage, plural, price, whole

_COUNTS = {
    "calls": "calls",
    "calls_failed": "without a reply",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "tokens_cached": "cached",
}


_OF_SYSTEM = {"calls": "call", "embedding_calls": "embedding", "tokens_total": "token"}


def cost_section(data: ReportData) -> Section:
    """The calls that the results use. What this folder's own processes paid differs from machine to machine: it is shown
    on the terminal and in Markdown, not in HTML."""
    cost = data.cost
    terminal = [Note(text, shown_in=TERMINAL) for text in cost_lines(data)]
    if data.run:  # `run b692f569a644, 2026-11-29 18:27 UTC, took 8.2 s, the system 2 min 3 s`
        words = ", ".join(filter(None, (f"run {data.run['run_id']}", times_of(data))))
        terminal.append(Note(words, shown_in=TERMINAL))
    if not cost["used"]["uses"]:
        return Section("cost", "Cost", (Note("No judge was asked.", shown_in=PAGES), *terminal), folded=True)
    whole_case = cost_with_system(cost["used"], data.metrics["overall"]["operations"]["usage"])
    notes = (Note(text, shown_in=PAGES) for text in (*_notes(cost), *whole_case))
    spend = Note(_spend(cost), shown_in=MARKDOWN)
    return Section("cost", "Cost", (_by_metric(cost["used"]), *notes, spend, *terminal), folded=True)


def _by_metric(used: Mapping[str, Any]) -> Table:
    """What was computed here is no call, and has no tokens and no price."""
    computed, rows = _is_computed(used), []
    heads = {"calls": "checks", "calls_failed": "without a result"} if computed else _COUNTS
    for name, usage in (*used["by_metric"].items(), ("all", used)):
        prices = [] if computed else ["no cost" if is_free(used) else price(Usage.from_json(usage))]
        rows.append((Verbatim(name), *(whole(usage[key]) for key in heads), *prices))
    title, last = ("Checks made without a call", ()) if computed else ("Cost of the judge", ("price",))
    return Table.of(("metric", *heads.values(), *last), rows, title=title, shown_in=PAGES)


def _is_computed(used: Mapping[str, Any]) -> bool:
    """Whether every question was answered here, by the rules judge or by weights: none had to be looked up or sent."""
    return used["calls_computed"] == used["calls"] and not used["failures"].get("missing_reply")


def _notes(cost: Mapping[str, Any]) -> Iterator[RichText]:
    used = cost["used"]
    yield "A reply that several metrics share is counted with the first of them."
    if _is_computed(used):
        return
    if used["unpriced_reasons"]:
        counted = [(Verbatim(name), f" {whole(n)}") for name, n in used["unpriced_reasons"].items()]
        yield ("Calls without a known price: ", *pieces_of(joined(counted, ", ")), ".")
    yield judge_line(used)
    yield cost_per_case(used)
    if cost["prices"]:
        sources = [(Verbatim(name), f" by {rates['source']}") for name, rates in cost["prices"].items()]
        yield ("Prices: ", *pieces_of(joined(sources, ", ")), ".")


def _spend(cost: Mapping[str, Any]) -> str:
    """What this folder's own processes paid, what of it was wasted, and what others had paid before."""
    spent, saved, wasted = cost["spent"], cost["saved"], cost["wasted"]
    calls = f"{whole(spent['calls'])} calls, {price(Usage.from_json(spent))}"
    texts = [f"Paid by this folder's own processes: {calls}."]
    if wasted["replies"]:
        replies = f"{whole(wasted['replies'])} answers were wasted (asked again, or of a call without a usable reply)"
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
    parts += [f"{average['tokens_in']:,.1f} tokens in, {average['tokens_out']:,.1f} out"] if average["tokens_in"] else []
    parts += [f"{times['sum'] / times['n']:,.0f} ms (of the cases with a measured time)"] if times else []
    return f"A case on average: {', '.join([*parts, money(average['usd'])])}."


def cost_with_system(used: Mapping[str, Any], system: Mapping[str, Any]) -> Iterator[str]:
    """`With the system: 32.0 calls (31.0 of the judge, 1.0 of the system) and 2.0 embeddings a case.`; nothing where the answers do
    not say what calls they took."""
    calls, embedded = system.get("calls"), system.get("embedding_calls")
    if not (calls or embedded):
        return
    judged, own = 0.0 if _is_computed(used) else used["per_case"]["calls"] or 0.0, calls["mean"] if calls else 0.0
    embeddings = f" and {embedded['mean']:,.1f} embeddings" if embedded else ""
    yield f"With the system: {judged + own:,.1f} calls ({judged:,.1f} of the judge, {own:,.1f} of the system){embeddings} a case."


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


def cost_lines(data: ReportData) -> Iterator[RichText]:
    """`cost: judge 1,200 calls, $0.45; system 48,223 tokens, price unknown`, and the reason for an unknown price, which is a remedy."""
    parts, used = [_judge_cost(data.cost, data.metrics)], data.cost["used"]
    if system := data.metrics["overall"]["operations"]["usage"]:
        counts = [plural(round(system[key]["sum"]), noun) for key, noun in _OF_SYSTEM.items() if key in system]
        usd = money(system["cost_usd"]["sum"]) if system["cost_usd"] else "price unknown"
        parts.append(f"system {', '.join([*counts, usd])}")
    yield f"cost: {'; '.join(parts)}"
    if reasons := list(used["unpriced_reasons"]):
        more = f" ({plural(len(reasons) - 1, 'other reason')} in the report)" if len(reasons) > 1 else ""
        yield ("price unknown: ", Verbatim(reasons[0]), more)


def _judge_cost(cost: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """The calls that the results use and their price, and what this start paid of it where that is not all."""
    used, spent, wasted = cost["used"], cost["spent"], cost["wasted"]
    if not used["uses"]:
        return "no judge was asked"
    if used["calls_computed"] == used["calls"]:
        if missing := sum(used["failures"].get(kind, 0) for kind in ("missing_reply", "budget")):
            return f"no call; {plural(missing, 'reply is', 'replies are')} not stored"
        label = str(metrics["judge"]["label"])
        judge = "judge" if weights_of(used) else "rules judge" if label.startswith("rules-") else f"judge {label}"
        return f"{judge} {plural(used['calls'], 'check')}, no call"
    if is_recorded(used, spent):
        return f"judge {plural(used['calls'], 'recorded reply', 'recorded replies')}, no call"
    held_back = used["failures"].get("budget", 0)
    failures = used["calls_failed"] - held_back
    lost = f" ({whole(failures)} without a reply)" if failures else ""
    text = f"judge {plural(used['calls'], 'call')}{lost}, {price(Usage.from_json(used))}"
    text += f", {whole(held_back)} held back by the budget" if held_back else ""
    if spent["calls"] not in (used["calls"], used["calls"] - used["calls_failed"]):
        text += f", paid by this run {plural(spent['calls'], 'call')}, {price(Usage.from_json(spent))}"
    if wasted["replies"]:
        text += f", wasted {money(wasted['usd'])}"
    return text


_FAILURES = {"n_error": "errors", "n_timeout": "timeouts", "n_empty": "empty answers", "n_abstained": "abstained"}
_USAGE = ("answers", "tokens in", "tokens out", "tokens p50 / p95", "total tokens", "price per answer", "total price")


def operations_section(data: ReportData) -> Section:
    """The systems by method and by type of the documents."""
    metrics = data.metrics
    parts: list[Table | Note] = [_operations("method", method_groups(metrics))]
    by_type = metrics["by"].get("doc_type") or {}
    if by_type:
        parts.append(replace(_operations("type of the documents", by_type), shown_in=MARKDOWN))
    if set(metrics["by"]) - {"method", "doc_type"}:
        parts.append(Note("For other fields see metrics.json, under by.", shown_in=PAGES))
    if metrics["overall"]["operations"]["usage"]:
        parts += [_usage(metrics), Note("Tokens in and out are means over the answers that name them.", shown_in=PAGES)]
        if unpriced := metrics["overall"]["operations"]["usage"]["n_unpriced"]:
            remedy = "set system.prices, or let usage hold cost_usd."
            parts.append(Note(f"{whole(unpriced)} answers have no known price: {remedy}", shown_in=PAGES))
    return Section("operations", "Operations", tuple(parts), folded=True, shown_in=PAGES)


def _operations(by: str, groups: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row per group: failures with their share of the cases, and the latency of each stage of the system."""
    rows = list[tuple[Cell, ...]]()
    has_retried = any(group["operations"]["n_retried"] for group in groups.values())
    counts = _FAILURES | ({"n_retried": "retried"} if has_retried else {})
    for name, group in list(groups.items())[:GROUPS_SHOWN]:
        operations, n = group["operations"], group["n_cases"]
        failures = (count_with_share(operations[key], n) for key in counts)
        times = operations["latency_ms"].items()
        stages = tuple((Verbatim(stage), f" {taken['p50']:,.0f} / {taken['p95']:,.0f}") for stage, taken in times)
        latency = ItemList(stages or ("-",), separator=", ")
        rows.append((Verbatim(name), whole(n), *failures, latency))
    latency_head, left_out = TableColumn("latency p50 / p95 (ms)", is_text=True), len(groups) - len(rows)
    return Table.of(
        (by, "cases", *counts.values(), latency_head), rows, title=f"By {by}", rows_left_out=left_out, shown_in=PAGES
    )


def _usage(metrics: Mapping[str, Any]) -> Table:
    """A row per group whose answers name their usage: means per answer, percentiles and sum of all tokens, money."""
    rows = []
    for name, group in method_groups(metrics).items():
        if usage := group["operations"]["usage"]:
            means = (f"{usage[key]['mean']:,.1f}" if key in usage else "-" for key in ("tokens_in", "tokens_out"))
            total = usage.get("tokens_total")
            spread = (f"{total['p50']:,.0f} / {total['p95']:,.0f}", whole(total["sum"])) if total else ("-", "-")
            usd = usage["cost_usd"]
            prices = (money(usd["mean"]), money(usd["sum"])) if usd else (f"unknown for {whole(usage['n_unpriced'])}", "-")
            rows.append((Verbatim(name), whole(usage["n_cases"]), *means, *spread, *prices))
    return Table.of(("method", *_USAGE), rows, title="Tokens and money of the system", shown_in=PAGES)


_JUDGED = {"n_ok": "ok", "n_skipped": "skipped", "n_error": "error", "n_missing": "not measured"}


def coverage_section(data: ReportData) -> Section | None:
    """A row per score; None for a run without any score. A terminal says which scores have no value, and why."""
    rows = list[tuple[Cell, ...]]()
    for name, score in data.metrics["overall"]["scores"].items():
        texts = ItemList(tuple((Verbatim(reason), f" {whole(n)}") for reason, n in _reasons(score)), separator=", ")
        counts = (whole(score.get(key, 0)) for key in _JUDGED)
        rows.append((Verbatim(name), *counts, percentage(score["coverage"]), texts))
    table = Table.of(("score", *_JUDGED.values(), "coverage", TableColumn("reasons", is_text=True)), rows, shown_in=PAGES)
    return Section("coverage", "Coverage", (table, *_without_value(data.metrics)), folded=True) if rows else None


def _reasons(score: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [*score.get("errors", {}).items(), *score.get("skipped", {}).items()]


_NAMED = 3  # scores that are named of those that share a reason, and reasons


def _without_value(metrics: Mapping[str, Any]) -> Iterator[Note]:
    """`no value: faithfulness, mrr and 2 more (timeout 4)`."""
    scores, by_reason = metrics["overall"]["scores"], defaultdict[str, list[str]](list)
    for name in table_scores(metrics):
        if not scores[name]["n_ok"]:
            by_reason[", ".join(f"{reason} {whole(n)}" for reason, n in _reasons(scores[name])) or "no case"].append(name)
    texts = [
        f"{', '.join(names[:_NAMED])}{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''} ({reason})"
        for reason, names in [*by_reason.items()][:_NAMED]
    ]
    if texts:
        more = f"; {len(by_reason) - _NAMED} more in the report" if len(by_reason) > _NAMED else ""
        yield Note(("no value: ", Verbatim("; ".join(texts)), more), shown_in=TERMINAL)


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
            keys = [Verbatim(heading(name, metrics, percent)), *([Verbatim(method)] if several else [])]
            rows.append((*keys, *_figures(group["scores"].get(name), metrics["declared"][name], percent=name in percent)))
    table = Table.of(("score", *(["method"] if several else []), *_FIGURES), rows, texts=1 + several)
    parts: tuple[SectionPart, ...] = (table, *_iteration_notes(data))
    return Section("iterations", f"Over {iteration_count(metrics)} iterations", parts, folded=True, shown_in=PAGES)


def _iteration_notes(data: ReportData) -> Iterator[Note]:
    yield Note(
        "least - most: of the iterations' means. noise floor: two runs that judge these answers as often differ in their means by "
        "less in 95 % of pairs. cases sd: how the cases vary without the judge's part; judge sd: how one case varies between "
        "iterations. flips: how often two judgings of a case give different verdicts."
    )
    yield Note(
        "judge twice from: more cases or more judgings? Judging each case twice pays where one more case costs so many times "
        "what judging it once does; below that, more cases."
    )
    if count := data.metrics["flips"]["n"]:
        yield Note(f"{whole(count)} flipping verdicts: the cases are listed in final/metrics.json, under flips.")
    yield Note(
        "The figures, diagnoses and cost of this report are those of all iterations; each iteration's own are in its folder."
    )


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

    return (
        number(score["mean"]),
        f"{number(spread['min'])} - {number(spread['max'])}" if spread else "-",
        number(noise.get("floor")),
        deviation(noise.get("item_variance")),
        deviation(noise.get("judge_variance")),
        percentage(score.get("pass_rate")),
        percentage(flips.get("rate")),
        "-" if (pays_from := noise.get("second_judging_from")) is None else f"{pays_from:,.1f} x",
    )
