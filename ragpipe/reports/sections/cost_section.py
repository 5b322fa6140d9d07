"""What the judge cost: the calls that the results use, by metric, and what this folder paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.reports.model import (
    MARKDOWN,
    PAGES,
    TERMINAL,
    Note,
    RichText,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
    joined,
    pieces_of,
)
from ragpipe.reports.number_format import is_free, is_recorded, money, price, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.schema.usage import Usage

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
