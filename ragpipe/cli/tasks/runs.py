"""`task=runs`: all runs of a name in one table, read from their folders, and `runs.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, task_settings
from ragpipe.report.console import Console
from ragpipe.report.run_list_page import RunLine, run_list_notes, run_list_table, runs_markdown
from ragpipe.report.styled_text import plural, wrapped
from ragpipe.report.terminal import print_table
from ragpipe.runs.run_list import chosen_name, list_runs, named_folders
from ragpipe.store.files import write_unless_same
from ragpipe.store.run_folder import RUNS


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
    return task_settings(RunsSettings, named, origins, title="the runs cannot be looked for; nothing was written")


def run(settings: RunsSettings, console: Console) -> int:
    """Print one table per name and write its runs.md. A run of another format gets a line that says so.

    Returns 0. Raises DataError where there is no run at all.
    """
    folders = named_folders(settings.output_dir, settings.name)
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
    print_table(run_list_table(lines), console)
    for note in run_list_notes(lines):
        console.lines(wrapped((console.screen.text(note),), console.width))
    if older:
        console.say(f"{older:,} older runs are not listed")
    write_unless_same(folder / RUNS, runs_markdown(folder.name, lines, older=older))
    console.say(f"written: {folder / RUNS}")
