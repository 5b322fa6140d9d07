"""Scores and gates that depend on an uncalibrated judge: they pass no critical gate unless labels say what the judge is
worth, or `scoring.accept_uncalibrated`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.composites import OVERALL, judged_with
from ragpipe.scoring.gates.gate_rules import limited
from ragpipe.scoring.gates.gate_settings import Gate
from ragpipe.scoring.settings import ScoringSettings

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
