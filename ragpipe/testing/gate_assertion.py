"""Gates as an assertion of a test: what did not pass, with figures and cases, as a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragpipe.comparison.drop_gates import GateCase, worst_cases
from ragpipe.report.page_file import case_name
from ragpipe.report.run_data import Run, load_run
from ragpipe.score.gate_rules import limit, value_text
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_json

VERDICTS = ("inconclusive", "no_evidence", "not_enough_evidence", "uncalibrated")
"""The verdicts that a test may let through. A gate that failed is let through by its name alone."""
_HEADS = ("gate", "tier", "value", "limit", "interval", "verdict")
_CASES = 3


def assert_gates(run: Run | str | Path, *, allow: Collection[str] = ()) -> None:
    """Assert that every gate of a finished run passed.

    Args:
        run: what `ragpipe.run` returned, or the folder of a run (`outputs/x/latest`).
        allow: verdicts that are let through (`inconclusive`, `no_evidence`, `not_enough_evidence`, `uncalibrated`), and names of gates whose
            verdict does not matter.

    Diagnostic gates, and those that do not apply, are not looked at; a gate of the tier `quality` counts as a critical one does.

    Raises AssertionError with a table of the gates that did not pass: value, limit, interval, verdict, the three worst cases, and the
    path of the report; also for a run without gates. ValueError for a word of `allow` that is neither a verdict nor a gate of the
    run. DataError for a folder that is no finished run.
    """
    folder = RunFolder(run.path if isinstance(run, Run) else load_run(run).path)
    gates: list[dict[str, Any]] = read_json(folder.gates)["gates"]
    report = next((page for page in (folder.html, folder.report) if page.is_file()), folder.root)
    if not gates:
        raise AssertionError(f"run {folder.run_id} has no gates, so nothing was asserted: set scoring.gates")
    known = {*VERDICTS, *(gate["name"] for gate in gates)}
    if unknown := [word for word in allow if word not in known]:
        raise ValueError(f"allow: {', '.join(unknown)}: neither a verdict nor a gate; one of {', '.join(sorted(known))}")
    missed = [
        gate for gate in gates if gate["outcome"] in ("blocked", "warned") and not {gate["name"], gate["verdict"]} & {*allow}
    ]
    if missed:
        head = f"{len(missed)} of {len(gates)} gates of run {folder.run_id} did not pass"
        raise AssertionError("\n".join([head, "", *_table(missed, folder), "", f"report: {report}"]))


def _table(gates: Sequence[Mapping[str, Any]], folder: RunFolder) -> list[str]:
    """A line for each gate under a head, each with its worst cases below it."""
    rows = [_HEADS, *(_cells(gate) for gate in gates)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for place, gate in reversed(list(enumerate(gates, 2))):
        if worst := worst_cases(folder, gate, _CASES):
            lines.insert(place, f"    worst: {', '.join(map(_case, worst))}")
    return lines


def _cells(gate: Mapping[str, Any]) -> tuple[str, ...]:
    interval, verdict = gate["interval"], gate["verdict"].replace("_", " ")
    bounds = "-" if interval is None else f"{interval['low']:.3f} to {interval['high']:.3f}"
    why = verdict if gate["value"] is not None else f"{verdict}: {gate['absent']}"
    return gate["name"], gate["tier"], value_text(gate), limit(gate), bounds, why


def _case(case: GateCase) -> str:
    name = case_name(case.sample_id, case.method, case.repeat)
    return name if case.value is None else f"{name} ({case.value:.3g})"
