"""The gates of one iteration, measured on its ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.accumulators import Accumulators
from ragpipe.scoring.aggregate import summary
from ragpipe.scoring.composites import OVERALL, judged_with
from ragpipe.scoring.gates.gate_rules import decide_gates, define, limited, measure_gate
from ragpipe.scoring.gates.gate_settings import Gate
from ragpipe.scoring.normalisation import interval_of
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


NO_CALIBRATION = "no calibration is named"
"""Why a score is not calibrated where `scoring.calibration` names nothing."""
_NO_LABELS: Mapping[str, int] = {}


def judged_scores(settings: ScoringSettings, names: Iterable[str], asked: Collection[str]) -> set[str]:
    """Of the scores `names` of a run (metrics and composites) those that depend on a judge, with `overall_score` where a part does.

    `asked` are the scores of the metrics that ask it.
    """
    known = set(names)
    judged = (
        judged_with({name: composite.parts for name, composite in settings.active_composites().items()}, asked) & known
    )
    weighed = [name for name, weight in settings.weights.items() if weight > 0 and name in known]
    return judged_with({OVERALL.name: weighed}, judged)


def rests_on_judge(
    gate: Gate, settings: ScoringSettings, declared: Mapping[str, ScoreSpec], judged: Collection[str]
) -> bool:
    """Whether a gate's verdict depends on one of the `judged` scores. `declared` are all scores of the run by name."""
    needs = {gate.score or "", *settings.scores_behind(gate.failure_mode or "", declared)}
    spec = declared.get(gate.score or "")
    if limited(gate, spec, judged=spec is not None and settings.passes(spec)) == "pass_rate":
        needs |= {*settings.deciding_scores(gate.score or "")}
    return bool(needs & set(judged))


def uncalibrated_gates(
    settings: ScoringSettings,
    specs: Sequence[ScoreSpec],
    untrusted: Mapping[str, str],
    labels: Mapping[str, int] = _NO_LABELS,
) -> list[str]:
    """What to say before a run of the metrics' scores `specs` by a judge that is not calibrated: one line that names the
    critical gates which cannot pass; none where there is no such gate, or where it is accepted.

    Args:
        settings: the scoring section.
        specs: the scores of the metrics.
        untrusted: the scores of the judge without a calibration that passed and holds here, with the reason in words.
        labels: by score how many labels may correct its mean; the gates that they may decide are those of `labelled_gates`.
    """
    names, whys = [], dict[str, str]()
    for name, gate, needs in _untrusted_gates(settings, specs, untrusted):
        if not _is_corrected(gate, settings, specs, labels):
            names.append(name)
            whys |= {score: why for score, why in untrusted.items() if score in needs and why != NO_CALIBRATION}
    if not names:
        return []
    are = "a critical gate that rests" if len(names) == 1 else "critical gates that rest"
    because = f" ({'; '.join(f'{score}: {why}' for score, why in whys.items())})" if whys else ""
    return [
        f"{', '.join(f'scoring.gates.{name}' for name in names)}: {are} on a judge which is not calibrated against human "
        f"labels{because}, and cannot pass (exit code 3). Label some of its answers (task=label), run task=calibrate and name the "
        "file (scoring.calibration=PATH); or trust the judge as it is (scoring.accept_uncalibrated=true)"
    ]


def labelled_gates(
    settings: ScoringSettings, specs: Sequence[ScoreSpec], untrusted: Mapping[str, str], labels: Mapping[str, int]
) -> list[str]:
    """A line for each critical gate that labels may decide, as for `uncalibrated_gates`: only the answers say whether they do."""
    return [
        f"scoring.gates.{name}: decided on the mean of {gate.score} corrected by {labels[str(gate.score)]} labels if they are of the "
        "answers of this run, which is not known before; else its judge is not calibrated, and it cannot pass (exit code 3)"
        for name, gate, _ in _untrusted_gates(settings, specs, untrusted)
        if _is_corrected(gate, settings, specs, labels)
    ]


def _untrusted_gates(
    settings: ScoringSettings, specs: Sequence[ScoreSpec], untrusted: Collection[str]
) -> Iterator[tuple[str, Gate, set[str]]]:
    """The critical gates that depend on one of the `untrusted` scores, with those scores; none where that is accepted."""
    if settings.accept_uncalibrated:
        return
    declared = {spec.name: spec for spec in (*settings.all_specs(specs), OVERALL)}
    judged = judged_scores(settings, declared, untrusted)
    for name, gate in settings.active_gates().items():
        if gate.tier == "critical" and rests_on_judge(gate, settings, declared, judged):
            alone = {
                score
                for score in untrusted
                if rests_on_judge(gate, settings, declared, judged_scores(settings, declared, [score]))
            }
            yield name, gate, alone


def _is_corrected(gate: Gate, settings: ScoringSettings, specs: Sequence[ScoreSpec], labels: Collection[str]) -> bool:
    """Whether labels may decide a gate: one on a labelled score itself, by limits, and not on a verdict of other scores too."""
    spec = next((spec for spec in specs if spec.name == gate.score), None)
    if spec is None or gate.against is not None or spec.name not in labels or spec.low is None:
        return False
    by_rate = limited(gate, spec, judged=settings.passes(spec)) == "pass_rate"
    return not (by_rate and spec.name in settings.passes_with)
