"""The alert file of a run: what its gates and a comparison with an earlier run found, each once per run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.comparing.drop_gates import GateCase, worst_cases
from ragpipe.comparing.history_rows import HistoryRun
from ragpipe.comparing.run_drops import ScoreDrop, run_drops
from ragpipe.comparing.settings import CompareSettings
from ragpipe.comparing.side import Side, opened_side
from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import DataError, Problem
from ragpipe.engine.runs.manifest import checked_manifest
from ragpipe.engine.runs.run_list import find_named_run, scored_runs
from ragpipe.reports.alert_lines import alerted_gates, decided_by_too_few, drop_line, gate_line
from ragpipe.reports.console import Console
from ragpipe.reports.settings import AlertSettings
from ragpipe.store.files.atomic import append_lines, read_lines
from ragpipe.store.run.run_folder import LATEST, RunFolder
from ragpipe.store.run.run_tables import read_json

_CASES = 3  # the worst ones, that an alert names


def alert_baseline(config: RunConfig) -> HistoryRun | None:
    """The run that `report.alerts.against` names; None where it names none, or no alert asks for it. To be called before anything is
    asked. Raises DataError for a run that is not there, or is not scored."""
    settings = config.report.alerts
    if settings.file is None or settings.against in (None, LATEST) or "drop" not in settings.kinds:
        return None
    folder = find_named_run(
        str(settings.against), Path(config.output_dir), name=config.name, key="report.alerts.against"
    )
    if not folder.final.metrics.is_file():
        problem = Problem(
            str(folder.root),
            "report.alerts.against",
            "not scored to its end",
            "a finished run",
            "start its command again",
        )
        raise DataError("alerts have no baseline", [problem])
    return HistoryRun(folder, checked_manifest(folder))


def write_alerts(run: RunFolder, config: RunConfig, console: Console) -> None:
    """Append the alerts of a scored run to the file that `report.alerts` names, and say how many; nothing without a file.

    An alert that the file has already for this run is not written again. The file is made, empty, where all is well. Raises
    DataError for tables of the run, or of the run that it is compared with, that cannot be read; OutputError.
    """
    settings = config.report.alerts
    if settings.file is None:
        return
    path, manifest = Path(settings.file), checked_manifest(run)
    run_id = str(manifest["run_id"])
    known = {(line.get("alert"), line.get("what")) for line in read_lines(path) if line.get("run_id") == run_id}
    report = next((page for page in (run.html, run.report) if page.is_file()), run.root)
    head = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "run_id": run_id, "name": manifest["name"]}
    found = [*_gate_alerts(run, settings, console), *_drop_alerts(run, config, console)]
    new = [{**head, **alert, "report": str(report)} for alert in found if (alert["alert"], alert["what"]) not in known]
    append_lines(path, new)
    again = f", {len(found) - len(new)} known" if len(found) > len(new) else ""
    console.say(f"alerts: {len(new)} new{again} in {path}" if found else f"alerts: none ({path})")


def _gate_alerts(run: RunFolder, settings: AlertSettings, console: Console) -> Iterator[dict[str, Any]]:
    gates = read_json(run.gates)["gates"]
    few = [f"{gate['name']} ({gate['n_ok']})" for gate in gates if decided_by_too_few(gate)]
    if few and "inconclusive" not in settings.kinds:
        console.say(f"alerts: too few cases to tell, no alert: {', '.join(few)}")
    for gate in alerted_gates(gates, settings.kinds):
        yield gate_line(gate, worst_cases(run, gate, _CASES))


def _drop_alerts(run: RunFolder, config: RunConfig, console: Console) -> Iterator[dict[str, Any]]:
    settings = config.report.alerts
    if "drop" not in settings.kinds:
        return
    before = _run_before(run, console) if settings.against in (None, LATEST) else alert_baseline(config)
    if before is None or before.manifest["run_id"] == checked_manifest(run)["run_id"]:
        return
    against = str(before.manifest["run_id"])
    with opened_side(before.folder, before.manifest) as base, opened_side(run, checked_manifest(run)) as candidate:
        found = run_drops(base, candidate, CompareSettings())
        for drop in found.drops:
            higher = bool(candidate.declared[drop.score]["higher_is_better"])
            worst = _lowest(candidate, drop, _CASES)
            yield drop_line(drop, against=against, higher_is_better=higher, worst=worst)
    if found.apart:
        console.say(f"alerts: not compared with run {against}, which measured otherwise: {', '.join(found.apart)}")


def _run_before(run: RunFolder, console: Console) -> HistoryRun | None:
    """The newest scored run of the same name that was started before this one; None for the first."""
    own = checked_manifest(run)
    runs = scored_runs(run.root.parent, derived=False, warn=console.warn)
    return next((other for other in runs if _is_earlier(other.manifest, own)), None)


def _is_earlier(other: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    return bool(other["run_id"] != own["run_id"] and str(other["created_at"]) <= str(own["created_at"]))


def _lowest(side: Side, drop: ScoreDrop, count: int) -> list[GateCase]:
    places = drop.lowest[:count]
    keys = side.cases.take(pa.array(places, pa.int64())).to_pylist()
    return [
        GateCase(key["sample_id"], key["method"], key["repeat"], float(drop.values[place]))
        for key, place in zip(keys, places, strict=True)
    ]
