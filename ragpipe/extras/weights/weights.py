"""`task=weights`: what the weights of the overall score decide in a finished run, and weights fitted to people's ratings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins, did_you_mean
from ragpipe.engine.runs.finished_run import open_run
from ragpipe.engine.task_settings import FinishedRunKeys, FinishedRunTask, task_settings
from ragpipe.extras.weights.case_scores import CaseScores, read_case_scores
from ragpipe.extras.weights.ratings import read_ratings, weights_from_ratings
from ragpipe.extras.weights.weighing_report import (
    STABILITY_HEADS,
    TUNING_HEADS,
    WEIGHT_NOTE,
    ranking_line,
    sensitivity_heads,
    sensitivity_rows,
    stability_line,
    stability_rows,
    tuning_lines,
    tuning_rows,
    weighing_markdown,
)
from ragpipe.extras.weights.weighing_settings import IN_USE, WeighingSettings
from ragpipe.extras.weights.weight_sensitivity import methods_by_weight_set, ranks_over_weights
from ragpipe.reports.console import Console
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.score import ScoreSpec
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.seal_run import seal_added
from ragpipe.store.files.atomic import json_unless_same, write_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder

SECTION = "weights"
_TITLE = "task=weights cannot weigh this run; nothing was written"


class Keys(FinishedRunKeys):
    weights: WeighingSettings = Field(description="Weight sets, draws and ratings.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[WeighingSettings]:
    """The run, and the weight sets over scores that it has. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    settings = task_settings(WeighingSettings, plain, origins, title=_TITLE, section=SECTION)
    finished = open_run(plain, origins, changeable=(), task="weights", task_keys=(SECTION,))
    task = FinishedRunTask(finished, settings)
    if problems := [*_unknown_scores(task, origins), *_unusable_ratings(task, origins)]:
        raise ConfigError(_TITLE, problems)
    return task


def _unknown_scores(task: FinishedRunTask[WeighingSettings], origins: ConfigOrigins) -> Iterator[Problem]:
    """A problem for each score of a weight set that the run does not have, or that may have no weight."""
    known = _weighable(task)
    for name, weights in task.settings.sets.items():
        for score in weights:
            if score not in known:
                key = f"weights.sets.{name}.{score}"
                expected = f"a score of the run that may have a weight: {', '.join(known)}"
                yield Problem(origins.location(key), key, repr(score), expected, did_you_mean(score, known))


def _unusable_ratings(task: FinishedRunTask[WeighingSettings], origins: ConfigOrigins) -> Iterator[Problem]:
    """The problem of ratings that are neither a score of the run nor a file, or that weigh in the overall score themselves."""
    name, known, place = task.settings.ratings, list(_specs(task)), origins.location("weights.ratings")
    if name in _in_use(task):
        fix = f"task=rescore run=... scoring.weights.{name}=0 first"
        yield Problem(place, "weights.ratings", repr(name), "a score that has no weight in the overall score", fix)
    elif name is not None and name not in known and not Path(name).is_file():
        expected = f"a file, or a score of the run with a scale: {', '.join(known)}"
        yield Problem(place, "weights.ratings", repr(name), expected, did_you_mean(name, known))


def run(task: FinishedRunTask[WeighingSettings], console: Console) -> int:
    """Weigh the run's cases, print the tables, and write and seal `weights.json` and `weights.md`. Returns 0.

    Asks no judge. Raises DataError for a run without scored cases, without a weighted score, or with ratings that do not fit.
    """
    folder = task.finished.folder
    with FolderLock(folder.root) as lock:
        for notice in lock.notices:
            console.warn(notice)
        document = weighing(task)
        written = [folder.root / "weights.json", folder.root / "weights.md"]
        json_unless_same(written[0], document)
        write_unless_same(written[1], weighing_markdown(document))
        seal_added(folder, written)
    _print(document, console)
    console.say(f"weights: {written[1]}")
    return 0


def weighing(task: FinishedRunTask[WeighingSettings]) -> dict[str, Any]:
    """What `weights.json` says: the methods under each weight set, their ranks over all weights, the fitted weights."""
    finished, settings = task.finished, task.settings
    in_use = _in_use(task)
    numbers = scored_iterations(finished.folder)
    if not numbers or not in_use:
        raise _nothing_to_weigh(finished.folder, is_scored=bool(numbers))
    sets = {IN_USE: in_use, **settings.sets}
    rated = [settings.ratings] if settings.ratings in _specs(task) else []
    read = list(dict.fromkeys([*(name for weights in sets.values() for name in weights), *rated]))
    cases = read_case_scores([finished.folder.iteration(number).records for number in numbers], read)
    level = finished.config.scoring.level
    ratings = _ratings(task, cases)
    fitted = None if ratings is None else weights_from_ratings(cases, ratings, in_use, seed=settings.seed, level=level)
    return {
        "format": FORMAT,
        "run_id": finished.run_id,
        "iterations": numbers,
        "level": level,
        "sets": methods_by_weight_set(cases, sets, level),
        "stability": ranks_over_weights(cases, list(in_use), draws=settings.draws, seed=settings.seed),
        "ratings": settings.ratings,
        "tuning": fitted,
    }


def _ratings(task: FinishedRunTask[WeighingSettings], cases: CaseScores) -> NDArray[np.float64] | None:
    """The ratings of the cases; None where none are named."""
    name = task.settings.ratings
    if name is None or name in _specs(task):
        return None if name is None else cases.values[name]
    return read_ratings(Path(name), name, cases)


def _in_use(task: FinishedRunTask[WeighingSettings]) -> dict[str, float]:
    """The weights with which the run was scored, of the scores that it has."""
    shares, known = task.finished.config.scoring.weight_shares(), _weighable(task)
    return {name: weight for name, weight in shares.items() if name in known and weight > 0}


def _specs(task: FinishedRunTask[WeighingSettings]) -> dict[str, ScoreSpec]:
    """The scores of the run's metrics that have a scale, by name."""
    specs = [spec for metric in task.finished.config.metrics.values() for spec in metric.scores()]
    return {spec.name: spec for spec in specs if spec.low is not None}


def _weighable(task: FinishedRunTask[WeighingSettings]) -> list[str]:
    """The scores that may have a weight: a diagnostic score has none."""
    return [name for name, spec in _specs(task).items() if not spec.diagnostic]


def _nothing_to_weigh(folder: RunFolder, *, is_scored: bool) -> DataError:
    actual = "no score with a weight" if is_scored else "no iteration that is scored"
    expected = "scores that scoring.weights weighs" if is_scored else "a finished run"
    fix = "task=rescore run=... scoring.weights.NAME=1" if is_scored else "finish the run: start its command again"
    return DataError(_TITLE, [Problem(str(folder.root), "run", actual, expected, fix)])


def _print(document: Mapping[str, Any], console: Console) -> None:
    console.folded(sensitivity_heads(document), sensitivity_rows(document), title="methods under each weight set")
    console.say(WEIGHT_NOTE)
    console.say(ranking_line(document))
    if rows := stability_rows(document):
        console.folded(STABILITY_HEADS, rows, title="ranks over all weights")
    console.say(stability_line(document))
    if rows := tuning_rows(document):
        console.folded(TUNING_HEADS, rows, title="weights from ratings")
    for line in tuning_lines(document):
        console.say(line)
