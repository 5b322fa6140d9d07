"""Scores and gates that depend on an uncalibrated judge: they pass no critical gate unless `scoring.accept_uncalibrated`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.composites import OVERALL, judged_with
from ragpipe.scoring.gates.gate_rules import limited
from ragpipe.scoring.gates.gate_settings import Gate
from ragpipe.scoring.settings import ScoringSettings

NO_CALIBRATION = "no calibration is named"
"""Why a score is not calibrated where `scoring.calibration` names nothing."""


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


def uncalibrated_gates(settings: ScoringSettings, specs: Sequence[ScoreSpec], asked: Collection[str]) -> list[str]:
    """What to say before a run of the metrics' scores `specs` by a judge that is not calibrated: one line that names the
    critical gates which cannot pass; none where there is no such gate, or where it is accepted.

    `asked` are the scores of the metrics that may ask the judge.
    """
    if settings.accept_uncalibrated:
        return []
    declared = {spec.name: spec for spec in (*settings.all_specs(specs), OVERALL)}
    judged = judged_scores(settings, declared, asked)
    names = [
        name
        for name, gate in settings.active_gates().items()
        if gate.tier == "critical" and rests_on_judge(gate, settings, declared, judged)
    ]
    if not names:
        return []
    are = "a critical gate that rests" if len(names) == 1 else "critical gates that rest"
    return [
        f"{', '.join(f'scoring.gates.{name}' for name in names)}: {are} on a judge which is not calibrated against human "
        "labels, and cannot pass (exit code 3) unless scoring.accept_uncalibrated=true"
    ]
