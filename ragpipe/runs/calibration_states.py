"""For each score that a judge decides: whether its judge is calibrated against human labels here, and why (not)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragpipe.calibration.corrected_scores import CorrectedRun
from ragpipe.comparison.drop_gates import GatedRun, measure_drops, read_baselines
from ragpipe.core.score import ScoreSpec
from ragpipe.data.index_manifest import read_index
from ragpipe.judge.jury import JurySettings
from ragpipe.runs.settings import RunConfig
from ragpipe.score.calibration_file import (
    Calibration,
    ScoreCalibration,
    asked_shapes,
    binding_differences,
    binding_of,
    read_calibration,
)
from ragpipe.score.gate_results import NO_CALIBRATION, judged_scores, labelled_gates, uncalibrated_gates
from ragpipe.score.normalisation import OVERALL
from ragpipe.score.settings import ScoringSettings
from ragpipe.stats.corrected_mean import FEWEST_LABELS
from ragpipe.store.files import is_regular_file
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import open_table

_SHOWN = 3


def calibration_states(
    iteration: Path, calibration: Path, identity: Mapping[str, Any], specs: Sequence[ScoreSpec], settings: ScoringSettings
) -> dict[str, dict[str, Any]]:
    """By score of the metrics that asked the judge: `calibrated` (true: its calibration passed, false: it failed, null: there
    is none that holds here, or there are too few labels) and `why` in words, by the run's `calibration.json`, which may be
    missing. Raises DataError."""
    origins = score_origins(iteration)
    document = read_calibration(calibration) if is_regular_file(calibration) else None
    shapes = {} if document is None else asked_shapes(iteration / "judge_inputs.parquet")
    asking = {name: origins.metrics[name] for name in origins.asked}
    return _states(document, asking, shapes, identity, specs, settings)


def _states(
    document: Calibration | None,
    metrics: Mapping[str, str],
    shapes: Mapping[str, Mapping[str, str]],
    identity: Mapping[str, Any],
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
) -> dict[str, dict[str, Any]]:
    """The state of each score that asks; `metrics` are those of the scores, `shapes` the forms of answers, if known."""
    states = {}
    for spec in specs:
        if (metric := metrics.get(spec.name)) is None:
            continue
        if document is None:
            states[spec.name] = {"calibrated": None, "why": NO_CALIBRATION}
            continue
        binding = binding_of(identity, metric, shapes.get(metric, {}), spec.passing_from(settings.threshold(spec)))
        states[spec.name] = _state(document, spec.name, binding)
    return states


def judge_calibrated(states: Mapping[str, Mapping[str, Any]]) -> bool | None:
    """Whether all scores of the judge are calibrated; False where one failed, else null."""
    values = [state["calibrated"] for state in states.values()]
    return False if False in values else True if values and all(values) else None


def calibration_words(states: Mapping[str, Mapping[str, Any]]) -> str:
    """What the signature says after the judge: `uncalibrated`, or which scores are calibrated; empty where all are, or none is
    judged."""
    if not states:
        return "uncalibrated"
    named = {value: [name for name, state in states.items() if state["calibrated"] is value] for value in (True, False, None)}
    if not named[True] and not named[False]:
        return "uncalibrated"
    if not named[False] and not named[None]:
        return ""
    kinds = {True: "calibrated", False: "failed calibration", None: "uncalibrated"}
    return "; ".join(f"{kinds[value]} {', '.join(names)}" for value, names in named.items() if names)


def _state(document: Calibration, name: str, binding: Any) -> dict[str, Any]:
    score = document.scores.get(name)
    if score is None:
        return {"calibrated": None, "why": "the calibration has no labels of it"}
    if differences := binding_differences(score.bound_to, binding):
        more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        return {"calibrated": None, "why": f"calibrated for something else: {'; '.join(differences[:_SHOWN])}{more}"}
    return {"calibrated": score.calibrated, "why": _verdict(score)}


def _verdict(score: ScoreCalibration) -> str:
    """`kappa 0.91 [0.84, 0.95] of 200 labels: above 0.8`."""
    statistic = score.statistics.get(score.target.statistic)
    limit = score.target.above
    words = {"passed": f"above {limit:.3g}", "failed": f"below {limit:.3g}"}
    verdict = words.get(score.state, f"not enough labels to say that it is above {limit:.3g}")
    if score.labels_needed:
        verdict += f" (about {score.labels_needed} are needed)"
    if statistic is None or statistic.value is None:
        return f"{score.target.statistic}: {verdict}"
    bounds = statistic.interval
    interval = f" [{bounds.low:.2f}, {bounds.high:.2f}]" if bounds else ""
    return f"{score.target.statistic.replace('_', ' ')} {statistic.value:.2f}{interval} of {statistic.n} labels: {verdict}"


@dataclass(frozen=True)
class ScoreOrigins:
    """By score of a metric the name of the metric; the metrics that asked the judge, and those that asked an embedder."""

    metrics: dict[str, str]
    asking: set[str]
    embedding: set[str]

    @property
    def asked(self) -> set[str]:
        """The scores of the metrics that asked the judge."""
        return {score for score, metric in self.metrics.items() if metric in self.asking}

    def behind(self, settings: ScoringSettings) -> dict[str, set[str]]:
        """By score, composites and the overall score included, the metrics that it comes from."""
        behind = {score: {metric} for score, metric in self.metrics.items()}
        parts = {name: composite.parts for name, composite in settings.active_composites().items()}
        for name, names in {**parts, OVERALL.name: [*settings.weights]}.items():
            behind[name] = {self.metrics[part] for part in names if part in self.metrics}
        return behind


def score_origins(folder: Path) -> ScoreOrigins:
    """The origins of an iteration's scores, by its tables. A text for an embedder is no question: it has no template."""
    asking, embedding = set[str](), set[str]()
    with open_table(folder / "judge_inputs.parquet", ["metric", "template"], read_dictionary=["metric"]) as file:
        for batch in file.iter_batches(columns=["metric", "template"]):
            is_question = batch["template"].is_valid()
            asking.update(batch["metric"].filter(is_question).unique().to_pylist())
            embedding.update(batch["metric"].filter(batch["template"].is_null()).unique().to_pylist())
    with open_table(folder / "scores.parquet") as file:
        if not file.num_row_groups:
            return ScoreOrigins({}, asking, embedding)
        rows = file.read_row_group(0, columns=["metric", "score_name"])  # a case has a row for every score
    pairs = zip(rows["score_name"].to_pylist(), rows["metric"].to_pylist(), strict=True)
    return ScoreOrigins(dict(pairs), asking, embedding)


