"""`task=runs`: all runs of a name in one table, read from their folders, and `runs.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.runs.run_list import list_runs, named_folders, refuse_other_formats
from ragpipe.engine.task_settings import chosen_name, task_settings
from ragpipe.reports.console import Console
from ragpipe.reports.number_format import plural
from ragpipe.reports.runs_page import RunLine, run_list_text, runs_markdown
from ragpipe.schema.settings import Settings
from ragpipe.store.files.atomic import write_unless_same
from ragpipe.store.run.run_folder import RUNS


class RunsSettings(Settings):
    """`name` is the name of the runs; None for all names under `output_dir`."""

    name: Annotated[str, Field(min_length=1)] | None = Field(
        description="Name of the runs. null: all names below `output_dir`."
    )
    output_dir: str = Field(min_length=1, description="Folder that holds the runs.")


Keys = RunsSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> RunsSettings:
    """Check the two keys of this task. Raises ConfigError."""
    origins = origins or NoOrigins()
    named = {**plain, "name": chosen_name(plain, origins)}
    return task_settings(RunsSettings, named, origins, title="task=runs cannot look for runs")


def run(settings: RunsSettings, console: Console) -> int:
    """Print one table per name and write its runs.md. A run of another format gets a line that says so.

    Returns 0. Raises DataError where there is no run at all, FormatMismatch where all of them have another format.
    """
    folders = named_folders(settings.output_dir, settings.name)
    refuse_other_formats(folders)
    for folder in folders:
        lines, older = list_runs(folder)
        if any(not line.refused for line in lines):
            _print_table(folder, lines, older, console)
        for line in lines:
            if line.refused:
                console.say(f"{folder / line.run_id} is refused: {line.refused}")
    return 0


def _print_table(folder: Path, lines: Sequence[RunLine], older: int, console: Console) -> None:
    console.say(f"{folder}: {plural(len(lines), 'run')}, the newest last")
    for text in run_list_text([line for line in lines if not line.refused], console.width):
        console.say(text)
    if older:
        console.say(f"{older:,} older runs are not listed")
    write_unless_same(folder / RUNS, runs_markdown(folder.name, lines, older=older))
    console.say(f"written: {folder / RUNS}")
