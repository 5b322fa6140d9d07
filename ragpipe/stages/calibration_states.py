"""For each score that a judge decides: whether its judge is calibrated against human labels here, and why (not)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragpipe.calibrating.corrected_scores import CorrectedRun
from ragpipe.comparing.baseline_table import read_baselines
from ragpipe.comparing.drop_gates import GatedRun, measure_drops
from ragpipe.reports.sections.diagnosis_section import read_index
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.calibration_file import (
    Calibration,
    ScoreCalibration,
    asked_shapes,
    binding_differences,
    binding_of,
    read_calibration,
)
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.gates.gate_results import NO_CALIBRATION, judged_scores
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import open_table

_SHOWN = 3


def calibration_states(
    iteration: Path,
    calibration: Path,
    identity: Mapping[str, Any],
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
) -> dict[str, dict[str, Any]]:
    """By score of the metrics that asked the judge: `calibrated` (true: its calibration passed, false: it failed, null: there
    is none that holds here, or there are too few labels) and `why` in words. Raises DataError.

    Args:
        iteration: the folder of a judged iteration.
        calibration: the run's `calibration.json`, which may be missing.
        identity: the identity of the run.
        specs: the scores of its metrics.
        settings: its scoring.
    """
    origins = score_origins(iteration)
    asked = [spec for spec in specs if spec.name in origins.asked]
    if not is_regular_file(calibration):
        return {spec.name: {"calibrated": None, "why": NO_CALIBRATION} for spec in asked}
    document, shapes = read_calibration(calibration), asked_shapes(iteration / "judge_inputs.parquet")
    return _states(
        document, asked, {spec.name: origins.metrics[spec.name] for spec in asked}, shapes, identity, settings
    )


def expected_states(
    calibration: Calibration | None,
    identity: Mapping[str, Any],
    asking: Mapping[str, str],
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
) -> dict[str, dict[str, Any]]:
    """The same before anything is asked: the form of the answers is not known yet, everything else that binds a calibration is.

    Args:
        calibration: the calibration that the scoring names, None for none.
        identity: the identity of the run.
        asking: by score of the metrics that may ask the judge the name of the metric.
        specs: the scores of the metrics.
        settings: the scoring.
    """
    asked = [spec for spec in specs if spec.name in asking]
    if calibration is None:
        return {spec.name: {"calibrated": None, "why": NO_CALIBRATION} for spec in asked}
    return _states(calibration, asked, asking, {}, identity, settings)


def _states(
    document: Calibration,
    asked: Sequence[ScoreSpec],
    metrics: Mapping[str, str],
    shapes: Mapping[str, Mapping[str, str]],
    identity: Mapping[str, Any],
    settings: ScoringSettings,
) -> dict[str, dict[str, Any]]:
    """The state of each of the `asked` scores; `metrics` are their metrics, `shapes` the forms of the answers by metric."""
    states = {}
    for spec in asked:
        metric = metrics[spec.name]
        binding = binding_of(identity, metric, shapes.get(metric, {}), _threshold(spec, settings))
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
    named = {
        value: [name for name, state in states.items() if state["calibrated"] is value] for value in (True, False, None)
    }
    if not named[True] and not named[False]:
        return "uncalibrated"
    if not named[False] and not named[None]:
        return ""
    kinds = {True: "calibrated", False: "failed calibration", None: "uncalibrated"}
    return "; ".join(f"{kinds[value]} {', '.join(names)}" for value, names in named.items() if names)


def _threshold(spec: ScoreSpec, settings: ScoringSettings) -> float | None:
    """The value from which a case passes, as a calibration is bound to it."""
    threshold = settings.thresholds.get(spec.name)
    if threshold is None and spec.binary:
        return spec.high if spec.higher_is_better else spec.low
    return threshold


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
    return (
        f"{score.target.statistic.replace('_', ' ')} {statistic.value:.2f}{interval} of {statistic.n} labels: {verdict}"
    )


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
    """What scoring reads beside the scores of a run.

    `manifest` has its identity and its prompts, `folder` its tables, its `baseline.parquet`, its `calibration.json` and its
    `index.json`.
    """

    manifest: Mapping[str, Any]
    folder: RunFolder

    def missing_gold(self) -> Mapping[str, int] | None:
        """Of samples how many labelled documents are not in the index; None for a run without an index manifest. Raises
        DataError for a broken `index.json`."""
        index = read_index(self.folder.root)
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
    """What is measured over all cases of these iterations at once; empty where nothing needs more than the summaries of
    `metrics.json`. Raises DataError.

    Args:
        iterations: the folders of the iterations, scored, in order.
        declared: what `metrics.json` declares of the scores.
        settings: the scoring.
        sources: what is read beside the scores; None where nothing is.
    """
    if sources is None:
        return MeasuredTogether()
    has_baseline = any(gate.against is not None for gate in settings.active_gates().values())
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
    corrected = CorrectedRun(run, sources.folder, read_calibration(sources.folder.calibration))
    return MeasuredTogether(gates | corrected.measure(), corrected.document())
