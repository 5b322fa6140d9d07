"""What gates measure over the tables of a run at once, beside the summaries of `metrics.json`: drops against a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.comparing.baseline_table import read_baselines
from ragpipe.comparing.drop_gates import GatedRun, measure_drops
from ragpipe.scoring.gates.calibration import judged_scores
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.score_origins import score_origins


@dataclass(frozen=True)
class ScoringSources:
    """What scoring reads beside the scores of a run.

    `manifest` has its identity and its prompts, `samples` is its table of samples, `baseline` its `baseline.parquet`.
    """

    manifest: Mapping[str, Any]
    samples: Path
    baseline: Path


def gate_measurements(
    iterations: Sequence[Path],
    declared: Mapping[str, Mapping[str, Any]],
    settings: ScoringSettings,
    sources: ScoringSources | None,
) -> dict[str, dict[str, Any]]:
    """By gate what is measured over all cases of these iterations at once; empty for gates that need no more than the
    summaries. Raises DataError.

    Args:
        iterations: the folders of the iterations, scored, in order.
        declared: what `metrics.json` declares of the scores.
        settings: the scoring.
        sources: what is read beside the scores; None where nothing is.
    """
    if sources is None or not any(gate.against is not None for gate in settings.active_gates().values()):
        return {}
    origins = score_origins(iterations[0])
    run = GatedRun(
        manifest=sources.manifest,
        samples=sources.samples,
        records=[folder / "records.parquet" for folder in iterations],
        declared=declared,
        settings=settings,
        metrics=origins.behind(settings),
        judged=judged_scores(settings, declared, origins.asked),
        embedding=origins.embedding,
    )
    return measure_drops(run, read_baselines(sources.baseline))
