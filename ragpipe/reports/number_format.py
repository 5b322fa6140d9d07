"""Numbers as people read them: one place, so that the terminal and the page say the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.schema.usage import Usage


class Grey(str):
    """A text of a table that is shown grey: it rests on too little."""


@dataclass(frozen=True)
class Cell:
    """One score of one group: mean and interval, the share that passed of how many judged, and what is missing.

    `few`: it rests on too few questions, and is shown grey.
    """

    mean: str
    interval: str = ""
    passed: str = ""
    note: str = ""
    few: bool = False

    @property
    def lines(self) -> list[str]:
        """`87.5 [78.9, 93.0]`, `88% of 40`, `coverage 96%`."""
        return [line for line in (f"{self.mean} {self.interval}".rstrip(), self.passed, self.note) if line]

    @property
    def line(self) -> str:
        """Mean and interval alone: `87.5 [78.9, 93.0]`, `0.00 [0.00, 0.56] too few`."""
        text = f"{self.mean} {self.interval}".rstrip()
        return Grey(f"{text} too few") if self.few else text

    @property
    def narrow(self) -> list[str]:
        """The same with the interval on a line of its own."""
        return [line for line in (self.mean, self.interval, self.passed, self.note) if line]


def cell(score: Mapping[str, Any] | None, *, percent: bool = False) -> Cell:
    """A score as text: `0.85 [0.82, 0.88]`, `78% of 412`, `coverage 96%`.

    None is a score that applies to no case of the group.
    """
    if score is None:
        return Cell("-", note="skipped")
    if score["mean"] is None:
        return Cell("-", note=_note(score) or "none")
    factor, places = (100.0, 1) if percent else (1.0, 2)
    rate, few = score.get("pass_rate"), is_thin(score)
    return Cell(
        _number(score["mean"] * factor, places),
        bracketed(score["interval"], factor, places),
        f"{rate:.0%} of {whole(score['n_judged'])}" if rate is not None else f"n = {whole(score['n_ok'])}",
        ", ".join(part for part in ("too few" if few else "", _note(score)) if part),
        few,
    )


def is_thin(score: Mapping[str, Any]) -> bool:
    """Whether a mean rests on too few questions for its interval to say much, or to have one."""
    bounds = score["interval"]
    return bool(bounds.get("too_few")) if bounds else score.get("interval_reason") in ("one_value", "one_sample")


def bracketed(bounds: Mapping[str, Any] | None, factor: float = 1.0, places: int = 2) -> str:
    """An interval as `[0.82, 0.88]`; empty where there is none."""
    if bounds is None:
        return ""
    return f"[{_number(bounds['low'] * factor, places)}, {_number(bounds['high'] * factor, places)}]"


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


def parts_note(name: str, metrics: Mapping[str, Any]) -> tuple[str, str]:
    """`2 of 4 parts` and the names of these two, of a composite or an overall score without all of its parts; else empty."""
    parts = metrics["parts"].get(name)
    if not parts or not parts["absent"]:
        return "", ""
    measured = parts["measured"]
    return f"{len(measured)} of {len(measured) + len(parts['absent'])} parts", ", ".join(measured)


def hidden_overall(metrics: Mapping[str, Any]) -> str:
    """Why there is no overall score in a run with one of its parts; empty where there is one, or nothing to make it of."""
    parts = metrics["parts"].get("overall_score")
    if parts is None or "overall_score" in metrics["overall"]["scores"]:
        return ""
    return f"no overall_score: of its parts this run has {parts['measured'][0]} alone"


def columns(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The groups that stand side by side: the methods, or everything when there are none."""
    return metrics["by"].get("method") or {"all": metrics["overall"]}


SHARED_NOTE = "Each score on the questions on which every method has a value: only there may methods be compared."


def shared_title(metrics: Mapping[str, Any]) -> str:
    """`On shared questions (all methods were asked 21 of 40)`."""
    shared = metrics["shared"]
    n, of = whole(shared["n_questions"]), whole(shared["of"])
    return f"On shared questions (all methods were asked {n} of {of})"


