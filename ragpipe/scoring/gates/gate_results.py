"""The gates of one iteration, measured on its ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.accumulators import Accumulators
from ragpipe.scoring.aggregate import summary
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.estimates import interval_of
from ragpipe.scoring.gates.calibration import rests_on_judge
from ragpipe.scoring.gates.gate_rules import decide_gates, define, measure_gate
from ragpipe.scoring.gates.gate_settings import Gate
from ragpipe.scoring.scored_columns import OK
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stats.intervals import estimate_rate
from ragpipe.stats.limit_tests import p_below

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
    together: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """`gates` of `metrics.json`: each gate's definition with what this iteration says.

    Args:
        ledger: what was accumulated over the cases.
        metrics: what `aggregate` returned.
        specs: the scores of the metrics and the composites.
        settings: the scoring section.
        untrusted: scores of a judge that is not calibrated; they pass no critical gate.
        together: by gate what is measured beside a baseline or with labels; it comes before the figures of the cases alone.
    """
    declared = {spec.name: spec for spec in (*specs, OVERALL)}
    gates = []
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
            level=settings.level,
        )
        needed = [declared[score_name] for score_name in rests_on] if spec is None else [spec]
        chosen = _summary(
            ledger, name, gate, metrics, [score_name for score_name in needed if score_name is not OVERALL], settings
        )
        measured = measure_gate(definition, chosen, metrics["declared"])
        if not measured["n_cases"]:
            measured["absent"] = _no_case(definition["where"], metrics["by"])
        else:
            measured |= {"p_value": _p_value(ledger, definition, spec), **together.get(name, {})}
            if gate.against is not None and name not in together and spec is not None:
                measured |= {"value": None, "interval": None, "absent": f"run {gate.against} is not there"}
        gates.append((definition, [measured]))
    return decide_gates(gates)


def _places(ledger: Accumulators, gate: Mapping[str, Any]) -> NDArray[np.int64]:
    return ledger.chosen[gate["name"]] if gate["where"] else np.arange(ledger.n, dtype=np.int64)


def _p_value(ledger: Accumulators, gate: Mapping[str, Any], spec: ScoreSpec | None) -> float | None:
    """How improbable figures so far beyond the limit are if the true ones were at it, one-sided; of two limits the nearer one.

    None where no interval can say that a limit is broken.
    """
    places = _places(ledger, gate)
    scale: tuple[float | None, float | None] = (0.0, 1.0)
    if "failure_mode" in gate:
        truth = ledger.findings.mode(gate["failure_mode"])
        if truth is None:
            return None
        values, binary = (truth[places] == 1).astype(np.float64), True
    elif spec is None or "against" in gate:
        return None
    else:
        column = ledger.overall if spec is OVERALL else ledger.scores[spec.name]
        by_rate = gate["of"] == "pass_rate"
        places = places[column.passed[places] >= 0] if by_rate else places[column.status[places] == OK]
        values, binary = (
            (column.passed if by_rate else column.values)[places].astype(np.float64),
            by_rate or spec.binary,
        )
        if not by_rate:
            values, scale = _on_unit_scale(values, spec)
    samples, (low, high) = ledger.samples[places], scale
    p_values = []
    for end, limit in (("min", gate["min"]), ("max", gate["max"])):
        if limit is not None:
            p = p_below(values, samples, limit, low=low, high=high, binary=binary)
            p_values += [] if p is None else [p if end == "min" else 1 - p]
    return min(p_values, default=None)


def _on_unit_scale(
    values: NDArray[np.float64], spec: ScoreSpec
) -> tuple[NDArray[np.float64], tuple[float | None, float | None]]:
    """Values as 0 (worst) to 1 (best) with the ends of that scale; those of a count as they are, without ends."""
    if spec.low is None or spec.high is None:
        return values, (None, None)
    unit = np.clip((values - spec.low) / (spec.high - spec.low), 0.0, 1.0)
    return (unit if spec.higher_is_better else 1 - unit), (0.0, 1.0)


def _summary(
    ledger: Accumulators,
    name: str,
    gate: Gate,
    metrics: Mapping[str, Any],
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
) -> dict[str, Any]:
    """The summary over the gate's cases; its failure mode gets the interval of its share."""
    places = _places(ledger, {"name": name, "where": gate.where})
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
