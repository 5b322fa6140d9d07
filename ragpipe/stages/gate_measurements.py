"""What is measured over the tables of a run at once: drops against a baseline, and figures corrected by people's labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragpipe.calibrating.corrected_scores import CorrectedRun
from ragpipe.comparing.baseline_table import read_baselines
from ragpipe.comparing.drop_gates import GatedRun, measure_drops
from ragpipe.reports.sections.index_section import read_index
from ragpipe.scoring.calibration_file import read_calibration
from ragpipe.scoring.gates.calibration import judged_scores
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.calibration_states import score_origins
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.run_folder import RunFolder


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
        samples=sources.folder.samples,
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
