"""Gates: limits that a run must keep. Measured on each iteration, decided over all of them; plain JSON in and out.

    a gate's definition (`define`)  +  a summary of `metrics.json`  ->  `measure_gate`  ->  `decide_gates`  ->  `gates.json`

Verdicts: `passed`, `failed`; `inconclusive` (the interval contains the limit, or it is not certain enough among several
gates); `not_enough_evidence` (too many judgements did not come out); `no_evidence` (nothing to measure); `not_applicable`
(likewise, where the gate allows it); `uncalibrated` (it did not fail, but the judge is not calibrated against human labels).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ragpipe.core.score import ScoreSpec
from ragpipe.core.version import FORMAT
from ragpipe.score.aggregate import LOST, coverage, due, unit_value
from ragpipe.score.gate_settings import NO_EARLIER_RUN, OPERATIONS, PREFERENCE, Gate
from ragpipe.score.normalisation import TOLERANCE
from ragpipe.stats.difference_verdict import holm

BLOCKED = 3  # the exit code of a run that a critical gate blocks

_COUNTS = ("n_cases", "n_ok", "n_skipped", *LOST, "n_missing")
_NOT_TOGETHER: Mapping[str, Mapping[str, Any]] = {}

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
    level: float = 0.95,
) -> Definition:
    """A gate with everything filled in, as plain JSON: the input of `measure_gate` and `decide_gate`.

    `spec` is that of its score, None when the run does not have it, and `judged` whether cases pass or fail by it; `rests_on`
    are the scores of the run that decide its failure mode. `coverage_floor` (the gate's own takes precedence), `inconclusive`
    and `level` are those of the scoring section. `untrusted`: a judge that is not calibrated decides it.
    """
    of = limited(gate, spec, judged=judged)
    scaled = of == "pass_rate" or gate.is_rate or (spec is not None and spec.low is not None)
    shared = {
        "where": gate.labels(),
        "tier": gate.tier,
        "by": gate.by or ("point" if gate.at_the_end(scaled=scaled) or gate.of in ("p50", "p95") else "interval"),
        "coverage_floor": coverage_floor if gate.coverage_floor is None else gate.coverage_floor,
        "inconclusive": inconclusive,
        "without_cases": gate.without_cases,
        "untrusted": untrusted and gate.tier == "critical",
        "level": level,
    }
    limits: Definition = {"min": gate.min, "max": gate.max}
    if gate.preference_against is not None:
        shared |= {"by": "interval", "untrusted": gate.tier == "critical" and untrusted}
        named = {"preference_against": gate.named_run, "min": gate.win_rate, "max": None}
        return {"name": name, "score": PREFERENCE, "of": "win_rate", **named, **shared}
    if gate.against is not None:
        limits |= {"against": gate.against, **gate.allowed, "accept": list(gate.accept)}
    if gate.score in OPERATIONS:
        limits = {
            "of": "share" if gate.is_rate else gate.of or "mean",
            "unit": OPERATIONS[gate.score],
            "min": None,
            "max": gate.max,
        }
        return {"name": name, "score": gate.score, **limits, **shared}
    if gate.failure_mode is not None:
        return {
            "name": name, "failure_mode": gate.failure_mode, "rests_on": list(rests_on), "of": "share", **limits, **shared
        }  # fmt: skip
    return {"name": name, "score": gate.score, "of": of, **limits, **shared}


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
    if "preference_against" in gate:
        return _nothing(summary, "no judge was asked")
    score = summary["scores"].get(gate["score"])
    if score is None:
        return _nothing(summary, f"this run does not give {gate['score']}")
    counts = {"n_cases": summary["n_cases"], **{name: score.get(name, 0) for name in _COUNTS[1:]}}
    if gate["of"] == "pass_rate":  # a case with a value and no verdict is no case that passed or failed
        counts |= {"n_ok": score.get("n_judged", 0), "n_error": counts["n_error"] + score.get("n_unjudged", 0)}
    value, interval = _value(score, gate["of"], declared[gate["score"]])
    none = _why_none(score) if summary["n_cases"] else "no case is chosen"
    absent = none if value is None else None
    return {"value": value, "interval": interval, **counts, "absent": absent}


def decide_gate(
    gate: Definition,
    measured: Sequence[Mapping[str, Any]],
    together: Mapping[str, Any] | None = None,
    *,
    p_adjusted: float | None = None,
) -> dict[str, Any]:
    """The verdict over the iterations, with the figures behind it.

    `measured` is what each iteration says, `together` what all of them say at once, where a gate is measured so (a baseline,
    labels). `p_adjusted` is its p-value among several gates; None for a single one. `value` is the mean over the iterations that have one, `values` are the single ones, counts are summed. The interval
    is the mean of theirs: it says how the cases vary, which judging the same cases again does not narrow; so is `p_value`.
    `outcome` is what becomes of it: `passed`, `blocked` (critical), `warned` (quality, and inconclusive where that only
    warns) or `reported` (not applicable, and diagnostic whatever the verdict).
    """
    figures = _figures(gate, measured, together) | {"p_adjusted": p_adjusted}
    verdict = _verdict(gate, figures)
    decided = {"verdict": verdict, "outcome": _outcome(gate, verdict)}
    return {**figures, **decided, "sentence": gate_sentence(gate, figures, verdict)}


def decide_gates(
    gates: Sequence[tuple[Definition, Sequence[Mapping[str, Any]]]], together: Mapping[str, Mapping[str, Any]] = _NOT_TOGETHER
) -> list[dict[str, Any]]:
    """All gates of a run with their verdicts: each definition with what its iterations say, as `decide_gate` has it.

    Where several gates can fail by their interval, each must be more certain to fail: by its one-sided p-value, adjusted by
    Holm's method. Of twelve gates on scores that did not change one would else fail in 46 % of runs. Passing is not
    adjusted: a run passes only if all its gates do. `together` is by the name of the gate.
    """
    p_values = [_p_value(gate, _figures(gate, measured, together.get(gate["name"]))) for gate, measured in gates]
    several = sum(p is not None for p in p_values) > 1
    adjusted = holm(p_values) if several else [None] * len(gates)
    return [
        {**gate, **decide_gate(gate, measured, together.get(gate["name"]), p_adjusted=p)}
        for (gate, measured), p in zip(gates, adjusted, strict=True)
    ]


def gates_document(
    per_iteration: Sequence[Mapping[str, Any]], together: Mapping[str, Mapping[str, Any]] = _NOT_TOGETHER
) -> dict[str, Any]:
    """`gates.json` over the `metrics.json` of every iteration of a run, in order. `passed`: no gate blocks.

    `together` is what all iterations say at once, by the name of the gate, where a gate is measured so; where there is only
    one iteration it says the same.
    """
    named: dict[str, list[Mapping[str, Any]]] = {}
    for metrics in per_iteration:
        for entry in metrics.get("gates", ()):
            named.setdefault(entry["name"], []).append(entry)
    definitions = [{key: entries[0][key] for key in _DEFINITION if key in entries[0]} for entries in named.values()]
    gates = decide_gates(list(zip(definitions, named.values(), strict=True)), together)
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
    "name", "score", "failure_mode", "rests_on", "of", "unit", "min", "max", "preference_against", "against", "max_drop", "max_rise", "accept",
    "where", "tier", "by", "coverage_floor", "inconclusive", "without_cases", "untrusted", "level",
)  # fmt: skip


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
    mode, n = gate["failure_mode"], summary["n_cases"]
    mode_counts = summary["failure_modes"].get(mode)
    if mode_counts is None:
        return _nothing(summary, f"no metric of this run gives the scores that decide {mode}")
    scores = [summary["scores"][name] for name in gate["rests_on"] if name in summary["scores"]]
    worst = {key: max((score.get(key, 0) for score in scores), default=0) for key in ("n_error", "n_missing")}
    if "against" not in gate and (mode_counts["n_judged"] or gate["without_cases"] == "fail"):
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
        return "none of its values passes or misses: a score that decides it has an error or is not measured"
    if score["n_ok"]:
        return "none of its values passes or misses: it has no threshold, or depends on scores that were not measured"
    kinds = {"n_skipped": "skipped", "n_error": "errors", "n_missing": "not measured yet"}
    listed = ", ".join(f"{score[key]} {word}" for key, word in kinds.items() if score.get(key))
    reasons = ", ".join(list(score.get("errors") or score.get("skipped", ()))[:3])
    return f"no case has a value: {listed}" + (f" ({reasons})" if reasons else "")


def _figures(gate: Definition, measured: Sequence[Mapping[str, Any]], together: Mapping[str, Any] | None) -> dict[str, Any]:
    """The figures over the iterations; `together` comes first, but for a failure mode that none can decide."""
    known = [iteration for iteration in measured if iteration["value"] is not None]
    values = [iteration["value"] for iteration in known]
    counts = {name: sum(iteration[name] for iteration in measured) for name in _COUNTS}
    p_values = [p for iteration in known if (p := iteration.get("p_value")) is not None]
    figures = {
        "value": math.fsum(values) / len(values) if values else None,
        "values": [iteration["value"] for iteration in measured],
        "interval": _mean_interval([iteration["interval"] for iteration in known]),
        **counts,
        "coverage": coverage(counts),
        "absent": next((iteration["absent"] for iteration in measured if iteration["absent"]), None),
        "p_value": math.fsum(p_values) / len(known) if known and len(p_values) == len(known) else None,
    }
    for name in ("paired", "corrected"):  # of all cases at once: a baseline, the value without labels
        if measured and name in measured[0]:
            figures[name] = measured[-1][name]
    return figures if "failure_mode" in gate and "paired" not in figures else {**figures, **(together or {})}


def _p_value(gate: Definition, figures: Mapping[str, Any]) -> float | None:
    """The p-value with which a gate counts among several; None where it cannot fail by its interval."""
    if gate["by"] != "interval" or gate["tier"] == "diagnostic" or _lacks_evidence(gate, figures):
        return None
    p: float | None = figures["p_value"]
    return p


def _mean_interval(intervals: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    known = [interval for interval in intervals if interval is not None]
    if not known or len(known) < len(intervals):
        return None
    ends = {end: math.fsum(interval[end] for interval in known) / len(known) for end in ("low", "high")}
    return {key: end for interval in known for key, end in interval.items()} | ends  # `too_few` where any of them is


def _lacks_evidence(gate: Definition, figures: Mapping[str, Any]) -> bool:
    """Whether there is no value, or too few judgements behind it to say anything."""
    if figures["value"] is None or figures["n_missing"]:
        return True
    return figures["coverage"] is not None and figures["coverage"] < gate["coverage_floor"] - TOLERANCE


def _verdict(gate: Definition, figures: Mapping[str, Any]) -> str:
    if figures["value"] is None:
        applies = NO_EARLIER_RUN not in (gate.get("against"), gate.get("preference_against")) and (
            due(figures) or figures["n_missing"]
        )
        return "no_evidence" if applies or gate["without_cases"] == "fail" else "not_applicable"
    if _lacks_evidence(gate, figures):
        return "not_enough_evidence"
    verdict = _decided(gate, figures)
    is_uncertain = figures["p_adjusted"] is not None and figures["p_adjusted"] > (1 - gate["level"]) / 2
    if verdict == "failed" and gate["by"] == "interval" and is_uncertain:
        verdict = "inconclusive"
    is_trusted = "corrected" in figures or figures.get("calibrated")
    return "uncalibrated" if gate["untrusted"] and verdict != "failed" and not is_trusted else verdict


def _decided(gate: Definition, figures: Mapping[str, Any]) -> str:
    """The verdict of the gate alone; by interval `passed` and `failed` where all of it is inside or outside."""
    if "against" in gate:
        state: str = figures["paired"]["state"]
        return state
    value, interval = figures["value"], figures["interval"]
    if gate["by"] == "point":
        return "failed" if _is_outside(gate, value, value) else "passed"
    if interval is None:
        return "inconclusive"
    if not _is_outside(gate, interval["high"], interval["low"]):
        return "passed"
    return "failed" if _is_outside(gate, interval["low"], interval["high"]) else "inconclusive"


def _is_outside(gate: Mapping[str, Any], low: float, high: float) -> bool:
    """Whether all from `low` to `high` is beyond a limit of the gate; with the ends exchanged, whether some of it is."""
    under = gate["min"] is not None and high < gate["min"] - TOLERANCE
    return under or (gate["max"] is not None and low > gate["max"] + TOLERANCE)


def _outcome(gate: Definition, verdict: str) -> str:
    if verdict == "passed":
        return "passed"
    if gate["tier"] == "diagnostic" or verdict == "not_applicable":
        return "reported"
    softened = verdict == "inconclusive" and gate["inconclusive"] == "warn"
    return "blocked" if gate["tier"] == "critical" and not softened else "warned"


_NOT_DECIDED = {"few_changed": "fewer than 6 questions changed", "one_sample": "all cases are of one question"}


def gate_sentence(gate: Mapping[str, Any], figures: Mapping[str, Any], verdict: str) -> str:
    """The verdict in words, with the value and the number of cases it is of."""
    words = {
        "pass_rate": "pass rate of ",
        "mean": "mean of ",
        "p50": "p50 of ",
        "p95": "p95 of ",
        "win_rate": "win rate of ",
        "share": "",
        None: "",
    }
    what = f"share of {gate['failure_mode']}" if "failure_mode" in gate else f"{words[gate['of']]}{gate['score']}"
    what += f" against {gate['preference_against']}" if "preference_against" in gate else ""
    subject = what + where_text(gate["where"], " where ")
    if verdict in ("no_evidence", "not_applicable"):
        return f"{subject}: {verdict.replace('_', ' ')}, {figures['absent']}"
    undecided = figures["n_cases"] - figures["n_ok"] if "failure_mode" in gate and "against" not in gate else 0
    if verdict == "not_enough_evidence":
        return f"{subject}: not enough evidence, {_lacking_evidence(gate, figures, undecided)}"
    sentence = f"{subject} {_measurement(gate, figures, undecided)}"
    if verdict == "inconclusive":
        return f"{sentence}: inconclusive, {_why_inconclusive(gate, figures)}"
    if verdict == "uncalibrated":
        return (
            f"{sentence}, but its judge is not calibrated against human labels: it passes no critical gate without labels "
            "(task=label, task=calibrate, task=rescore) or scoring.accept_uncalibrated=true"
        )
    return f"{sentence}: {verdict}"


def _measurement(gate: Mapping[str, Any], figures: Mapping[str, Any], undecided: int) -> str:
    """`is 0.79 over 100 cases (at least 0.8)`, `fell by 0.03 against 1a2b... (0.84 to 0.81, 98 cases on both; at most 0.05)`."""
    value = figures["value"]
    if "against" in gate:
        paired = figures["paired"]
        moved = "did not change" if value == 0 else f"{'fell' if value < 0 else 'rose'} by {number(abs(value), gate)}"
        left_out = f", {paired['only_base']:,} in the baseline only" if paired["only_base"] else ""
        ends = f"{paired['base']:.4g} to {paired['candidate']:.4g}, {paired['n']} cases on both{left_out}"
        return f"{moved} against {gate['against']} ({ends}; {limit(gate)})"
    cases = figures["n_cases" if "failure_mode" in gate else "n_ok"]  # a share is one of all cases, decided or not
    unknown = f", {undecided} of them undecided" if undecided else ""
    text = f"is {number(value, gate)} over {cases:,} {'case' if cases == 1 else 'cases'}{unknown}"
    if corrected := figures.get("corrected"):
        raw = "" if corrected["raw"] is None else f", uncorrected {corrected['raw']:.4g}"
        text += f", corrected by {corrected['labels']} labels{raw}"
    return f"{text} ({limit(gate)})"


def _lacking_evidence(gate: Mapping[str, Any], figures: Mapping[str, Any], undecided: int) -> str:
    if figures["n_missing"]:
        return f"{figures['n_missing']} cases are not measured yet"
    coverage_words = f"(coverage {figures['coverage']:.1%}, floor {gate['coverage_floor']:.0%})"
    if undecided:
        only = f"it can be decided for only {figures['n_ok']} of {figures['n_cases']} cases {coverage_words}"
        return f"{only}; `where` chooses the cases that the gate is about"
    if "unit" in gate:
        return f"only {figures['n_ok']} of {due(figures)} cases record it {coverage_words}"
    return f"only {figures['n_ok']} of {due(figures)} judgements came out {coverage_words}"


def _why_inconclusive(gate: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    interval, p = figures["interval"], figures["p_adjusted"]
    if interval is None:
        reason = figures.get("paired", {}).get("reason")
        return f"{_NOT_DECIDED[reason]}: it has no interval" if reason in _NOT_DECIDED else "it has no interval"
    ends = f"its interval {interval['low']:.4g} to {interval['high']:.4g}"
    if "against" in gate:
        paired = figures["paired"]
        if paired["state"] == "failed":
            return f"{ends} is not certain enough to fail among several gates (p {p:.2g})"
        if paired["reason"] == "judge_moved":
            return (
                f"answers that are the same in {gate['against']} were judged otherwise: the judge moved, judge both runs anew"
            )
        if paired["reason"] == "states_nothing":
            return f"without answers that state nothing {ends} says otherwise"
        if paired["reason"] == "few_changed":
            return f"{_NOT_DECIDED['few_changed']}; {ends}"
        return f"{ends} of the difference says neither"
    if _is_outside(gate, interval["low"], interval["high"]):
        return f"{ends} is not certain enough to fail among several gates (p {p:.2g})"
    return f"{ends} contains the limit"


def where_text(where: Mapping[str, Collection[str]], opening: str = "") -> str:
    """`category = a or b and method = c`, empty for all cases."""
    parts = [f"{field} = {' or '.join(labels)}" for field, labels in where.items()]
    return opening + " and ".join(parts) if parts else ""


def limit(gate: Mapping[str, Any]) -> str:
    """`at least 0.85`, `at most 0`, `at most 2,000 ms`, or both; `drop at most 0.05`, `rise at most 0.02`."""
    if "against" in gate:
        return f"{'rise' if 'failure_mode' in gate else 'drop'} at most {allowed_change(gate):.10g}"
    ends = (("at least", gate["min"]), ("at most", gate["max"]))
    return ", ".join(f"{word} {_with_unit(f'{end:.10g}', gate)}" for word, end in ends if end is not None)


def allowed_change(gate: Mapping[str, Any]) -> float:
    """The drop or rise that a gate against a baseline allows."""
    return float(gate["max_rise" if "failure_mode" in gate else "max_drop"])


def value_text(gate: Mapping[str, Any]) -> str:
    """The value of a gate of `gates.json` as tables show it beside its limit: `0.8712`, `0.7235 corrected` by labels; of a gate against a
    baseline, whose limit is on a drop, `change -0.1438`; `-` where there is none."""
    value = gate["value"]
    if value is None:
        return "-"
    if "against" not in gate:
        return number(value, gate) + (" corrected" if gate.get("corrected") else "")
    return f"change {'' if value == 0 else '-' if value < 0 else '+'}{number(abs(value), gate)}"


def number(value: float, gate: Mapping[str, Any]) -> str:
    """A value with four digits, or with as many as it takes to differ from the gate's limits, and its unit."""
    limits = (gate["min"], gate["max"], gate.get("max_drop"), gate.get("max_rise"))
    ends = [end for end in limits if end is not None and abs(end - value) > TOLERANCE]
    text = next((text for digits in range(4, 18) if float(text := f"{value:.{digits}g}") not in ends), f"{value!r}")
    return _with_unit(text, gate)


def _with_unit(text: str, gate: Mapping[str, Any]) -> str:
    return f"{float(text):,.10g} {gate['unit']}" if gate.get("unit") else text
