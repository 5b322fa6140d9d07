"""The gates: what each of them asks for, what was measured, and its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.pages.charts import axis_limit
from ragpipe.pages.charts_rows import LimitRow, Marks, limit_table
from ragpipe.pages.page_address import page_address
from ragpipe.reports.model import (
    EVERYWHERE,
    PAGES,
    TERMINAL,
    Chart,
    Media,
    Note,
    Section,
    SectionPart,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.reports.number_format import percentage, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.scoring.gates.gate_power import power_words, precision_of, undecided_words
from ragpipe.scoring.gates.gate_sentences import limit, value_text, where_text

_OUTCOMES = ("blocked", "warned")
_RANKS = {"blocked": 0, "warned": 1, "passed": 2, "reported": 3}
_COLUMNS: tuple[tuple[str, bool, Media], ...] = (
    ("gate", True, EVERYWHERE),
    ("tier", True, EVERYWHERE),
    ("value", False, EVERYWHERE),
    ("limit", True, EVERYWHERE),
    ("cases", False, EVERYWHERE),
    ("coverage", False, PAGES),
    ("verdict", True, EVERYWHERE),
    ("outcome", True, PAGES),
    ("in words", True, PAGES),
)


def gates_section(data: ReportData) -> Section | None:
    """A row per gate in the order of the configuration; the terminal warns of those that did not pass."""
    gates = data.gates["gates"]
    if not gates:
        return None
    columns = tuple(TableColumn(head, is_text, shown_in) for head, is_text, shown_in in _COLUMNS)
    failed = sorted(
        (gate for gate in gates if gate["outcome"] in _OUTCOMES), key=lambda gate: _OUTCOMES.index(gate["outcome"])
    )
    warnings = (Note(_warning(gate), "warning", TERMINAL) for gate in failed)
    chart = Chart("", limit_table([_limit_row(gate, data) for gate in sorted(gates, key=_rank)], "gates"))
    parts: tuple[SectionPart, ...] = (chart, Table(columns, tuple(map(_row, gates))), *warnings, *_powers(data))
    return Section("gates", "Gates", parts, folded=True)


def _limit_sign(gate: Mapping[str, Any]) -> str:
    """The limit in short: `≥ 0.7`; a drop in words."""
    return limit(gate).replace("at least ", "≥ ").replace("at most ", "≤ ")


def _rank(gate: Mapping[str, Any]) -> int:
    """What blocks stands first, then what warns, what passed, and what is only shown."""
    return _RANKS.get(gate["outcome"], len(_RANKS))


def _limit_row(gate: Mapping[str, Any], data: ReportData) -> LimitRow:
    verdict, outcome = gate["verdict"].replace("_", " "), gate["outcome"]
    kind = {"blocked": "bad", "warned": "warn", "passed": "good"}.get(outcome, "")
    state = verdict if outcome == "passed" else f"{verdict}, {outcome}"
    value = value_text(gate)
    remark = where_text(gate["where"], "where ") if gate["where"] else ""
    subject = gate.get("score") or gate.get("failure_mode") or ""
    tier = "" if gate["tier"] == "critical" else gate["tier"]
    words = ", ".join(part for part in (subject if subject != gate["name"] else "", remark, tier) if part)
    return LimitRow(gate["name"], _failing(gate, data), words, value, _limit_sign(gate), _gate_marks(gate), kind, state)


def _failing(gate: Mapping[str, Any], data: ReportData) -> str:
    """The address of the cases that fail the gate's score, or that have its failure mode, as far as a filter can say `where`."""
    where = {field: labels[0] for field, labels in gate["where"].items() if len(labels) == 1}
    method = where.pop("method", None)
    slices = [f"{field}:{label}" for field, label in where.items() if field in data.metrics["by"]]
    chosen = slices[0] if slices else None
    if "failure_mode" in gate:
        return page_address(method=method, slice=chosen, mode=gate["failure_mode"])
    return page_address(method=method, score=gate["score"], verdict="fail", slice=chosen)


def _gate_marks(gate: Mapping[str, Any]) -> Marks | None:
    """The value, its interval and the limits from 0 to 1, or where one of them lies outside, as far as they reach."""
    if gate["value"] is None:
        return None
    bounds = gate.get("interval") or {}
    few = bool(bounds.get("too_few"))
    ends = [None, None] if few else [bounds.get("low"), bounds.get("high")]
    limits = [end for end in (gate.get("min"), gate.get("max")) if end is not None]
    limits += [-gate["max_drop"]] if "against" in gate else []
    values = [value for value in (gate["value"], *ends, *limits) if value is not None]
    low, high = min(0.0, *values), max(*values, 0.0 if "against" in gate else 1.0 if max(values) <= 1 else max(values))
    if low < 0:
        reach = axis_limit(values)
        low, high = -reach, reach

    def place(value: float | None) -> float | None:
        return None if value is None else 100 * (value - low) / ((high - low) or 1.0)

    return Marks(
        place(gate["value"]),
        place(ends[0]),
        place(ends[1]),
        tuple(100 * (end - low) / ((high - low) or 1.0) for end in limits),
        few,
    )


def _powers(data: ReportData) -> Iterator[Note]:
    """What each gate can tell with these cases; the terminal says it of those that could not decide."""
    level = data.metrics["scoring"]["level"]
    for gate in data.gates["gates"]:
        precision = precision_of(gate, level)
        if precision is None:
            continue
        if undecided := undecided_words(gate, precision, level):
            yield Note(("gate ", Verbatim(gate["name"]), f": {undecided}."))
        words = power_words(gate, precision, level)
        if words and words != undecided:
            yield Note(("gate ", Verbatim(gate["name"]), f": {words}."), shown_in=PAGES)


def _row(gate: Mapping[str, Any]) -> TableRow:
    return TableRow(
        (
            Verbatim(gate["name"]),
            gate["tier"],
            value_text(gate),
            limit(gate),
            whole(gate["n_ok"]),
            percentage(gate["coverage"]),
            gate["verdict"].replace("_", " "),
            gate["outcome"],
            Verbatim(gate["sentence"]),
        )
    )


def _warning(gate: Mapping[str, Any]) -> Verbatim:
    return Verbatim(f"gate {gate['name']} ({gate['tier']}, {gate['outcome']}): {gate['sentence']}")
