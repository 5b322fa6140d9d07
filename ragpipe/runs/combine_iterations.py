"""The last stage of scoring: combines all iterations of a run into `final/metrics.json`, `final/cost.json` and the gates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256_file
from ragpipe.core.version import FORMAT
from ragpipe.runs.calibration_states import ScoringSources, measured_together
from ragpipe.score.gate_rules import gates_document
from ragpipe.score.iterations import final_cost, final_metrics
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.files import json_unless_same
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_json


def is_combined(folder: RunFolder, iterations: Sequence[int]) -> bool:
    """Whether `final/` was made of these iterations as they are: a start that was killed may have scored one again."""
    final, folders = folder.final, [folder.iteration(number) for number in iterations]
    made = (
        (final.metrics, [iteration.metrics for iteration in folders]),
        (final.cost, [iteration.cost for iteration in folders]),
    )
    if not folder.gates.is_file():
        return False
    return all(path.is_file() and read_json(path).get("iteration_digests") == _digests(files) for path, files in made)


def combine_iterations(
    folder: RunFolder, iterations: Sequence[int], settings: ScoringSettings, sources: ScoringSources | None = None
) -> dict[str, Any]:
    """Combine these iterations of a run and return the content of `final/metrics.json`. `sources` is what scoring reads beside
    them.

    Reads `metrics.json`, `cost.json` and `records.parquet` of each, which the score stage has written. Files that would
    not change are left alone. Raises DataError when one is missing or they are not of the same cases.
    """
    folders = [folder.iteration(number) for number in iterations]
    per_iteration = [read_json(iteration.metrics) for iteration in folders]
    costs = {number: read_json(iteration.cost) for number, iteration in zip(iterations, folders, strict=True)}
    head = {"format": FORMAT, "signature": _signature(per_iteration), "iterations": list(iterations)}
    metrics = {
        **head,
        "iteration_digests": _digests([iteration.metrics for iteration in folders]),
        "judge": per_iteration[0]["judge"],
        "scoring": per_iteration[0]["scoring"],
        **final_metrics(per_iteration, [iteration.records for iteration in folders], settings),
        "calibration": per_iteration[0].get("calibration", {}),
    }
    roots = [iteration.root for iteration in folders]
    together = measured_together(roots, metrics["declared"], settings, sources)
    if together.corrected:
        metrics["corrected"] = together.corrected
    final = folder.final.create()
    json_unless_same(final.metrics, metrics)
    json_unless_same(
        final.cost, {**head, "iteration_digests": _digests([iteration.cost for iteration in folders]), **final_cost(costs)}
    )
    json_unless_same(folder.gates, gates_document(per_iteration, together.gates))
    return metrics


def _digests(files: Sequence[Path]) -> list[str]:
    return [sha256_file(path) for path in files]


def _signature(per_iteration: Sequence[dict[str, Any]]) -> str:
    """The iterations' common line, with all of their numbers in the place of one."""
    numbers = [metrics["iteration"] for metrics in per_iteration]
    text = f"iterations {numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"iteration {numbers[0]}"
    heads = [metrics["signature"].rpartition(" | iteration ")[0] for metrics in per_iteration]
    return " || ".join(f"{head} | {text}" for head in dict.fromkeys(heads))
