"""The gates of one iteration, measured on its ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.accumulators import Accumulators
from ragpipe.scoring.aggregate import summary
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.estimates import interval_of
from ragpipe.scoring.gates.calibration import rests_on_judge
from ragpipe.scoring.gates.gate_rules import decide_gate, define, measure_gate
from ragpipe.scoring.gates.gate_settings import Gate
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stats.intervals import estimate_rate

_SHOWN_LABELS = 8


def choices(settings: ScoringSettings) -> dict[str, dict[str, list[str]]]:
    """By gate the labels of its `where`: the cases that the ledger must tell apart."""
    return {name: gate.labels() for name, gate in settings.active_gates().items() if gate.where}


def gate_results(
    ledger: Accumulators,
    metrics: Mapping[str, Any],
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
    untrusted: Collection[str],
) -> list[dict[str, Any]]:
    """`gates` of `metrics.json`: each gate's definition with what this iteration says.

    Args:
        ledger: what was accumulated over the cases.
        metrics: what `aggregate` returned.
        specs: the scores of the metrics and the composites.
        settings: the scoring section.
        untrusted: scores of a judge that is not calibrated; they pass no critical gate.
    """
    declared = {spec.name: spec for spec in (*specs, OVERALL)}
    results = []
    for name, gate in settings.active_gates().items():
        spec = declared.get(gate.score or "")
        rests_on = settings.scores_behind(gate.failure_mode or "", declared)
        definition = define(
            name,
            gate,
            spec,
            judged=spec is not None and settings.passes(spec),
            rests_on=rests_on,
            coverage_floor=settings.coverage_floor,
            inconclusive=settings.inconclusive,
            untrusted=rests_on_judge(gate, settings, declared, untrusted),
        )
        needed = [declared[score_name] for score_name in rests_on] if spec is None else [spec]
        chosen = _summary(
            ledger, name, gate, metrics, [score_name for score_name in needed if score_name is not OVERALL], settings
        )
        measured = measure_gate(definition, chosen, metrics["declared"])
        if not measured["n_cases"]:
            measured["absent"] = _no_case(definition["where"], metrics["by"])
        results.append({**definition, **decide_gate(definition, [measured])})
    return results


def _summary(
    ledger: Accumulators,
    name: str,
    gate: Gate,
    metrics: Mapping[str, Any],
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
) -> dict[str, Any]:
    """The summary over the gate's cases; its failure mode gets the interval of its share."""
    places = ledger.chosen[name] if gate.where else np.arange(ledger.n, dtype=np.int64)
    chosen = dict(summary(ledger, places, specs, settings) if gate.where else metrics["overall"])
    truth = ledger.findings.mode(gate.failure_mode) if gate.failure_mode else None
    if truth is None or gate.failure_mode is None:
        return chosen
    rate = estimate_rate((truth[places] == 1).astype(np.float64), ledger.samples[places], level=settings.level)
    mode = {**chosen["failure_modes"][gate.failure_mode], **interval_of("interval", rate)}
    return {**chosen, "failure_modes": {gate.failure_mode: mode}}


def _no_case(where: Mapping[str, Sequence[str]], by: Mapping[str, Mapping[str, Any]]) -> str:
    """That no case is chosen, with what the field at fault really holds."""
    for field, labels in where.items():
        present = list(by.get(field, {}))
        if present and not set(labels) & set(present):
            more = f" and {len(present) - _SHOWN_LABELS} more" if len(present) > _SHOWN_LABELS else ""
            return f"no case has it; {field} is {', '.join(present[:_SHOWN_LABELS])}{more}"
    return "no case has it"
