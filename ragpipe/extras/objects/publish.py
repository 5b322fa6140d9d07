"""`task=publish`: a sealed run to an object store, seal last.

`<address>/<name>/<run id>/` gets the files that the seal names, `manifest.json` and `seal.json`; `<address>/<name>/latest` is the id of
the newest run. A folder without a seal was published in part and is no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import ConfigError, DataError, OutputError, Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins, task_settings
from ragpipe.extras.objects.remote_files import file_system, read_bytes
from ragpipe.report.console import Console
from ragpipe.runs.finished_run import FinishedRunKeys
from ragpipe.runs.manifest import checked_manifest
from ragpipe.runs.run_list import run_of_task
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.places import BUCKETS, address_below, publishing_fault, scheme_of
from ragpipe.store.run_folder import LATEST, RunFolder
from ragpipe.store.seals import open_seal

MANIFEST, SEAL = "manifest.json", "seal.json"
_NOT_PUBLISHED = "a run cannot be published"


class Keys(FinishedRunKeys):
    """`run` names the run, `publish` where it goes."""

    publish: str = Field(
        min_length=1, description="Address that gets the run, as `<publish>/<name>/<run id>`: s3://bucket/prefix."
    )

    @field_validator("publish")
    @classmethod
    def _to_an_address(cls, address: str) -> str:
        if expected := publishing_fault(address):
            raise ValueError(expected)
        return address


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> tuple[RunFolder, str]:
    """Check the keys: the run, and the address that gets it. Raises ConfigError, DataError for a run that is not there."""
    origins, title = origins or NoOrigins(), "task=publish cannot start; nothing was sent"
    if plain.get("publish") is None:
        expected, fix = "the address that gets the run", "publish=s3://bucket/prefix"
        raise ConfigError(title, [Problem(origins.location("publish"), "publish", "not set", expected, fix)])
    settings = task_settings(Keys, plain, origins, title=title)
    return run_of_task(settings.run, plain, origins), settings.publish


def run(task: tuple[RunFolder, str], console: Console) -> int:
    """Publish, and print where. Returns 0. Raises DataError for a run that has no seal, OutputError."""
    with FolderLock(task[0].root) as lock:
        for notice in lock.notices:
            console.warn(notice)
        console.say(publish_run(*task))
    return 0


def check_target(address: str) -> None:
    """Raises ConfigError where nothing can be published to an address, before anything is spent: no such bucket, no access, no answer."""
    is_bucket = scheme_of(address) in BUCKETS
    place = "/".join(address.split("/")[:3]) if is_bucket else address
    try:
        with file_system(place) as (files, path):
            if not files.exists(path) and is_bucket:
                raise FileNotFoundError(path)
    except DataError as error:
        fix = "check `publish`, the endpoint, the credentials and the connection"
        problems = [Problem(place, "publish", each.found, "a store that answers", fix) for each in error.problems]
        raise ConfigError("nothing can be published; nothing was started", problems) from error


def publish_run(folder: RunFolder, address: str) -> str:
    """Copy a sealed run to `<address>/<name>/<run id>`, unless its seal is there. Returns what to print.

    Raises DataError for a run without a seal and for a file that is not what was sealed, OutputError where something cannot be sent.
    """
    manifest, digests = checked_manifest(folder), _digests(folder)
    named = address_below(address, str(manifest["name"]))
    target = address_below(named, str(manifest["run_id"]))
    is_there = all(_read(address_below(target, name)) == (folder.root / name).read_bytes() for name in (MANIFEST, SEAL))
    if not is_there:
        with file_system(address_below(target, SEAL), writes=True) as (files, path):
            if files.exists(path):
                files.rm_file(path)  # from here on it is published in part
        for name in (*digests, MANIFEST, SEAL):
            with file_system(address_below(target, name), writes=True) as (files, path):
                files.put_file(str(folder.root / name), path)
    here = folder.latest.is_symlink() or folder.latest.is_file()
    if here and RunFolder.find(folder.latest).root.resolve() == folder.root.resolve():
        pointer = f"{manifest['run_id']}\n".encode()
        if _read(address_below(named, LATEST)) != pointer:
            with file_system(address_below(named, LATEST), writes=True) as (files, path):
                files.pipe_file(path, pointer)
    return f"published: {target}{' (it was there already)' if is_there else f' ({len(digests) + 2:,} files)'}"


def _digests(folder: RunFolder) -> dict[str, str]:
    """The digests of the sealed files. Raises DataError for no seal, and for a file that is missing or not what was sealed."""
    try:
        seal, fault = open_seal(folder.seal), "no seal.json"
    except ValueError as error:
        seal, fault = None, f"a damaged seal ({error})"
    if seal is None:
        fix = "start the run's command again: it is sealed when it ends"
        raise DataError(_NOT_PUBLISHED, [Problem(str(folder.root), "run", fault, "a run that has ended", fix)])
    digests: dict[str, str] = seal["files"]
    fix = f"task=verify run={folder.root} says what differs; start the run's command again"
    problems = [
        Problem(str(folder.root / name), "file", "missing, or not what was sealed", "the file as the run ended", fix)
        for name, digest in digests.items()
        if local_digest(folder.root / name) != digest
    ]
    if problems:
        raise DataError(_NOT_PUBLISHED, problems)
    return digests


def local_digest(path: Path) -> str | None:
    """The sha256 of a file of this machine; None for a link, or where there is none."""
    return sha256_file(path) if path.is_file() and not path.is_symlink() else None


def _read(address: str) -> bytes | None:
    try:
        return read_bytes(address)
    except DataError as error:
        raise OutputError(f"cannot publish to {address}: {error}") from error
