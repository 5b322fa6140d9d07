"""What the checks over a finished run share: the run that they open, the values that they compare, the document that they write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.runs.finished_run import FinishedRun, open_run
from ragpipe.engine.task_settings import FinishedRunTask, SettingsT, task_settings, unnamed_judge
from ragpipe.extras.checks.changed_cases import OutputKey
from ragpipe.metrics.base import Metric
from ragpipe.schema.format_version import FORMAT
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.seal_run import seal_added
from ragpipe.stats.intervals import Interval
from ragpipe.store.files.parquet_writer import parquet_writer
from ragpipe.store.files.write_if_changed import json_unless_same, open_unless_same, write_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder, make_folder
from ragpipe.store.run.run_tables import batches, read_json

BATCH = 32_768
"""Rows read at once."""
_CHANGEABLE = ("judge", "embedder", "metrics", "report", "iterations")


def open_check(
    settings_class: type[SettingsT],
    plain: Mapping[str, Any],
    origins: ConfigOrigins | None,
    *,
    task: str,
    changeable: Sequence[str] = _CHANGEABLE,
    needs_prompts: bool = False,
) -> FinishedRunTask[SettingsT]:
    """The settings of a check and the finished run, with the user's judge over its own. Raises ConfigError and DataError.

    Args:
        settings_class: the settings of the check.
        plain: the composed configuration.
        origins: where each value was set.
        task: the name of the task, and of its section.
        changeable: the sections of the run's configuration that the user may change.
        needs_prompts: whether a run none of whose metrics asks a judge is refused.
    """
    origins, title = origins or NoOrigins(), f"task={task} is wrong; nothing was started"
    settings = task_settings(settings_class, plain, origins, title=title, section=task)
    finished = open_run(plain, origins, changeable=changeable, task=task, task_keys=(task,))
    if problem := unnamed_judge(finished, origins, without_a_call="transport=stored"):
        raise ConfigError(title, [problem])
    if needs_prompts and not judged_metrics(finished.config):
        metrics, expected = ", ".join(finished.config.metrics) or "none", "a metric that asks a judge"
        raise ConfigError(title, [Problem(origins.location("metrics"), "metrics", metrics, expected)])
    return FinishedRunTask(finished, settings)


def judged_metrics(config: RunConfig) -> dict[str, Metric]:
    """The metrics with prompts: only what asks a judge can be audited or spot-checked."""
    return {name: metric for name, metric in config.metrics.items() if metric.prompts()}


def document_of_check(
    finished: FinishedRun, folder: RunFolder, settings: Mapping[str, Any], **figures: Any
) -> dict[str, Any]:
    """The document of a check: what was checked in which run by which judge, and the figures of the check."""
    return {
        "format": FORMAT,
        "source_run": finished.run_id,
        "run_id": folder.run_id,
        "judge": read_json(folder.final.metrics)["judge"]["label"],
        "iterations": len(scored_iterations(folder)),
        "settings": dict(settings),
        **figures,
    }


def write_check(
    folder: RunFolder,
    stem: str,
    document: Mapping[str, Any],
    *,
    markdown: str | None = None,
    tables: Mapping[str, pa.Table] | None = None,
) -> list[Path]:
    """Write what a check found into the folder of a run, and seal it. Returns the paths.

    Args:
        folder: the run.
        stem: the path of the document in the folder, without `.json`.
        document: the document.
        markdown: its page, `<stem>.md`; None for none.
        tables: tables beside it, by their names in the folder.
    """
    path = folder.root / f"{stem}.json"
    paths = [path]
    with FolderLock(folder.root):
        make_folder(path.parent)
        json_unless_same(path, document)
        if markdown is not None:
            paths.append(path.with_suffix(".md"))
            write_unless_same(paths[-1], markdown)
        for name, table in (tables or {}).items():
            paths.append(folder.root / name)
            with open_unless_same(paths[-1]) as file, parquet_writer(file, table.schema, compression="zstd") as writer:
                writer.write_table(table)
        seal_added(folder, paths)
    return paths


def values_by_output(folder: RunFolder, score: str) -> dict[OutputKey, list[float]]:
    """The values of a score by output (sample id, method, repeat), one for each iteration that gave one. Raises DataError for a
    table that cannot be read."""
    values: dict[OutputKey, list[float]] = {}
    columns = ("sample_id", "method", "repeat", "score_name", "value")
    for number in scored_iterations(folder):
        for batch in batches(folder.iteration(number).scores, columns, size=BATCH):
            for row in batch.filter(pc.equal(batch.column("score_name"), score)).to_pylist():
                if row["value"] is not None:
                    values.setdefault((row["sample_id"], row["method"], row["repeat"]), []).append(row["value"])
    return values


def cluster_numbers(names: Iterable[str]) -> NDArray[np.int64]:
    """A number for each name, the same for the same name: the clusters of an interval."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def interval_json(interval: Interval | None) -> dict[str, Any] | None:
    """An interval as the documents have it."""
    if interval is None:
        return None
    return {"level": interval.level, "low": interval.low, "high": interval.high, "too_few": interval.too_few}
