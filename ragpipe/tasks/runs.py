"""`task=runs`: all runs of a name in one table, read from their folders, and `runs.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.run_list import list_runs, refuse_other_formats, run_list_folders
from ragpipe.engine.task_settings import task_settings
from ragpipe.reports.console import Console
from ragpipe.reports.runs_page import (
    RunLine,
    differences_text,
    run_list_cells,
    run_list_heads,
    run_list_scores,
    runs_markdown,
)
from ragpipe.schema.settings import Settings
from ragpipe.store.files.write_if_changed import write_unless_same
from ragpipe.store.run.run_folder import RUNS

_DEFAULT_NAME = "run"  # the value of `name` that the user did not set


class RunsSettings(Settings):
    """`name` is the name of the runs; None for all names under `output_dir`."""

    name: Annotated[str, Field(min_length=1)] | None = Field(
        description="Name of the runs. null: all names below `output_dir`."
    )
    output_dir: str = Field(min_length=1, description="Folder that holds the runs.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> RunsSettings:
    """Check the two keys of this task. Raises ConfigError."""
    name = plain.get("name")
    if name == _DEFAULT_NAME and "name" not in getattr(origins, "chosen", ()):
        name = None
    return task_settings(
        RunsSettings, {**plain, "name": name}, origins or NoOrigins(), title="task=runs cannot look for runs"
    )


def run(settings: RunsSettings, console: Console) -> int:
    """Print one table per name and write its runs.md. A run of another format gets a line that says so.

    Returns 0. Raises DataError where there is no run at all, FormatMismatch where all of them have another format.
    """
    folders = _folders(settings)
    refuse_other_formats(folders)
    for folder in folders:
        lines, older = list_runs(folder)
        if any(not line.refused for line in lines):
            _print_table(folder, lines, older, console)
        for line in lines:
            if line.refused:
                console.say(f"{folder / line.run_id} is refused: {line.refused}")
    return 0


def _folders(settings: RunsSettings) -> list[Path]:
    """The folders that hold the runs of the name, or of every name. Raises DataError where there is none."""
    root = Path(settings.output_dir)
    named = root if settings.name is None else root / settings.name
    folders = [folder for folder in run_list_folders(root) if settings.name is None or folder == named]
    if not folders:
        fix = "name=... and output_dir=... as the runs were started with"
        problem = Problem(str(named), "run", "no run folder in it", "runs of an evaluation", fix)
        raise DataError("there are no runs", [problem])
    return folders


def _print_table(folder: Path, lines: Sequence[RunLine], older: int, console: Console) -> None:
    """Print the table of the runs of a name, and write its runs.md."""
    names = run_list_scores(lines)
    rows = [run_list_cells(line, names)[:-1] for line in lines if not line.refused]
    console.table(run_list_heads(lines)[:-1], rows, title=str(folder), left=(0, 1, 2, 4))
    for line in lines:
        if line.differences:
            console.say(f"{line.run_id} differs {differences_text(line)}")
    if older:
        console.say(f"{older:,} older runs are not listed")
    write_unless_same(folder / RUNS, runs_markdown(folder.name, lines, older=older))
    console.say(f"written: {folder / RUNS}")