def shared_lines(
    metrics: Mapping[str, Any], percent: Collection[str], *, main: bool = False
) -> tuple[list[str], list[tuple[str, str, list[Cell]]]]:
    """Heads and rows of the methods on the questions that they share: a row for each score where these are not all of
    them. With `main` only those that weigh or have a threshold, if there are such."""
    shared = metrics.get("shared", {"scores": {}})["scores"]
    methods, lines = list(columns(metrics)), list[tuple[str, str, list[Cell]]]()
    names = [
        name for name in method_names(metrics) if name in shared and shared[name]["n_questions"] < shared[name]["of"]
    ]
    if main:
        weights = metrics["scoring"].get("weights_used", {})
        chosen = [name for name in names if name in weights or metrics["declared"][name]["threshold"] is not None]
        names = chosen or names
    for name in names:
        found = shared[name]["methods"]
        cells = [cell(found.get(method), percent=name in percent) for method in methods]
        questions = f"{whole(shared[name]['n_questions'])} of {whole(shared[name]['of'])}"
        lines.append((heading(name, metrics, percent), questions, cells))
    return ["score", "questions", *methods], lines


def judged_times(metrics: Mapping[str, Any]) -> int:
    """How often each case was judged: the iterations that these figures are of."""
    return len(metrics.get("iterations", (1,)))


def iterations_text(metrics: Mapping[str, Any]) -> str:
    """`iteration 2`, `3 iterations`."""
    times = judged_times(metrics)
    return f"{times} iterations" if times > 1 else f"iteration {metrics.get('iteration', 1)}"


def each_iteration(metrics: Mapping[str, Any]) -> list[str]:
    """That a case counts in each of several iterations; nothing for one."""
    times = judged_times(metrics)
    return [f"Counted in each of {times} iterations: {whole(metrics['n_cases'])} cases x {times}."] if times > 1 else []


def share_of_cases(n: int, metrics: Mapping[str, Any], noun: str = "") -> str:
    """`7 of 40 (17.5%)`; over several iterations each case counts in each: `12 of 120 (10.0%)`."""
    cases = metrics["n_cases"] * judged_times(metrics)
    return f"{whole(n)} of {whole(cases)}{noun} ({n / cases:.1%})"


def method_names(metrics: Mapping[str, Any]) -> Sequence[str]:
    """Names of the scores in the order of the tables; the overall score last and only where there is one."""
    scores = metrics["overall"]["scores"]
    return [name for name in scores if name != "overall_score" or scores[name]["n_ok"]]


def reasons_of(score: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Why judgements of a score failed or were skipped, with how often."""
    return [*score.get("errors", {}).items(), *score.get("skipped", {}).items()]


def mode_shares(n: int, metrics: Mapping[str, Any]) -> tuple[str, str, str]:
    """`n` cases with a failure mode as a share of all cases, of those with any mode, and of all modes together."""
    overall = metrics["overall"]
    of = (metrics["n_cases"] * judged_times(metrics), overall["n_with_failure_mode"], overall["n_failure_modes"])
    all_cases, with_mode, modes = (f"{n / whole_count:.1%}" if whole_count else "-" for whole_count in of)
    return all_cases, with_mode, modes


def items_of(mode: str, counts: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """`23 unsupported claims`: what of a failure mode is counted beside its cases; empty where nothing is."""
    return f"{whole(counts['n_items'])} {metrics['failure_items'][mode]}" if "n_items" in counts else ""


def money(usd: float | None) -> str:
    """`$0.0123`, `price unknown`."""
    if usd is None:
        return "price unknown"
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def price(usage: Usage) -> str:
    """`$0.0123`, or `at least $0.0123 (4 calls without a price)`; `price unknown` when no price is known."""
    known, unpriced = usage.usd_known, usage.unpriced
    if not unpriced:
        return money(known)
    if not known:
        return money(None)
    return f"at least {money(known)} ({whole(unpriced)} call{'s' if unpriced > 1 else ''} without a price)"


def whole(number: float) -> str:
    """`12,345`."""
    return f"{int(number):,}"


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
