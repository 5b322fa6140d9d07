"""The last stage of scoring, over all iterations of a run: `final/metrics.json`, `final/cost.json`, `gates.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256_file
from ragpipe.schema.format_version import FORMAT
from ragpipe.scoring.gates.gate_rules import gates_document
from ragpipe.scoring.iterations.cost_over_iterations import final_cost
from ragpipe.scoring.iterations.over_iterations import final_metrics
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.store.files.write_if_changed import json_unless_same
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json


def scored_iterations(folder: RunFolder) -> list[int]:
    """The iterations that have been scored, in order: what `combine_iterations` can put together."""
    found = ((number, folder.iteration(number)) for number in folder.iterations())
    return [n for n, one in found if all(path.is_file() for path in (one.records, one.metrics, one.cost))]


def is_combined(folder: RunFolder, iterations: Sequence[int]) -> bool:
    """Whether `final/` was made of these iterations as they stand: a start that was killed may have scored one anew."""
    final, folders = folder.final, [folder.iteration(number) for number in iterations]
    made = ((final.metrics, [one.metrics for one in folders]), (final.cost, [one.cost for one in folders]))
    if not folder.gates.is_file():
        return False
    return all(path.is_file() and read_json(path).get("iteration_digests") == _digests(files) for path, files in made)


def combine_iterations(folder: RunFolder, iterations: Sequence[int], settings: ScoringSettings) -> dict[str, Any]:
    """Put these iterations of a run together and return what `final/metrics.json` holds.

    Reads `metrics.json`, `cost.json` and `records.parquet` of each, which the score stage has written. Files that would
    not change are left alone. Raises DataError when one is missing or they are not of the same cases.
    """
    folders = [folder.iteration(number) for number in iterations]
    per_iteration = [read_json(one.metrics) for one in folders]
    bills = {number: read_json(one.cost) for number, one in zip(iterations, folders, strict=True)}
    head = {"format": FORMAT, "signature": _signature(per_iteration), "iterations": list(iterations)}
    metrics = {
        **head,
        "iteration_digests": _digests([one.metrics for one in folders]),
        "judge": per_iteration[0]["judge"],
        "scoring": per_iteration[0]["scoring"],
        **final_metrics(per_iteration, [one.records for one in folders], settings),
    }
    final = folder.final.create()
    json_unless_same(final.metrics, metrics)
    json_unless_same(
        final.cost, {**head, "iteration_digests": _digests([one.cost for one in folders]), **final_cost(bills)}
    )
    json_unless_same(folder.gates, gates_document(per_iteration))
    return metrics


def _digests(files: Sequence[Path]) -> list[str]:
    """What tells the iterations' files from later ones: their sha256."""
    return [sha256_file(path) for path in files]


def _signature(per_iteration: Sequence[dict[str, Any]]) -> str:
    """The iterations' common line, with all of their numbers in the place of one."""
    numbers = [metrics["iteration"] for metrics in per_iteration]
    shown = f"iterations {numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"iteration {numbers[0]}"
    heads = [metrics["signature"].rpartition(" | iteration ")[0] for metrics in per_iteration]
    return " || ".join(f"{head} | {shown}" for head in dict.fromkeys(heads))
