"""`task=history`: every score of every run of a name, each against the run before it, as tables, a page and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field

from ragpipe.comparing.history_rows import HISTORY, history_rows
from ragpipe.comparing.settings import CompareSettings
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.runs.run_list import named_folders, scored_runs
from ragpipe.engine.task_settings import chosen_name, task_settings
from ragpipe.reports.console import Console
from ragpipe.reports.exports.open_metrics import open_metrics
from ragpipe.reports.exports.table_export import write_csv
from ragpipe.reports.history_page import NEWEST_HEADS, NOTE, history_headline, history_markdown, newest_rows
from ragpipe.schema.settings import Settings
from ragpipe.store.files.atomic import open_unless_same, write_unless_same
from ragpipe.store.files.parquet_parts import parquet_writer
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import HISTORY as HISTORY_FOLDER
from ragpipe.store.run.run_folder import make_folder


class HistoryOptions(Settings):
    """What a history takes in."""

    derived: bool = Field(
        default=False,
        description="Whether runs over the frozen cases of another run are taken in (judged or scored again).",
    )
    runs: int = Field(default=200, ge=1, le=10_000, description="Number of runs, the newest ones, 1 to 10,000.")


class HistorySettings(Settings):
    """`name` is the name of the runs; None for all names under `output_dir`, each with a history of its own."""

    name: Annotated[str, Field(min_length=1)] | None = Field(
        description="Name of the runs. null: all names below `output_dir`."
    )
    output_dir: str = Field(min_length=1, description="Folder that holds the runs.")
    history: HistoryOptions = Field(default_factory=HistoryOptions, description="Which runs are taken in.")


Keys = HistorySettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> HistorySettings:
    """Check the keys of this task. Raises ConfigError."""
    origins = origins or NoOrigins()
    named = {**plain, "name": chosen_name(plain, origins)}
    return task_settings(HistorySettings, named, origins, title="task=history cannot begin; nothing was written")


def run(settings: HistorySettings, console: Console) -> int:
    """Write and print the history of the name, or of every name. Asks no judge and changes no run. Returns 0.

    Raises DataError where there is no scored run.
    """
    options, written = settings.history, 0
    folders = named_folders(settings.output_dir, settings.name)
    for folder in folders:
        newest = islice(scored_runs(folder, derived=options.derived, warn=console.warn), options.runs)
        if runs := list(newest)[::-1]:
            written += 1
            name = folder.relative_to(settings.output_dir).as_posix()
            _write(folder / HISTORY_FOLDER, name, list(history_rows(runs, CompareSettings())), console)
    if not written:
        problem = Problem(
            ", ".join(map(str, folders)),
            "run",
            "no run that is scored to its end",
            "finished runs of a data set",
            "finish one, or history.derived=true for runs that were judged or scored again",
        )
        raise DataError("there is no scored run", [problem])
    return 0


def _write(folder: Path, name: str, rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Write the files of one name, and print its newest run."""
    make_folder(folder)
    table = folder / "history.parquet"
    with FolderLock(folder):
        with open_unless_same(table) as file, parquet_writer(file, HISTORY, compression="zstd") as writer:
            writer.write_table(pa.Table.from_pylist(list(rows), schema=HISTORY))
        write_csv(table, folder / "history.csv")
        write_unless_same(folder / "history.md", history_markdown(name, rows))
        write_unless_same(folder / "history.prom", open_metrics(rows, name=name))
    console.folded(NEWEST_HEADS, newest_rows(rows, headline_only=True), title=f"{name}: the newest run")
    console.say(NOTE)
    console.say(history_headline(rows))
    console.say(f"written: {folder}/")
