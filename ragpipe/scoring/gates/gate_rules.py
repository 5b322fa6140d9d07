"""Gates: limits that a run must keep. Measured on each iteration, decided over all of them; plain JSON in and out.

    a gate's definition (`define`)  +  a summary of `metrics.json`  ->  `measure_gate`  ->  `decide_gate`  ->  `gates.json`

Verdicts: `passed`, `failed`; `inconclusive` (the interval contains the limit); `not_enough_evidence` (too many judgements
did not come out); `no_evidence` (nothing to measure); `not_applicable` (likewise, where the gate allows it);
`uncalibrated` (it did not fail, but the judge is not calibrated against human labels).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.coverage import LOST, coverage, due
from ragpipe.scoring.gates.gate_settings import Gate
from ragpipe.scoring.normalisation import TOLERANCE
from ragpipe.scoring.score_declarations import unit_value

BLOCKED = 3  # the exit code of a run that a critical gate blocks

_COUNTS = ("n_cases", "n_ok", "n_skipped", *LOST, "n_missing")

Definition = dict[str, Any]
Measured = dict[str, Any]


def define(
    name: str,
    gate: Gate,
    spec: ScoreSpec | None,
    *,
    judged: bool,
    rests_on: Sequence[str],
    coverage_floor: float,
    inconclusive: str,
    untrusted: bool,
) -> Definition:
    """A gate with everything filled in, as plain JSON: the input of `measure_gate` and `decide_gate`.

    Args:
        name: the gate's name.
        gate: its settings.
        spec: the spec of its score; None when the run does not have it.
        judged: whether cases pass or fail by the score.
        rests_on: the scores of the run that decide its failure mode.
        coverage_floor: that of the scoring section; the gate's own takes precedence.
        inconclusive: that of the scoring section.
        untrusted: whether a judge that is not calibrated decides it.
    """
    of = limited(gate, spec, judged=judged)
    scaled = of == "pass_rate" or (spec is not None and spec.low is not None)
    shared = {
        "where": gate.labels(),
        "tier": gate.tier,
        "by": gate.by or ("point" if gate.at_the_end(scaled=scaled) else "interval"),
        "coverage_floor": coverage_floor if gate.coverage_floor is None else gate.coverage_floor,
        "inconclusive": inconclusive,
        "without_cases": gate.without_cases,
        "untrusted": untrusted and gate.tier == "critical",
    }
    if gate.failure_mode is not None:
        limits = {"of": "share", "min": None, "max": gate.max_rate}
        return {"name": name, "failure_mode": gate.failure_mode, "rests_on": list(rests_on), **limits, **shared}
    return {"name": name, "score": gate.score, "of": of, "min": gate.min, "max": gate.max, **shared}


def limited(gate: Gate, spec: ScoreSpec | None, *, judged: bool) -> str | None:
    """What the gate limits, its `of`; by default as its score is. None where the run does not have the score."""
    if gate.of is not None or spec is None:
        return gate.of
    # the mean `score` of a 0/1 score without a threshold is the share of its good value
    return "pass_rate" if spec.binary and judged else "mean"


def measure_gate(gate: Definition, summary: Mapping[str, Any], declared: Mapping[str, Mapping[str, Any]]) -> Measured:
    """What one iteration says: value and interval on 0 (worst) to 1 (best), or in the native scale for a count, and counts.

    `summary` is one of `metrics.json` (`overall`, or a group of `by`) over the cases that the gate is about, `declared` is
    what that file says of the scores' scales. A value of None has its reason in `absent`.
    """
    if "failure_mode" in gate:
        return _of_mode(gate, summary)
    score = summary["scores"].get(gate["score"])
    if score is None:
        return _nothing(summary, f"this run does not give {gate['score']}")
    counts = {"n_cases": summary["n_cases"], **{name: score.get(name, 0) for name in _COUNTS[1:]}}
    if gate["of"] == "pass_rate":  # a case with a value and no verdict is no case that passed or failed
        counts |= {"n_ok": score.get("n_judged", 0), "n_error": counts["n_error"] + score.get("n_unjudged", 0)}
    value, interval = _value(score, gate["of"], declared[gate["score"]])
    absent = None
    if value is None:
        absent = "no case is chosen" if not summary["n_cases"] else _why_none(score)
    return {"value": value, "interval": interval, **counts, "absent": absent}


def decide_gate(gate: Definition, measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The verdict over the iterations, with the figures behind it.

    `value` is the mean over the iterations that have one, `values` are the single ones, counts are summed. The interval
    is the mean of theirs: it says how the cases vary, which judging the same cases again does not narrow. `outcome` is
    what becomes of it: `passed`, `blocked` (critical), `warned` (quality, and inconclusive where that only warns) or
    `reported` (not applicable, and diagnostic whatever the verdict).
    """
    values = [iteration["value"] for iteration in measured if iteration["value"] is not None]
    counts = {name: sum(iteration[name] for iteration in measured) for name in _COUNTS}
    figures = {
        "value": math.fsum(values) / len(values) if values else None,
        "values": [iteration["value"] for iteration in measured],
        "interval": _mean_interval([iteration["interval"] for iteration in measured if iteration["value"] is not None]),
        **counts,
        "coverage": coverage(counts),
        "absent": next((iteration["absent"] for iteration in measured if iteration["absent"]), None),
    }
    verdict = _verdict(gate, figures)
    return {
        **figures,
        "verdict": verdict,
        "outcome": _outcome(gate, verdict),
        "sentence": _sentence(gate, figures, verdict),
    }


