"""Comparing two run folders over the same cases: their scores, their questions and their costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragpipe.comparing.run_agreement import agreement, questions, verdict_changes
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.usage import Usage
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json


def compare_runs(old: RunFolder, new: RunFolder) -> dict[str, Any] | None:
    """What `agreement.json` holds: every score of both runs, their questions and their costs.

    An iteration is compared with the one of the same number. None where no iteration is scored in both. Raises DataError
    for a file that cannot be read.
    """
    shared = _shared(old, new)
    if not shared:
        return None
    inputs = [[folder.iteration(number).judge_inputs for number in shared] for folder in (old, new)]
    return {
        "format": FORMAT,
        "old": _run(old),
        "new": _run(new),
        "iterations": shared,
        **agreement(_records(old, shared), _records(new, shared), old_scores=_scores(old), new_scores=_scores(new)),
        "questions": questions(*inputs),
        "cost": {"old": _usage(old), "new": _usage(new)},
    }


def compare_scoring(old: RunFolder, new: RunFolder) -> dict[str, Any] | None:
    """As `compare_runs`, with scores and changed verdicts only: what another scoring of the same replies changes."""
    shared = _shared(old, new)
    if not shared:
        return None
    return {
        "old": {"run_id": _run_id(old)},
        "new": {"run_id": _run_id(new)},
        "iterations": shared,
        **verdict_changes(
            _records(old, shared), _records(new, shared), old_scores=_scores(old), new_scores=_scores(new)
        ),
    }


def _shared(old: RunFolder, new: RunFolder) -> list[int]:
    """The iterations that are scored in both; none where the iterations of a run were not combined."""
    if not (old.final.metrics.is_file() and new.final.metrics.is_file()):
        return []
    of_old_run = set(scored_iterations(old))
    return [number for number in scored_iterations(new) if number in of_old_run]


def _records(folder: RunFolder, iterations: list[int]) -> dict[int, Path]:
    return {number: folder.iteration(number).records for number in iterations}


def _scores(folder: RunFolder) -> dict[str, Any]:
    """The run's scores over all cases, each with its declaration."""
    metrics = read_json(folder.final.metrics)
    return {name: {**metrics["declared"][name], **score} for name, score in metrics["overall"]["scores"].items()}


def _run(folder: RunFolder) -> dict[str, Any]:
    metrics = read_json(folder.final.metrics)
    judge = metrics["judge"]
    return {
        "run_id": _run_id(folder),
        "judge": judge["label"],
        "calibrated": judge["calibrated"],
        "n_cases": metrics["n_cases"],
        "signature": metrics["signature"],
    }


def _run_id(folder: RunFolder) -> str:
    """The id of the run, whatever its folder is called."""
    return str(read_json(folder.manifest)["run_id"])


def _usage(folder: RunFolder) -> dict[str, Any]:
    """The usage behind the results of all iterations of a run."""
    used = read_json(folder.final.cost)["total"]["used"]
    counts = {name: used[name] for name in ("calls_computed", "calls_failed")}
    return {**counts, **Usage.from_json(used).as_json()}
