"""Tokens and money of the system under test, for terminal and pages alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.reports.number_format import money, whole

USAGE = (
    "method",
    "answers",
    "tokens in",
    "tokens out",
    "tokens p50 / p95",
    "tokens in all",
    "price per answer",
    "price in all",
)
TITLE = "Tokens and money of the system"
_TOKENS = {"tokens_in": "tokens in", "tokens_out": "out", "tokens_total": "in all"}


def has_usage(metrics: Mapping[str, Any]) -> bool:
    """Whether some answer names what it used."""
    return bool(metrics["overall"]["operations"]["usage"])


def usage_lines(groups: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """A row for each group whose answers name their usage: means per answer, percentiles and sum of all tokens, money."""
    lines = []
    for name, group in groups.items():
        if not (used := group["operations"]["usage"]):
            continue
        means = [f"{used[key]['mean']:,.1f}" if key in used else "-" for key in ("tokens_in", "tokens_out")]
        total, usd = used.get("tokens_total"), used["cost_usd"]
        spread = [f"{total['p50']:,.0f} / {total['p95']:,.0f}", whole(total["sum"])] if total else ["-", "-"]
        lines.append([name, whole(used["n_cases"]), *means, *spread, *_prices(used, usd)])
    return lines


def usage_notes(metrics: Mapping[str, Any]) -> list[str]:
    """What the table leaves out: the tokens in and out are means per answer, other figures stand in metrics.json."""
    notes = ["Tokens in and out are means over the answers that name them."]
    if unpriced := metrics["overall"]["operations"]["usage"]["n_unpriced"]:
        notes.append(f"{whole(unpriced)} answers have no known price: set system.prices, or let usage hold cost_usd.")
    return notes


def usage_line(metrics: Mapping[str, Any]) -> str:
    """`1,234.5 tokens in, 56.0 out per answer, $0.0140 per answer`; empty where no answer names its usage."""
    used = metrics["overall"]["operations"]["usage"]
    if not used:
        return ""
    names = [key for key in ("tokens_in", "tokens_out") if key in used] or [key for key in _TOKENS if key in used]
    tokens = ", ".join(f"{used[key]['mean']:,.1f} {_TOKENS[key]}" for key in names)
    price = used["cost_usd"]["mean"] if used["cost_usd"] else None
    told = [f"{tokens} per answer"] if tokens else []
    return ", ".join([*told, money(price) + (" per answer" if price is not None else "")])


def _prices(used: Mapping[str, Any], usd: Mapping[str, Any] | None) -> list[str]:
    return [money(usd["mean"]), money(usd["sum"])] if usd else [f"unknown for {whole(used['n_unpriced'])}", "-"]