def gates_document(per_iteration: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`gates.json` over the `metrics.json` of every iteration of a run, in order. `passed`: no gate blocks."""
    named: dict[str, list[Mapping[str, Any]]] = {}
    for metrics in per_iteration:
        for entry in metrics.get("gates", ()):
            named.setdefault(entry["name"], []).append(entry)
    gates = []
    for entries in named.values():
        definition = {key: entries[0][key] for key in _DEFINITION if key in entries[0]}
        gates.append({**definition, **decide_gate(definition, entries)})
    return {
        "format": FORMAT,
        "signature": per_iteration[-1]["signature"] if per_iteration else None,
        "iterations": len(per_iteration),
        "passed": not any(gate["outcome"] == "blocked" for gate in gates),
        "gates": gates,
    }


def exit_code(document: Mapping[str, Any]) -> int:
    """3 when a gate of this `gates.json` blocks, else 0."""
    return 0 if document["passed"] else BLOCKED


_DEFINITION = (
    "name",
    "score",
    "failure_mode",
    "rests_on",
    "of",
    "min",
    "max",
    "where",
    "tier",
    "by",
    "coverage_floor",
    "inconclusive",
    "without_cases",
    "untrusted",
)


def _value(score: Mapping[str, Any], of: str, scale: Mapping[str, Any]) -> tuple[float | None, dict[str, Any] | None]:
    """Value and interval of a summary's score: its pass rate, the mean of its `score`, or of its values for a count."""
    if of == "pass_rate":
        return score.get("pass_rate"), score.get("pass_interval")
    mean, bounds = unit_value(score["mean"], scale), score["interval"]
    if mean is None:
        return score["mean"], bounds
    if bounds is not None:
        low, high = sorted(unit_value(bounds[end], scale) or 0.0 for end in ("low", "high"))
        bounds = {**bounds, "low": low, "high": high}
    return mean, bounds


def _of_mode(gate: Definition, summary: Mapping[str, Any]) -> Measured:
    """The share of cases that have the failure mode. `n_ok` are the cases for which its rule could be decided, `n_error`
    the others, or the failed judgements of the worst covered score behind it where they are more: what is not
    known may hide the mode."""
    mode, n = gate["failure_mode"], summary["n_cases"]
    mode_counts = summary["failure_modes"].get(mode)
    if mode_counts is None:
        return _nothing(summary, f"no metric of this run gives the scores that decide {mode}")
    scores = [summary["scores"][name] for name in gate["rests_on"] if name in summary["scores"]]
    worst = {key: max((score.get(key, 0) for score in scores), default=0) for key in ("n_error", "n_missing")}
    worst["n_error"] = max(worst["n_error"], n - mode_counts["n_judged"])
    counts = {**dict.fromkeys(_COUNTS, 0), "n_cases": n, "n_ok": mode_counts["n_judged"], **worst}
    if not mode_counts["n_judged"]:
        return {"value": None, "interval": None, **counts, "absent": "its rule could be decided for no case"}
    return {"value": mode_counts["n"] / n, "interval": mode_counts.get("interval"), **counts, "absent": None}


def _nothing(summary: Mapping[str, Any], why: str) -> Measured:
    counts = {"n_cases": summary["n_cases"], **dict.fromkeys(_COUNTS[1:], 0)}
    return {"value": None, "interval": None, **counts, "absent": why}


def _why_none(score: Mapping[str, Any]) -> str:
    if score.get("n_unjudged"):
        return "none of its values was judged passed or failed: a score that decides it failed or is not measured"
    if score["n_ok"]:
        return "none of its values was judged passed or failed: it has no threshold, or passes with scores that are not there"
    kinds = {"n_skipped": "skipped", "n_error": "errors", "n_missing": "not measured yet"}
    listed = ", ".join(f"{score[key]} {word}" for key, word in kinds.items() if score.get(key))
    reasons = ", ".join(list(score.get("errors") or score.get("skipped", ()))[:3])
    return f"no case has a value: {listed}" + (f" ({reasons})" if reasons else "")


def _mean_interval(intervals: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    known = [interval for interval in intervals if interval is not None]
    if not known or len(known) < len(intervals):
        return None
    ends = {end: math.fsum(interval[end] for interval in known) / len(known) for end in ("low", "high")}
    return {key: end for interval in known for key, end in interval.items()} | ends  # `too_few` where any of them is


def _verdict(gate: Definition, figures: Mapping[str, Any]) -> str:
    if figures["value"] is None:
        applies = due(figures) or figures["n_missing"]
        return "no_evidence" if applies or gate["without_cases"] == "fail" else "not_applicable"
    if figures["n_missing"] or (
        figures["coverage"] is not None and figures["coverage"] < gate["coverage_floor"] - TOLERANCE
    ):
        return "not_enough_evidence"
    verdict = _by_interval(gate, figures["interval"]) if gate["by"] == "interval" else _by_point(gate, figures["value"])
    return "uncalibrated" if gate["untrusted"] and verdict != "failed" else verdict


def _by_point(gate: Definition, value: float) -> str:
    under = gate["min"] is not None and value < gate["min"] - TOLERANCE
    over = gate["max"] is not None and value > gate["max"] + TOLERANCE
    return "failed" if under or over else "passed"


def _by_interval(gate: Definition, interval: Mapping[str, Any] | None) -> str:
    """`passed` or `failed` only when every value of the interval would be."""
    if interval is None:
        return "inconclusive"
    ends = {_by_point(gate, interval[end]) for end in ("low", "high")}
    outside = (gate["min"] is not None and interval["high"] < gate["min"] - TOLERANCE) or (
        gate["max"] is not None and interval["low"] > gate["max"] + TOLERANCE
    )
    return "failed" if outside else "passed" if ends == {"passed"} else "inconclusive"


def _outcome(gate: Definition, verdict: str) -> str:
    if verdict == "passed":
        return "passed"
    if gate["tier"] == "diagnostic" or verdict == "not_applicable":
        return "reported"
    softened = verdict == "inconclusive" and gate["inconclusive"] == "warn"
    return "blocked" if gate["tier"] == "critical" and not softened else "warned"


def _sentence(gate: Definition, figures: Mapping[str, Any], verdict: str) -> str:
    """The verdict in words, with the value and the number of cases it is of."""
    subject = _what(gate) + where_text(gate["where"], " where ")
    if verdict in ("no_evidence", "not_applicable"):
        return f"{subject}: {verdict.replace('_', ' ')}, {figures['absent']}"
    undecided = figures["n_cases"] - figures["n_ok"] if "failure_mode" in gate else 0
    if verdict == "not_enough_evidence":
        return f"{subject}: not enough evidence, {_lacking_evidence(gate, figures, undecided)}"
    cases = figures["n_cases" if "failure_mode" in gate else "n_ok"]  # a share is one of all cases, decided or not
    unknown = f", {undecided} of them undecided" if undecided else ""
    sentence = f"{subject} is {number(figures['value'], gate)} of {cases}{unknown} ({limit(gate)})"
    if verdict == "inconclusive":
        return f"{sentence}: inconclusive, {_interval_words(figures['interval'])}"
    if verdict == "uncalibrated":
        return (
            f"{sentence}, but its judge is not calibrated against human labels: it passes no critical gate unless "
            "scoring.accept_uncalibrated=true"
        )
    return f"{sentence}: {verdict}"


def _lacking_evidence(gate: Definition, figures: Mapping[str, Any], undecided: int) -> str:
    if figures["n_missing"]:
        return f"{figures['n_missing']} cases are not measured yet"
    coverage_words = f"(coverage {figures['coverage']:.1%}, floor {gate['coverage_floor']:.0%})"
    if undecided:
        return (
            f"it can be decided for only {figures['n_ok']} of {figures['n_cases']} cases {coverage_words}; `where` chooses the "
            "cases that the gate is about"
        )
    return f"only {figures['n_ok']} of {due(figures)} judgements came out {coverage_words}"


def _interval_words(interval: Mapping[str, Any] | None) -> str:
    if interval is None:
        return "it has no interval"
    return f"its interval {interval['low']:.4g} to {interval['high']:.4g} contains the limit"


def _what(gate: Definition) -> str:
    if "failure_mode" in gate:
        return f"share of {gate['failure_mode']}"
    words = {"pass_rate": "pass rate of ", "mean": "mean of ", None: ""}
    return f"{words[gate['of']]}{gate['score']}"


def where_text(where: Mapping[str, Collection[str]], opening: str = "") -> str:
    """`category = a or b and method = c`, empty for all cases."""
    parts = [f"{field} = {' or '.join(labels)}" for field, labels in where.items()]
    return opening + " and ".join(parts) if parts else ""


def limit(gate: Mapping[str, Any]) -> str:
    """`at least 0.85`, `at most 0`, or both."""
    ends = (("at least", gate["min"]), ("at most", gate["max"]))
    return ", ".join(f"{word} {end:.10g}" for word, end in ends if end is not None)


def number(value: float, gate: Mapping[str, Any]) -> str:
    """A value with four digits, or with as many as it takes to differ from the gate's limits."""
    ends = [end for end in (gate["min"], gate["max"]) if end is not None and abs(end - value) > TOLERANCE]
    return next((text for digits in range(4, 18) if float(text := f"{value:.{digits}g}") not in ends), f"{value!r}")
