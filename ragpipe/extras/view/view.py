"""`task=view`: a local page over all runs of an output folder, served to this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.runs.run_list import find_named_run
from ragpipe.engine.task_settings import task_settings
from ragpipe.extras.view.view_server import ViewOptions, serve_until_stopped
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings

_TITLE = "task=view cannot start"
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=253)]


class ViewSettings(Settings):
    """What is served and to whom. The server listens on 127.0.0.1 alone."""

    dir: str = Field(min_length=1, description="Folder that holds the runs. Nothing is written into it.")
    port: int = Field(default=0, ge=0, le=65535, description="Port on 127.0.0.1. 0: any free one.")
    hosts: list[HostName] = Field(
        default_factory=list,
        description="Further names under which a browser may ask, without a port. 127.0.0.1 and localhost always may.",
    )
    open: bool = Field(default=False, description="Whether the address is opened in the browser.")


class ViewTaskSettings(Settings):
    """`run` names the run that the address leads to."""

    run: str | None = Field(default=None, min_length=1, description="Run whose report is opened first. null: the list.")
    view: ViewSettings = Field(description="Folder, port and host names of the server.")


@dataclass(frozen=True)
class ViewTask:
    """What is served, and whether the browser is opened."""

    options: ViewOptions
    is_opened: bool


Keys = ViewTaskSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> ViewTask:
    """Check the keys of this task. Raises ConfigError, also for a `view.dir` that is not there, unless it is `output_dir`, which
    a first run makes; DataError for a run that is not there."""
    origins = origins or NoOrigins()
    settings = task_settings(ViewTaskSettings, plain, origins, title=_TITLE)
    root = Path(settings.view.dir)
    is_still_to_be_made = settings.view.dir == plain.get("output_dir") and not root.exists()
    if not root.is_dir() and not is_still_to_be_made:
        fix = "view.dir=FOLDER names another; without it, the runs of output_dir are shown"
        actual = f"{root}: {'no folder' if root.exists() else 'no such folder'}"
        raise ConfigError(_TITLE, [Problem(origins.location("view.dir"), "view.dir", actual, "a folder of runs", fix)])
    key = ""
    if settings.run:
        run = find_named_run(settings.run, root).root
        if not run.resolve().is_relative_to(root.resolve()):
            fix = f"view.dir={run.parent.parent}"
            raise ConfigError(
                _TITLE, [Problem(origins.location("run"), "run", str(run), f"a run below {root}, which is served", fix)]
            )
        key = run.resolve().relative_to(root.resolve()).as_posix()
    view = settings.view
    return ViewTask(ViewOptions(root, view.port, tuple(view.hosts), key), view.open)


def run(task: ViewTask, console: Console) -> int:
    """Print the address and serve until Ctrl-C. Returns 0. Raises ConfigError for a port that is in use."""

    def announce(address: str) -> None:
        if not task.options.root.is_dir():
            console.say(f"{task.options.root}: no such folder yet; the page shows its runs as soon as there are any")
        console.say(f"runs of {task.options.root}: {address}")
        console.say("for this machine alone, to whoever has this address; Ctrl-C ends it")
        if task.is_opened:
            webbrowser.open(address)

    asyncio.run(serve_until_stopped(task.options, announce))
    return 0
