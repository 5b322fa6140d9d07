"""The gates on the terminal and in `report.md`: one line each, and in words what did not pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.reports.number_format import whole
from ragpipe.reports.text_escape import code, table
from ragpipe.scoring.gates.gate_rules import limit, number

HEADS = ("gate", "tier", "value", "limit", "cases", "verdict")


def gate_rows(gates: Mapping[str, Any]) -> list[list[str]]:
    """A row for each gate of gates.json under HEADS, in the order of the configuration."""
    return [
        [
            gate["name"],
            gate["tier"],
            "-" if gate["value"] is None else number(gate["value"], gate),
            limit(gate),
            whole(gate["n_ok"]),
            gate["verdict"].replace("_", " "),
        ]
        for gate in gates["gates"]
    ]


def gate_notes(gates: Mapping[str, Any]) -> list[str]:
    """In words what did not pass, those that block first."""
    ranked = sorted(
        gates["gates"], key=lambda gate: ("blocked", "warned").index(gate["outcome"]) if _counts(gate) else 2
    )
    return [
        f"gate {gate['name']} ({gate['tier']}, {gate['outcome']}): {gate['sentence']}"
        for gate in ranked
        if _counts(gate)
    ]


def gates_section(gates: Mapping[str, Any]) -> list[str]:
    """The section of `report.md`; nothing where there are no gates."""
    if not gates["gates"]:
        return []
    blocked = [gate["name"] for gate in gates["gates"] if gate["outcome"] == "blocked"]
    said = f"**Blocked** by {', '.join(map(code, blocked))}." if blocked else "Not blocked."
    lines: list[Sequence[str]] = [[code(row[0]), *row[1:]] for row in gate_rows(gates)]
    notes = [line for note in gate_notes(gates) for line in ("", f"- {code(note, 600)}")]
    return ["## Gates", "", said, "", *table(HEADS, lines), *notes]


def _counts(gate: Mapping[str, Any]) -> bool:
    return gate["outcome"] in ("blocked", "warned")
