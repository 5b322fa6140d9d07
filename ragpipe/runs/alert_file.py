"""The alert file of a run: what its gates and a comparison with an earlier run found, each once per run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragpipe.comparison.drop_gates import GateCase, gate_cases, worst_cases
from ragpipe.comparison.headline import signed_text
from ragpipe.comparison.history import SCORE, ScoreDrop, run_drops
from ragpipe.comparison.settings import CompareSettings
from ragpipe.comparison.side import opened_side
from ragpipe.core.errors import DataError, Problem
from ragpipe.report.console import Console
from ragpipe.report.page_file import case_name
from ragpipe.report.settings import AlertSettings
from ragpipe.runs.manifest import checked_manifest
from ragpipe.runs.run_list import find_named_run, scored_runs
from ragpipe.runs.settings import RunConfig
from ragpipe.store.files import append_lines, read_lines
from ragpipe.store.run_folder import LATEST, HistoryRun, RunFolder
from ragpipe.store.run_tables import read_json

_CASES = 3  # the worst ones, that an alert names


def alert_baseline(config: RunConfig) -> HistoryRun | None:
    """The run that `report.alerts.against` names; None where it names none, or no alert asks for it. To be called before anything is
    asked. Raises DataError for a run that is not there, or is not scored."""
    settings = config.report.alerts
    if settings.file is None or settings.against in (None, LATEST) or "drop" not in settings.kinds:
        return None
    folder = find_named_run(str(settings.against), Path(config.output_dir), name=config.name, key="report.alerts.against")
    if not folder.final.metrics.is_file():
        problem = Problem(
            str(folder.root), "report.alerts.against", "not scored to its end", "a finished run", "start its command again"
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
    own = checked_manifest(run)
    if settings.against in (None, LATEST):  # the newest scored run of the name that was started before this one
        others = scored_runs(run.root.parent, warn=console.warn)
        before = next(
            (
                o
                for o in others
                if o.manifest["run_id"] != own["run_id"] and str(o.manifest["created_at"]) <= str(own["created_at"])
            ),
            None,
        )
    else:
        before = alert_baseline(config)
    if before is None or before.manifest["run_id"] == own["run_id"]:
        return
    against = str(before.manifest["run_id"])
    with opened_side(before.folder, before.manifest) as base, opened_side(run, own) as candidate:
        found = run_drops(base, candidate, CompareSettings())
        for drop in found.drops:
            higher = drop.kind == SCORE and bool(candidate.declared[drop.score]["higher_is_better"])
            worst = gate_cases(candidate.cases, drop.lowest[:_CASES], drop.values)
            yield drop_line(drop, against=against, higher_is_better=higher, worst=worst)
    if found.apart:
        console.say(f"alerts: not compared with run {against}, which measured otherwise: {', '.join(found.apart)}")


_LIMITS = ("min", "max", "max_drop", "max_rise")
_UNMEASURED = ("no_evidence", "not_enough_evidence", "uncalibrated")


def alerted_gates(gates: Sequence[Mapping[str, Any]], kinds: Collection[str]) -> list[Mapping[str, Any]]:
    """The gates of a `gates.json` that are to be told of.

    `kinds` are `failed` (and inconclusive where that blocks), `unmeasured` (no value, too few judgements, or a judge that is not
    calibrated) and `inconclusive` (where it only warns; also a gate that failed on fewer than 5 questions). Gates that passed, do not apply or are diagnostic are never among them.
    """
    return [gate for gate in gates if gate["outcome"] in ("blocked", "warned") and _reason(gate) in kinds]


def _reason(gate: Mapping[str, Any]) -> str:
    if gate["verdict"] in _UNMEASURED:
        return "unmeasured"
    if decided_by_too_few(gate):
        return "inconclusive"
    return "inconclusive" if gate["verdict"] == "inconclusive" and gate["outcome"] == "warned" else "failed"


def decided_by_too_few(gate: Mapping[str, Any]) -> bool:
    """Whether a gate failed on fewer than 5 questions: a mean or a rate of so few says nothing of a day. A limit that allows no
    case at all (`min: 1`, `max: 0`) counts cases, and one is enough."""
    few = gate["interval"] is not None and gate["interval"].get("too_few", False)
    return gate["verdict"] == "failed" and few and gate.get("min") != 1 and gate.get("max") != 0


def gate_line(gate: Mapping[str, Any], worst: Sequence[GateCase]) -> dict[str, Any]:
    """What an alert says of a gate; `worst` are the cases to look at first."""
    interval = gate["interval"]
    return {
        "alert": "gate",
        "what": gate["name"],
        "score": gate.get("score") or gate["failure_mode"],
        "verdict": gate["verdict"],
        "tier": gate["tier"],
        "value": gate["value"],
        "limit": {key: gate[key] for key in _LIMITS if gate.get(key) is not None},
        "interval": interval and [interval["low"], interval["high"]],
        "n": gate["n_cases" if "failure_mode" in gate else "n_ok"],
        "message": gate["sentence"],
        "worst": [{"case": case_name(case.sample_id, case.method, case.repeat), "value": case.value} for case in worst],
    }


def drop_line(drop: ScoreDrop, *, against: str, higher_is_better: bool, worst: Sequence[GateCase]) -> dict[str, Any]:
    """What an alert says of a score that became worse than in the run `against`, or of a failure mode that rose."""
    kind = "the same questions" if drop.samples == "paired" else "other questions"
    ends = f"{signed_text(drop.interval.low)} to {signed_text(drop.interval.high)}"
    return {
        "alert": "drop" if drop.kind == SCORE else "rise",
        "what": drop.score,
        "score": drop.score,
        "verdict": "worse",
        "tier": "quality",
        "value": drop.difference,
        "limit": {"min" if higher_is_better else "max": 0},
        "interval": [drop.interval.low, drop.interval.high],
        "n": drop.n,
        "message": (
            f"{'mean' if drop.kind == SCORE else 'rate'} of {drop.score} changed by {signed_text(drop.difference)} against {against} ({drop.base:.4g} to "
            f"{drop.candidate:.4g}, {kind}, {drop.n} cases; {drop.interval.level:.1%} interval {ends}): worse"
        ),
        "worst": [{"case": case_name(case.sample_id, case.method, case.repeat), "value": case.value} for case in worst],
        "against": against,
        "samples": drop.samples,
    }
