"""`task=fetch`: a published run from an object store into `output_dir`, where every task works on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from ragpipe.config.storage_section import read_storage
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.runs.published_runs import fetch_run_to
from ragpipe.engine.task_settings import task_settings
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings
from ragpipe.store.objects.addresses import is_remote
from ragpipe.store.objects.settings import Storage

_TITLE = "task=fetch cannot start; nothing was fetched"


class FetchSettings(Settings):
    """`run` is the address of a published run."""

    run: str = Field(
        min_length=1,
        description="Address of a published run: that of its folder, or of a `latest`, s3://bucket/prefix/name/latest.",
    )


@dataclass(frozen=True)
class FetchTask:
    """The address of the run, the folder that gets it, and how the store is reached."""

    address: str
    output_dir: Path
    storage: Storage


Keys = FetchSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FetchTask:
    """Check the keys of this task. Raises ConfigError."""
    origins = origins or NoOrigins()
    settings = task_settings(FetchSettings, plain, origins, title=_TITLE)
    if not is_remote(settings.run):
        expected = "an address, such as s3://bucket/prefix/name/latest"
        raise ConfigError(_TITLE, [Problem(origins.location("run"), "run", repr(settings.run), expected)])
    storage = read_storage(plain, origins, title=_TITLE)
    return FetchTask(settings.run, Path(str(plain.get("output_dir", "outputs"))), storage)


def run(task: FetchTask, console: Console) -> int:
    """Fetch the run; files that are here already, by digest, are kept. Returns 0. Raises DataError and OutputError."""
    folder = fetch_run_to(task.address, task.output_dir, task.storage)
    console.folder = folder.root
    console.say(f"fetched: {folder.root}")
    return 0
