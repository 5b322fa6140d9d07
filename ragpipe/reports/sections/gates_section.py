"""The gates: what each of them asks for, what was measured, and its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.reports.model import (
    EVERYWHERE,
    PAGES,
    TERMINAL,
    Media,
    Note,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.reports.number_format import percentage, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.scoring.gates.gate_power import power_words, precision_of, undecided_words
from ragpipe.scoring.gates.gate_sentences import limit, number

_OUTCOMES = ("blocked", "warned")
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
    return Section("gates", "Gates", (Table(columns, tuple(map(_row, gates))), *warnings, *_powers(data)))


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
            "-" if gate["value"] is None else number(gate["value"], gate),
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
