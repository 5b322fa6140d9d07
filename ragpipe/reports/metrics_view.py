"""What sections read from `metrics.json`: its methods and scores in table order, each score as a cell."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ragpipe.comparing.headline import fallen_text, headline_scores
from ragpipe.reports.model import Plot, ScoreCell
from ragpipe.reports.number_format import bracketed, decimal, share_below_one, whole
from ragpipe.scoring.composites import OVERALL

HEADLINES = 8
"""Scores that a chart shows at most: more are a table."""


def method_groups(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The groups that are shown side by side: the methods, or `all` when there are none."""
    return metrics["by"].get("method") or {"all": metrics["overall"]}


def table_scores(metrics: Mapping[str, Any]) -> Sequence[str]:
    """Names of the scores in table order; the overall score comes last, and only where it has a value. `by_importance` sorts them."""
    scores = metrics["overall"]["scores"]
    return [name for name in scores if name != "overall_score" or scores[name]["n_ok"]]


def main_scores(names: Sequence[str], metrics: Mapping[str, Any]) -> list[str]:
    """Those of the scores that have a weight or a threshold; all of them where none has."""
    weights = metrics["scoring"].get("weights_used", {})
    main = [name for name in names if name in weights or metrics["declared"][name]["threshold"] is not None]
    return main or list(names)


def headline_names(metrics: Mapping[str, Any]) -> list[str]:
    """The scores that the run is about, the overall one first: those that are weighted or gated (`headline_scores`), and have a
    value; at most `HEADLINES`."""
    scores = metrics["overall"]["scores"]
    names = headline_scores(metrics, metrics, list(metrics["declared"]))
    return [name for name in names if name in scores and scores[name]["n_ok"]][:HEADLINES]


def chart_names(metrics: Mapping[str, Any]) -> list[str]:
    """The headline scores, and after them those on a scale that have a threshold, up to `HEADLINES` together."""
    names = headline_names(metrics)
    for name in table_scores(metrics):
        declared, score = metrics["declared"][name], metrics["overall"]["scores"][name]
        if declared["threshold"] is not None and declared["low"] is not None and score["n_ok"]:
            names.append(name)
    return [name for name in dict.fromkeys(names) if metrics["declared"][name]["low"] is not None][:HEADLINES]


