"""The first lines of the short result: the verdict of the gates, what was judged by whom, differences from a baseline run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.reports.difference_figures import difference_text
from ragpipe.reports.metrics_view import iteration_count
from ragpipe.reports.number_format import bracketed, plural, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.styled_text import (
    Bad,
    Caution,
    Good,
    Head,
    Line,
    Screen,
    cut_apart,
    joined_line,
    narrowed,
    table_lines,
    wrapped,
)
from ragpipe.scoring.gates.gate_sentences import limit, value_text

_GATES = 3  # gates that are named in the verdict line
_GATE_ROWS = 6  # gates in the table
_WIDE = 80  # columns from which names are not cut short
_NAME = 40  # columns of the name of a gate or a score
_JUDGE = 60  # columns of the name of a judge
_KINDS: dict[type[str], tuple[str, ...]] = {
    Good: ("better", "passed", "best"),
    Bad: ("worse", "failed", "behind"),
    Caution: ("inconclusive", "uncalibrated", "no_evidence", "not_enough_evidence"),
}
VERDICT_STYLES = {word: style for style, words in _KINDS.items() for word in words}
"""The styles of verdicts on gates and differences; others have none."""


def verdict_lines(data: ReportData, screen: Screen) -> list[Line]:
    """Whether the gates block the run and which of them did not pass, then the size of the run and its judge; on one line
    where there are no gates."""
    summary = _summary(data, screen)
    gates = data.gates["gates"]
    if gates:
        lines = [*wrapped(_gates_line(gates, screen), screen.columns), *_gate_table(gates, screen)]
        lines += wrapped(summary, screen.columns)
    else:
        lines = wrapped(("no gates: ", *summary), screen.columns)
    if note := data.metrics["judge"].get("note"):
        lines += wrapped((f"judge: {screen.text(note)}",), screen.columns)
    return lines


def baseline_lines(data: ReportData, screen: Screen) -> Iterator[Line]:
    """What gates against a baseline run say of a score over all cases, where they did not fail: the verdict line has those."""
    for gate in data.gates["gates"]:
        if "against" in gate and not gate["where"] and gate["value"] is not None and gate["outcome"] == "passed":
            paired = {"difference": gate["value"], "interval": _bounds(gate), "n": gate["n_ok"]}
            name, run = screen.text(gate["score"], _NAME), screen.text(gate["against"], _NAME)
            only_base = gate["paired"]["only_base"]
            left_out = f", {whole(only_base)} more there only" if only_base else ""
            cases = plural(paired["n"], "case")
            yield from wrapped(
                (f"{name}: {difference_text(paired)} over {cases} against {run}{left_out}",), screen.columns
            )


def verdict_word(verdict: str) -> str:
    """A verdict in words, with its style."""
    return VERDICT_STYLES.get(verdict, str)(verdict.replace("_", " "))


def _gates_line(gates: Sequence[Mapping[str, Any]], screen: Screen) -> Line:
    """`BLOCKED: 1 of 4 gates failed: reject 0.62 [0.53, 0.70], at least 0.7`."""
    order = ("blocked", "warned", "reported")
    open_gates = [gate for gate in gates if gate["outcome"] in order and gate["verdict"] != "passed"]
    open_gates.sort(key=lambda gate: order.index(gate["outcome"]))
    blocking = sum(gate["outcome"] == "blocked" for gate in open_gates)
    passed = len(gates) - len(open_gates)
    phrases = [_gate_phrase(gate, screen) for gate in open_gates[:_GATES]]
    if (more := len(open_gates) - _GATES) > 0:
        phrases.append((f"and {more} more in the report",))
    if blocking:
        failed = all(gate["verdict"] == "failed" for gate in open_gates[:blocking])
        verb = "failed" if failed else "did not pass"
        lead: Line = (Bad("BLOCKED:"), f" {blocking} of {plural(len(gates), 'gate')} {verb}: ")
    elif any(gate["outcome"] == "warned" for gate in open_gates):
        lead = (Caution("not blocked, with warnings:"), f" {passed} of {plural(len(gates), 'gate')} passed; ")
    else:
        lead = (Good("passed:"), f" {passed} of {plural(len(gates), 'gate')}{'; ' if open_gates else ''}")
    return (*lead, *joined_line(phrases, "; "))


def _gate_table(gates: Sequence[Mapping[str, Any]], screen: Screen) -> list[Line]:
    """A row per gate, at most six, those that did not pass first where there are more; a narrow screen has fewer columns."""
    chosen = list(gates)
    if len(gates) > _GATE_ROWS:
        chosen = sorted(gates, key=lambda gate: gate["verdict"] == "passed")[:_GATE_ROWS]
    heads = ["gate", "tier", "value", "limit", "cases", "verdict"]
    width = _NAME // 2 if screen.columns < _WIDE else _NAME
    names = cut_apart([screen.text(gate["name"]) for gate in chosen], width)
    rows = [
        [
            name,
            gate["tier"],
            value_text(gate),
            limit(gate),
            whole(gate["n_ok"]),
            verdict_word(gate["verdict"]),
        ]
        for name, gate in zip(names, chosen, strict=True)
    ]
    heads, *rows = narrowed([heads, *rows], ("cases", "tier", "value", "limit"), screen.columns)
    return table_lines([[Head(head) for head in heads], *rows], left=[0, *_left(heads)])


def _left(heads: Sequence[str]) -> list[int]:
    return [place for place, head in enumerate(heads) if head in ("tier", "limit", "verdict")]


def _gate_phrase(gate: Mapping[str, Any], screen: Screen) -> Line:
    """`reject 0.62 [0.53, 0.70], at least 0.7`; a verdict other than `failed` stands behind it."""
    parts = [screen.text(gate["name"], _NAME)]
    if gate["value"] is not None:
        parts += [value_text(gate), bracketed(gate["interval"])]
    run = f" against {screen.text(gate['against'], _NAME)}" if "against" in gate else ""
    text = f"{' '.join(filter(None, parts))}, {limit(gate)}{run}"
    note = "" if gate["outcome"] == "blocked" else f", {gate['tier']}"
    if gate["verdict"] == "failed":
        return (f"{text} ({gate['tier']})" if note else text,)
    return (f"{text} (", verdict_word(gate["verdict"]), f"{note})")


def _bounds(gate: Mapping[str, Any]) -> dict[str, Any] | None:
    return {"too_few": False, **gate["interval"]} if gate["interval"] else None


def _summary(data: ReportData, screen: Screen) -> Line:
    """`3 methods, 101 cases, 40 questions; judge evidence-v1 (uncalibrated)`."""
    metrics = data.metrics
    methods, iterations = len(metrics["by"].get("method") or {}), iteration_count(metrics)
    parts = [f"{methods} methods"] if methods > 1 else []
    parts += [plural(metrics["n_cases"], "case"), plural(metrics["n_samples"], "question")]
    parts += [f"{whole(iterations)} iterations"] if iterations > 1 else []
    if not data.cost["used"]["uses"]:
        return (f"{', '.join(parts)}; no judge",)
    judge = screen.text(metrics["judge"]["label"], _JUDGE)
    return (f"{', '.join(parts)}; judge {judge}", *_calibration(metrics))


def _calibration(metrics: Mapping[str, Any]) -> Line:
    """What is known of the judge by human labels."""
    states = [state["calibrated"] for state in metrics.get("calibration", {}).values()]
    if metrics["judge"]["calibrated"]:
        return ()
    if False in states:
        return (" (", Bad("failed its calibration"), ")")
    return (" (partly calibrated)",) if True in states else (" (uncalibrated)",)