@dataclass(frozen=True)
class ScoringSources:
    """What scoring reads beside the scores of a run: its manifest, and what stands in its folder."""

    manifest: Mapping[str, Any]
    folder: RunFolder

    def missing_gold(self) -> Mapping[str, int] | None:
        """Of samples how many labelled documents are not in the index; None for a run without an index manifest. Raises
        DataError for a broken `index.json`."""
        index = read_index(self.folder.index)
        return None if index is None else index.samples_missing_gold


@dataclass(frozen=True)
class MeasuredTogether:
    """What all cases of some iterations say at once: by gate its figures, and by score what labels correct."""

    gates: dict[str, dict[str, Any]] = field(default_factory=dict)
    corrected: dict[str, dict[str, Any]] = field(default_factory=dict)


def measured_together(
    iterations: Sequence[Path],
    declared: Mapping[str, Mapping[str, Any]],
    settings: ScoringSettings,
    sources: ScoringSources | None,
) -> MeasuredTogether:
    """What is measured over all cases of these scored iterations at once; empty where nothing needs more than the summaries of
    `metrics.json`, and without `sources`. `declared` is what `metrics.json` declares of the scores. Raises DataError."""
    if sources is None:
        return MeasuredTogether()
    has_baseline = any(gate.named_run is not None for gate in settings.active_gates().values())
    has_labels = is_regular_file(sources.folder.calibration)
    if not (has_baseline or has_labels):
        return MeasuredTogether()
    origins = score_origins(iterations[0])
    run = GatedRun(
        manifest=sources.manifest,
        folder=sources.folder,
        records=[folder / "records.parquet" for folder in iterations],
        declared=declared,
        settings=settings,
        metrics=origins.behind(settings),
        judged=judged_scores(settings, declared, origins.asked),
        embedding=origins.embedding,
    )
    has_copy = any(gate.baseline is not None for gate in settings.active_gates().values())
    baselines = read_baselines(sources.folder.baseline) if has_copy else {}
    gates = measure_drops(run, baselines) if has_baseline else {}
    if not has_labels:
        return MeasuredTogether(gates)
    corrected = CorrectedRun(run, read_calibration(sources.folder.calibration))
    return MeasuredTogether(gates | corrected.measure(), corrected.document())


def judge_description(config: RunConfig, calibrated: bool | None = None) -> dict[str, Any]:
    """What reports say of the judge: its label, whether all its scores are calibrated against human labels, and its note where it
    has one; of a jury also the labels of its members by name; and whether a judge's grades are weighted, where they are."""
    description: dict[str, Any] = {"label": config.judge.label, "calibrated": calibrated}
    if isinstance(config.judge, JurySettings):
        members = {name: member.label for name, member in config.judge.members.items()}
        description |= {"members": members, "repeats": config.judge.repeats}
    note = getattr(config.judge, "note", None)
    return {**description, "note": note} if note else description


def scoring_warnings(
    config: RunConfig, identity: Mapping[str, Any], calibration: Calibration | None, *, are_answers_known: bool
) -> list[str]:
    """Warnings about the scoring section, before anything is asked. `are_answers_known` says that this is a task over a
    finished run, whose gates will say at once what labels are of its answers."""
    metrics = config.metrics.values()
    specs = [spec for metric in metrics for spec in metric.scores()]
    asking = {name: metric.name for metric in metrics if metric.prompts() for name in metric.score_names}
    states = _states(calibration, asking, {}, identity, specs, config.scoring)
    untrusted = {name: str(state["why"]) for name, state in states.items() if not state["calibrated"]}
    counts = {} if calibration is None else {name: score.random_labels for name, score in calibration.scores.items()}
    labels = {name: count for name, count in counts.items() if count >= FEWEST_LABELS}
    gates = uncalibrated_gates(config.scoring, specs, untrusted, labels)
    depending = [] if are_answers_known else labelled_gates(config.scoring, specs, untrusted, labels)
    return [*config.scoring.warnings(specs), *gates, *depending]
