"""A difference between two sides as text: its figures, its wins and losses, its cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.number_format import whole

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


def figure_text(value: float | None, *, sign: bool = False) -> str:
    """Three decimals below 10, one below 1,000, none above; two digits where three decimals show none; `-` for none."""
    if value is None:
        return "-"
    if 0 < abs(value) < 0.001:
        return f"{value:+.1e}" if sign else f"{value:.1e}"
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
