"""What a gate asks for and what became of it, in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ragpipe.scoring.coverage import due
from ragpipe.scoring.normalisation import TOLERANCE

Definition = Mapping[str, Any]

_NOT_DECIDED = {
    "few_changed": "fewer than 6 questions changed",
    "one_sample": "all cases are of one question",
}


def gate_sentence(gate: Definition, figures: Mapping[str, Any], verdict: str) -> str:
    """The verdict in words, with the value and the number of cases it is of."""
    subject = _what(gate) + where_text(gate["where"], " where ")
    if verdict in ("no_evidence", "not_applicable"):
        return f"{subject}: {verdict.replace('_', ' ')}, {figures['absent']}"
    undecided = figures["n_cases"] - figures["n_ok"] if "failure_mode" in gate else 0
    if verdict == "not_enough_evidence":
        return f"{subject}: not enough evidence, {_lacking_evidence(gate, figures, undecided)}"
    sentence = f"{subject} {_measurement(gate, figures, undecided)}"
    if verdict == "inconclusive":
        return f"{sentence}: inconclusive, {_why_inconclusive(gate, figures)}"
    if verdict == "uncalibrated":
        return (
            f"{sentence}, but its judge is not calibrated against human labels: it passes no critical gate without labels "
            "(task=label, task=calibrate, scoring.calibration=PATH) or scoring.accept_uncalibrated=true"
        )
    return f"{sentence}: {verdict}"


def _measurement(gate: Definition, figures: Mapping[str, Any], undecided: int) -> str:
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


def _why_inconclusive(gate: Definition, figures: Mapping[str, Any]) -> str:
    interval, p = figures["interval"], figures["p_adjusted"]
    if interval is None:
        reason = figures.get("paired", {}).get("reason")
        return f"{_NOT_DECIDED[reason]}: it has no interval" if reason in _NOT_DECIDED else "it has no interval"
    ends = f"its interval {interval['low']:.4g} to {interval['high']:.4g}"
    if "against" in gate:
        paired = figures["paired"]
        if paired["reason"] == "before_first_look":
            return f"{paired['look']['n']} cases are less than a quarter of the {gate['planned']} planned: nothing is decided yet"
        if paired["state"] == "failed":
            return f"{ends} is not certain enough to fail among several gates (p {p:.2g})"
        if paired["reason"] == "few_changed":
            return f"{_NOT_DECIDED['few_changed']}; {ends}"
        at_look = (
            f" at this look ({paired['look']['n']} of {gate['planned']} planned cases)" if "planned" in gate else ""
        )
        return f"{ends} of the difference says neither{at_look}"
    outside = (gate["min"] is not None and interval["high"] < gate["min"] - TOLERANCE) or (
        gate["max"] is not None and interval["low"] > gate["max"] + TOLERANCE
    )
    if outside:
        return f"{ends} is not certain enough to fail among several gates (p {p:.2g})"
    return f"{ends} contains the limit"


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
    """`at least 0.85`, `at most 0`, or both; `drop at most 0.05`."""
    if "against" in gate:
        return f"drop at most {gate['max_drop']:.10g}"
    ends = (("at least", gate["min"]), ("at most", gate["max"]))
    return ", ".join(f"{word} {end:.10g}" for word, end in ends if end is not None)


def value_text(gate: Mapping[str, Any]) -> str:
    """The value of a gate of `gates.json` as tables show it beside its limit: `0.8712`; of a gate against a baseline, whose limit is on a
    drop, `change -0.1438`; `-` where there is none."""
    value = gate["value"]
    if value is None:
        return "-"
    if "against" not in gate:
        return number(value, gate)
    return f"change {'' if value == 0 else '-' if value < 0 else '+'}{number(abs(value), gate)}"


def number(value: float, gate: Mapping[str, Any]) -> str:
    """A value with four digits, or with as many as it takes to differ from the gate's limits."""
    limits = (gate["min"], gate["max"], gate.get("max_drop"))
    ends = [end for end in limits if end is not None and abs(end - value) > TOLERANCE]
    return next((text for digits in range(4, 18) if float(text := f"{value:.{digits}g}") not in ends), f"{value!r}")
