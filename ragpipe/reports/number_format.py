"""Numbers as text: counts, money, intervals and shares look the same in every report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.safe_text import on_one_line
from ragpipe.schema.usage import Usage


def whole(number: float) -> str:
    """`12,345`."""
    return f"{int(number):,}"


def money(usd: float | None) -> str:
    """`$0.0123`, `price unknown`."""
    if usd is None:
        return "price unknown"
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def percent_with_interval(row: Mapping[str, Any]) -> str:
    """A row's `share` and `interval` as `90 [66, 98]`, in percent; `-` where there is no share."""
    if row["share"] is None:
        return "-"
    interval = row["interval"]
    bounds = f" [{100 * interval['low']:.0f}, {100 * interval['high']:.0f}]" if interval else ""
    return f"{100 * row['share']:.0f}{bounds}"


def price(usage: Usage) -> str:
    """`$0.0123`, or `at least $0.0123 (4 calls without a price)`; `price unknown` when no price is known."""
    known, unpriced = usage.usd_known, usage.unpriced
    if not unpriced:
        return money(known)
    if not known:
        return money(None)
    return f"at least {money(known)} ({whole(unpriced)} call{'s' if unpriced > 1 else ''} without a price)"


def is_free(used: Mapping[str, Any]) -> bool:
    """Whether the replies that the results use cost nothing, as those of a recorded judge; `used` is that of `cost.json`."""
    return not (used["usd_known"] or used["unpriced"])


def is_recorded(used: Mapping[str, Any], spent: Mapping[str, Any]) -> bool:
    """Whether they cost nothing and none was asked for here; `used` and `spent` are those of `cost.json`."""
    return is_free(used) and not spent.get("calls")


def decimal(value: float, places: int) -> str:
    """A mean or a bound: `0.85`; from 100 on `1,234.5`."""
    return f"{value:.{places}f}" if abs(value) < 100 else f"{value:,.1f}"


def bracketed(bounds: Mapping[str, Any] | None, factor: float = 1.0, places: int = 2) -> str:
    """An interval as `[0.82, 0.88]`; empty where there is none."""
    if bounds is None:
        return ""
    return f"[{decimal(bounds['low'] * factor, places)}, {decimal(bounds['high'] * factor, places)}]"


def share_below_one(value: float) -> str:
    """A percentage that never rounds up to 100 %."""
    return f"{min(value, 0.999):.1%}"


def percentage(value: float | None, missing: str = "-") -> str:
    """`95.0%`; `missing` where there is no value."""
    return missing if value is None else f"{value:.1%}"


def count_with_share(count: int, total: int) -> str:
    """`3 (7.5%)`; `0` alone where nothing was counted."""
    return f"{whole(count)} ({count / total:.1%})" if count else "0"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 error`, `2 errors`; `nouns` is the plural where it is not the noun and an s."""
    return f"{whole(count)} {noun if count == 1 else nouns or noun + 's'}"


_ID = 60


def difference_text(score: Mapping[str, Any]) -> str:
    """`+0.043 [+0.012, +0.074]`; `n = 3: too few` in place of an interval of fewer than 5 questions."""
    if score["difference"] is None:
        return "-"
    text = figure_text(score["difference"], sign=True)
    if interval := score["interval"]:
        if interval["too_few"]:
            return f"{text} (n = {whole(score['n'])}: too few)"
        text += f" [{figure_text(interval['low'], sign=True)}, {figure_text(interval['high'], sign=True)}]"
    return text


_ROUNDING = 1e-12


def figure_text(value: float | None, *, sign: bool = False) -> str:
    """Three decimals below 10, one below 1,000, none above; two digits where three decimals show none; `-` for none. What is no more
    than the rounding of a sum is 0."""
    if value is None:
        return "-"
    if _ROUNDING < abs(value) < 0.001:
        return f"{value:+.2g}" if sign else f"{value:.2g}"
    value = 0.0 if abs(value) <= _ROUNDING else value
    places = 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:+,.{places}f}" if sign else f"{value:,.{places}f}"


def wins_text(score: Mapping[str, Any]) -> str:
    """`26/6/7`: cases in which the candidate is better, equal and worse."""
    return f"{whole(score['wins'])}/{whole(score['ties'])}/{whole(score['losses'])}"


def case_text(key: Sequence[Any], has_one_method: bool) -> str:
    """`dao-01`, with the method where the side has several, and with the repeat where it is not the first."""
    sample, method, repeat = key
    name = sample if has_one_method else f"{sample}/{method}"
    return on_one_line(name + (f" repeat {repeat}" if repeat != 1 else ""), _ID)
