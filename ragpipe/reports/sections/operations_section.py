"""How the systems ran, whatever was measured: failures, latency, tokens and money."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ragpipe.reports.metrics_view import method_groups
from ragpipe.reports.model import (
    MARKDOWN,
    PAGES,
    TERMINAL,
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
from ragpipe.reports.number_format import count_with_share, money, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.slices_section import GROUPS_SHOWN

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
    """`retrieval 131 / 358` for each stage."""
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
