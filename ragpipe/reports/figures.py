"""Numbers as people read them: one place, so that the terminal and the page say the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One score of one group: `mean` with its half-width, the share that passed of how many judged, and what is missing."""

    mean: str
    passed: str
    note: str

    @property
    def lines(self) -> list[str]:
        return [line for line in (self.mean, self.passed, self.note) if line]


def cell(score: Mapping[str, Any] | None, *, percent: bool = False) -> Cell:
    """A score as text: `0.85 ± 0.03`, `78% of 412`, `coverage 96%`. The half-width is that of the wider side.

    None is a score that applies to no case of the group.
    """
    if score is None:
        return Cell("-", "", "skipped")
    n = score["n_ok"]
    if score["mean"] is None:
        return Cell("-", "", _note(score) or "none")
    factor = 100.0 if percent else 1.0
    mean, half = score["mean"], _half_width(score)
    places = 1 if percent else 2
    text = _number(mean * factor, places) + (f" ± {_number(half * factor, places)}" if half is not None else "")
    rate = score.get("pass_rate")
    return Cell(
        text, f"{rate:.0%} of {whole(score['n_judged'])}" if rate is not None else f"n = {whole(n)}", _note(score)
    )


def heading(name: str, metrics: Mapping[str, Any], percent: Collection[str]) -> str:
    """A score's name with its scale: `correctness 1-5`, `faithfulness x100`, `scope_miss (lower is better)`."""
    scale_of = metrics["declared"][name]
    low, high = scale_of["low"], scale_of["high"]
    if name in percent:
        scale = " x100"
    elif low is None or high is None:
        scale = " count"
    else:
        scale = "" if (low, high) == (0, 1) else f" {low:g}-{high:g}"
    return name + scale + ("" if scale_of["higher_is_better"] else " (lower is better)")


def columns(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The groups that stand side by side: the methods, or everything when there are none."""
    return metrics["by"].get("method") or {"all": metrics["overall"]}


def rows(metrics: Mapping[str, Any]) -> Sequence[str]:
    """Names of the scores in the order of the tables; the overall score last and only where there is one."""
    scores = metrics["overall"]["scores"]
    return [name for name in scores if name != "overall_score" or scores[name]["n_ok"]]


def reasons_of(score: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Why judgements of a score failed or were skipped, with how often."""
    return [*score.get("errors", {}).items(), *score.get("skipped", {}).items()]


def mode_shares(n: int, summary: Mapping[str, Any]) -> tuple[str, str, str]:
    """`n` cases with a failure mode as a share of all cases, of those with any mode, and of all modes together."""
    of = ("n_cases", "n_with_failure_mode", "n_failure_modes")
    all_cases, with_mode, modes = (f"{n / summary[key]:.1%}" for key in of)
    return all_cases, with_mode, modes


def money(usd: float | None) -> str:
    """`$0.0123`, `price unknown`."""
    if usd is None:
        return "price unknown"
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def paid(known: float | None, unpriced: int) -> str:
    """`$0.0123`, or `at least $0.0123 (4 calls without a price)`; `price unknown` when nothing is known to be paid."""
    if not unpriced:
        return money(known)
    if not known:
        return money(None)
    return f"at least {money(known)} ({whole(unpriced)} call{'s' if unpriced > 1 else ''} without a price)"


def whole(number: float) -> str:
    """`12,345`."""
    return f"{int(number):,}"


def _half_width(score: Mapping[str, Any]) -> float | None:
    bounds = score["interval"]
    if bounds is None:
        return None
    return float(max(score["mean"] - bounds["low"], bounds["high"] - score["mean"]))


def _number(value: float, places: int) -> str:
    return f"{value:.{places}f}" if abs(value) < 100 else f"{value:,.1f}"


def _note(score: Mapping[str, Any]) -> str:
    found = []
    coverage = score.get("coverage")
    if coverage is not None and coverage < 1:
        found.append(f"coverage {share_below_one(coverage)}")
    if unjudged := score.get("n_unjudged"):
        found.append(f"{whole(unjudged)} without a verdict")
    if not score["n_ok"] and score.get("n_skipped"):
        found.append("skipped")
    if missing := score.get("n_missing"):
        found.append(f"{missing} missing")
    return ", ".join(found)


def share_below_one(value: float) -> str:
    """A percentage that never rounds up to 100 %."""
    return f"{min(value, 0.999):.1%}"