def fallen_slices(methods: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """For each method that is not worse as a whole, in words the slice that fell most. `methods` is what `method_differences` says."""
    for method, slices in methods["slices"].items() if methods else ():
        fallen = [row for row in slices if row["state"] == "worse"]
        if methods and fallen and methods["candidates"][method][fallen[0]["score"]]["state"] != "worse":
            yield method, fallen_text(fallen)


def by_importance(names: Sequence[str], metrics: Mapping[str, Any]) -> list[str]:
    """The overall score, the headline scores, those with a threshold, the others."""
    first = dict.fromkeys((OVERALL.name, *headline_names(metrics), *chart_names(metrics), *names))
    return [name for name in first if name in names]


def iteration_count(metrics: Mapping[str, Any]) -> int:
    """The number of iterations that these figures are of: how often each case was judged."""
    return len(metrics.get("iterations", (1,)))


def iterations_text(metrics: Mapping[str, Any]) -> str:
    """`iteration 2`, `3 iterations`."""
    count = iteration_count(metrics)
    return f"{count} iterations" if count > 1 else f"iteration {metrics.get('iteration', 1)}"


def counted_per_iteration(metrics: Mapping[str, Any]) -> list[str]:
    """That a case counts in each of several iterations; empty for one."""
    count = iteration_count(metrics)
    return [f"Counted in each of {count} iterations: {whole(metrics['n_cases'])} cases x {count}."] if count > 1 else []


def share_of_cases(n: int, metrics: Mapping[str, Any]) -> str:
    """`7 of 40 (17.5%)`; over several iterations each case counts in each: `12 of 120 (10.0%)`."""
    cases = metrics["n_cases"] * iteration_count(metrics)
    return f"{whole(n)} of {whole(cases)} ({n / cases:.1%})"


def heading(name: str, metrics: Mapping[str, Any], percent: Collection[str]) -> str:
    """A score's name with its scale: `correctness 1-5`, `faithfulness x100`, `scope_miss (lower is better)`."""
    declared = metrics["declared"][name]
    low, high = declared["low"], declared["high"]
    if name in percent:
        scale = " x100"
    elif low is None or high is None:
        scale = " count"
    else:
        scale = "" if (low, high) == (0, 1) else f" {low:g}-{high:g}"
    return name + scale + ("" if declared["higher_is_better"] else " (lower is better)")


def measured_parts(name: str, metrics: Mapping[str, Any]) -> tuple[str, str]:
    """`2 of 4 parts` and the names of these two, for a composite or overall score that lacks some parts; else empty."""
    parts = metrics["composite_parts"].get(name)
    if not parts or not parts["absent"]:
        return "", ""
    measured = parts["measured"]
    return f"{len(measured)} of {len(measured) + len(parts['absent'])} parts", ", ".join(measured)


def missing_overall_score(metrics: Mapping[str, Any]) -> str:
    """Why a run with only one part of the overall score has none; empty where it has one, or no part of it."""
    parts = metrics["composite_parts"].get("overall_score")
    if parts is None or "overall_score" in metrics["overall"]["scores"]:
        return ""
    return f"no overall_score: of its parts this run has {parts['measured'][0]} alone"


def score_cell(
    score: Mapping[str, Any] | None, *, percent: bool = False, declared: Mapping[str, Any] | None = None
) -> ScoreCell:
    """A score as text: `0.85 [0.82, 0.88]`, `78% of 412`, `coverage 96%`; with a plot where `declared` is passed.

    `score` is None where it applies to no case of the group.
    """
    if score is None:
        return ScoreCell("-", note="skipped")
    if score["mean"] is None:
        return ScoreCell("-", note=_missing_note(score) or "none")
    factor, places = (100.0, 1) if percent else (1.0, 2)
    rate, few = score.get("pass_rate"), has_few_questions(score)
    return ScoreCell(
        decimal(score["mean"] * factor, places),
        bracketed(score["interval"], factor, places),
        f"{rate:.0%} of {whole(score['n_judged'])}" if rate is not None else f"n = {whole(score['n_ok'])}",
        ", ".join(part for part in ("too few" if few else "", _missing_note(score)) if part),
        few,
        _plot(score, declared) if declared else None,
    )


def has_few_questions(score: Mapping[str, Any]) -> bool:
    """Whether a mean is of too few questions for its interval to say much, or to have one."""
    bounds = score["interval"]
    return bool(bounds.get("too_few")) if bounds else score.get("interval_reason") in ("one_value", "one_sample")


def _missing_note(score: Mapping[str, Any]) -> str:
    notes = []
    coverage = score.get("coverage")
    if coverage is not None and coverage < 1:
        notes.append(f"coverage {share_below_one(coverage)}")
    if unjudged := score.get("n_unjudged"):
        notes.append(f"{whole(unjudged)} without a verdict")
    if not score["n_ok"] and score.get("n_skipped"):
        notes.append("skipped")
    if missing := score.get("n_missing"):
        notes.append(f"{missing} missing")
    return ", ".join(notes)


def _plot(score: Mapping[str, Any], declared: Mapping[str, Any]) -> Plot | None:
    low, high = declared["low"], declared["high"]
    if low is None or high is None or high == low:
        return None

    def place(value: float) -> float:
        """The value's place on the axis, 0 to 100."""
        return round(min(1.0, max(0.0, float(value - low) / float(high - low))) * 100, 2)

    bounds, threshold = score["interval"], declared["threshold"]
    return Plot(
        place(score["mean"]),
        place(bounds["low"]) if bounds else None,
        place(bounds["high"]) if bounds else None,
        None if threshold is None else place(threshold),
    )
