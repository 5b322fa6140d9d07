"""`task=publish`: a finished run to an object store, seal last. Publishing again sends nothing that is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from ragpipe.config.storage_section import read_storage
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.runs.published_runs import publish_run
from ragpipe.engine.task_settings import task_settings
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings
from ragpipe.store.objects.addresses import publishing_fault
from ragpipe.store.objects.settings import Storage
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder

_TITLE = "task=publish cannot start; nothing was sent"


class PublishTaskSettings(Settings):
    """`run` names the run folder, `publish` where it goes."""

    run: str = Field(min_length=1, description="Folder of the run.")
    publish: str = Field(
        min_length=1,
        description="Address that gets the run, as `<publish>/<name>/<run id>`: s3://bucket/prefix.",
    )

    @field_validator("publish")
    @classmethod
    def _to_an_address(cls, address: str) -> str:
        if expected := publishing_fault(address):
            raise ValueError(expected)
        return address


@dataclass(frozen=True)
class PublishTask:
    """The run, where it goes, and how the store is reached."""

    folder: RunFolder
    address: str
    storage: Storage


Keys = PublishTaskSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> PublishTask:
    """Check the keys of this task. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    if plain.get("publish") is None:
        expected, fix = "the address that gets the run", "publish=s3://bucket/prefix"
        raise ConfigError(_TITLE, [Problem(origins.location("publish"), "publish", "not set", expected, fix)])
    settings = task_settings(PublishTaskSettings, plain, origins, title=_TITLE)
    storage = read_storage(plain, origins, title=_TITLE)
    return PublishTask(RunFolder.find(Path(settings.run)), settings.publish, storage)


def run(task: PublishTask, console: Console) -> int:
    """Publish, and print where. Returns 0. Raises DataError for a run without a seal, OutputError."""
    with FolderLock(task.folder.root) as lock:
        for notice in lock.notices:
            console.warn(notice)
        console.say(publish_run(task.folder, task.address, task.storage).line())
    return 0
