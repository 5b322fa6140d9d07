"""`task=runs`: all runs of a name in one table, read anew from their folders, and `runs.md` with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins, validated
from ragpipe.engine.run_list import list_runs, refuse_other_formats, run_list_folders
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

_ANY_NAME = "run"  # what `name` is when nobody gave one


class RunsSettings(Settings):
    """`name` is that of the runs; None for all names under `output_dir`."""

    name: Annotated[str, Field(min_length=1)] | None = Field(
        description="Name of the runs. null: all names below `output_dir`."
    )
    output_dir: str = Field(min_length=1, description="Folder that holds the runs.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> RunsSettings:
    """Check the two keys of this task. Raises ConfigError."""
    problems: list[Problem] = []
    own = {key: plain.get(key) for key in RunsSettings.model_fields}
    if own["name"] == _ANY_NAME and "name" not in getattr(origins, "chosen", ()):
        own["name"] = None
    settings = validated(RunsSettings, own, "", origins or NoOrigins(), problems)
    if settings is None:
        raise ConfigError("task=runs cannot look for runs", problems)
    return settings


def run(settings: RunsSettings, console: Console) -> int:
    """Print a table for each name and write its runs.md. A run of another format has a line that says so, and nothing else of
    it is read. Returns 0. Raises DataError where there is no run at all, FormatMismatch where all of them have another format.
    """
    root = Path(settings.output_dir)
    named = root if settings.name is None else root / settings.name
    folders = [folder for folder in run_list_folders(root) if settings.name is None or folder == named]
    if not folders:
        raise DataError(
            "there are no runs",
            [
                Problem(
                    str(named),
                    "run",
                    "no run folder in it",
                    "runs of an evaluation",
                    "name=... and output_dir=... as the runs were started with",
                )
            ],
        )
    refuse_other_formats(folders)
    for folder in folders:
        lines, older = list_runs(folder)
        if any(not line.refused for line in lines):
            _tell(folder, lines, older, console)
        for line in lines:
            if line.refused:
                console.say(f"{folder / line.run_id} is refused: {line.refused}")
    return 0


def _tell(folder: Path, lines: Sequence[RunLine], older: int, console: Console) -> None:
    """The table of the runs of a name, and its runs.md."""
    names = run_list_scores(lines)
    shown = [run_list_cells(line, names)[:-1] for line in lines if not line.refused]
    console.table(run_list_heads(lines)[:-1], shown, title=str(folder), left=(0, 1, 2, 4))
    for line in lines:
        if line.differences:
            console.say(f"{line.run_id} differs {differences_text(line)}")
    if older:
        console.say(f"{older:,} older runs are not listed")
    write_unless_same(folder / RUNS, runs_markdown(folder.name, lines, older=older))
    console.say(f"written: {folder / RUNS}")
