"""`task=view`: a local page over all runs of an output folder, served to this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.runs.run_list import find_named_run
from ragpipe.engine.task_settings import task_settings
from ragpipe.extras.view.view_server import ViewOptions, serve_until_stopped
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings

_TITLE = "task=view cannot start"


class ViewSettings(Settings):
    """What is served and to whom. The server listens on 127.0.0.1 alone."""

    dir: str = Field(min_length=1, description="Folder that holds the runs. Nothing is written into it.")
    port: int = Field(default=0, ge=0, le=65535, description="Port on 127.0.0.1. 0: any free one.")


class ViewTaskSettings(Settings):
    """`run` names the run that the address leads to."""

    run: str | None = Field(default=None, min_length=1, description="Run whose report is opened first. null: the list.")
    view: ViewSettings = Field(description="Folder and port of the server.")


Keys = ViewTaskSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> ViewOptions:
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
    return ViewOptions(root, settings.view.port, key)


def run(options: ViewOptions, console: Console) -> int:
    """Print the address and serve until Ctrl-C. Returns 0. Raises ConfigError for a port that is in use."""

    def announce(address: str) -> None:
        if not options.root.is_dir():
            console.say(f"{options.root}: no such folder yet; the page shows its runs as soon as there are any")
        console.say(f"runs of {options.root}: {address}")
        console.say("for this machine alone, to whoever has this address; Ctrl-C ends it")

    asyncio.run(serve_until_stopped(options, announce))
    return 0
