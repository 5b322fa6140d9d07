"""`task=build_dataset`: a frozen test set from a log: duplicates, draw, personal data, card. No call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins, validated
from ragpipe.datasets.dataset import open_dataset
from ragpipe.datasets.settings import DatasetSettings
from ragpipe.extras.test_sets.build_settings import BuildSettings
from ragpipe.extras.test_sets.frozen_set import CASES, refuse_existing
from ragpipe.extras.test_sets.score_values import RecordedValues, RunValues, ScoreReader
from ragpipe.extras.test_sets.set_builder import build_test_set
from ragpipe.labelling.population import read_population
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.store.places import cache_folder
from ragpipe.store.run.run_folder import RunFolder

SECTION = "build"
_TITLE = "no test set can be built"


@dataclass(frozen=True)
class BuildTask:
    """The data set to draw from, and how; `cache` gets the copies of files of object stores."""

    dataset: DatasetSettings
    build: BuildSettings
    cache: Path


class Keys(Settings):
    build: BuildSettings = Field(description="How a test set is drawn from the data set, and where it is written.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> BuildTask:
    """Check the sections `dataset` and `build`. Raises ConfigError."""
    origins = origins or NoOrigins()
    problems: list[Problem] = []
    if not plain.get("dataset"):
        fix = "dataset=jsonl dataset.path=LOG, or a mapping of its shape: dataset=langfuse and others"
        problems.append(Problem(origins.location("dataset"), "dataset", "no data set", "the log to draw from", fix))
        dataset = None
    else:
        dataset = validated(DatasetSettings, plain["dataset"], "dataset", origins, problems)
    build = validated(BuildSettings, plain.get(SECTION, {}), SECTION, origins, problems)
    if dataset is not None:
        for key in ("sample", "limit"):
            if (value := getattr(dataset, key)) is not None:
                place, name = origins.location(f"dataset.{key}"), f"dataset.{key}"
                problems.append(Problem(place, name, str(value), "null: a test set is drawn from all", "build.n=..."))
    if problems or dataset is None or build is None:
        raise ConfigError(_TITLE, problems)
    seed = plain.get("seed")
    return BuildTask(dataset, build.seeded(seed if isinstance(seed, int) else 0), cache_folder(plain))


def run(task: BuildTask, console: Console) -> int:
    """Build the set, print what each step kept, and how to use it. Returns 0. Raises ConfigError, DataError, OutputError."""
    folder = Path(task.build.dir)
    refuse_existing(folder, "build.dir")
    scores = _scores(task.build)
    dataset = open_dataset(task.dataset, Path(), task.cache)
    built = build_test_set(dataset, task.build, scores, chunk_text=task.dataset.chunk_text)
    cells = [[_cell(row[name]) for name in ("step", "kept", "dropped", "note")] for row in built.card["steps"]]
    console.table(["step", "kept", "dropped", ""], cells, title="from the log to the test set", left=(0, 3))
    if built.card["strata"]:
        rows = [[_cell(value) for value in row.values()] for row in built.card["strata"]]
        console.table(["stratum", "questions", "wanted", "taken"], rows, title=f"strata of {task.build.by}")
    if replaced := built.card["personal_data"]:
        console.say("personal data: " + ", ".join(f"{number:,} {kind}" for kind, number in replaced.items()))
    elif task.build.personal_data != "keep":
        console.say("personal data: none was found by its form; names and addresses of houses are not searched")
    for note in built.notes:
        console.warn(note)
    console.say(f"written: {folder / CASES}, card.json, card.md")
    console.say(f"sha256 {built.sha256}")
    console.say(
        f"next: python -m ragpipe task=plan dataset=jsonl dataset.path={folder / CASES} dataset.sha256={built.sha256}"
    )
    return 0


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _scores(settings: BuildSettings) -> ScoreReader | None:
    """The values of the score that the draw goes by. Raises DataError for a run that has none."""
    if settings.score is None:
        return None
    if settings.run is None:
        return RecordedValues(settings.score, between_judges=settings.between == "judges")
    folder = RunFolder.find(Path(settings.run))
    records = [folder.iteration(number).records for number in scored_iterations(folder)]
    if not records:
        problem = Problem(str(folder.root), "build.run", "no iteration that is scored", "a finished run")
        raise DataError(_TITLE, [problem])
    return RunValues(read_population(records, settings.score))
