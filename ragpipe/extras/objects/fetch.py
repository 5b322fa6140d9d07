"""`task=fetch`: a published run from an object store into `output_dir`, where every task works on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import Field

from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, task_settings
from ragpipe.extras.objects.publish import MANIFEST, SEAL, local_digest
from ragpipe.extras.objects.remote_files import file_system, read_bytes
from ragpipe.report.console import Console
from ragpipe.store.files import atomic_write
from ragpipe.store.places import address_below, address_fault, is_remote, name_of, parent_of
from ragpipe.store.run_folder import LATEST, RUN_ID, RunFolder
from ragpipe.store.seals import open_seal

_NOT_FETCHED = "a published run cannot be read"
_AGAIN = "remove its seal.json there and publish the run again"


class Keys(Settings):
    """`run` is the address of a published run."""

    run: str = Field(
        min_length=1,
        description="Address of a published run: that of its folder, or of a `latest`, s3://bucket/prefix/name/latest.",
    )


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> tuple[str, Path]:
    """Check the keys of this task: the address of the run, and the folder that gets it. Raises ConfigError."""
    origins, title = origins or NoOrigins(), "task=fetch cannot start; nothing was fetched"
    address = task_settings(Keys, plain, origins, title=title).run
    if not is_remote(address):
        expected = "an address, such as s3://bucket/prefix/name/latest"
        raise ConfigError(title, [Problem(origins.location("run"), "run", repr(address), expected)])
    return address, Path(str(plain.get("output_dir", "outputs")))


def run(task: tuple[str, Path], console: Console) -> int:
    """Fetch the run; files that are here already, by digest, are kept. Returns 0. Raises DataError and OutputError."""
    address, output_dir = task
    published = _published(address)
    published.check()
    folder = RunFolder.at(output_dir, str(published.sealed["manifest"]["name"]), name_of(published.address))
    if folder.manifest.exists() and local_digest(folder.seal) != sha256(published.seal):
        fix = "move it away, or choose another output_dir"
        problem = Problem(str(folder.root), "run", "another state of this run", "no such folder, or the same run", fix)
        raise DataError("a published run is not fetched over one that differs", [problem])
    console.folder = published.fetched(folder.root).root
    console.say(f"fetched: {folder.root}")
    return 0


@dataclass(frozen=True)
class _Published:
    """A run at an address: the bytes of its manifest and of its seal, and what the seal says."""

    address: str
    manifest: bytes
    seal: bytes
    sealed: dict[str, Any]

    def check(self) -> None:
        """Raises DataError where the manifest is not that of the seal and of this address. The states of iterations are not sealed."""
        address = address_below(self.address, MANIFEST)
        try:
            manifest = {key: value for key, value in json.loads(self.manifest).items() if key != "iterations"}
        except (ValueError, AttributeError) as error:
            raise _no_run(address, "no manifest of a run", _AGAIN) from error
        if manifest != self.sealed["manifest"]:
            raise _no_run(address, "a manifest that its seal does not hold", _AGAIN)
        if manifest.get("run_id") != name_of(self.address):
            what = f"the run {str(manifest.get('run_id'))[:40]}, and not {name_of(self.address)}"
            raise _no_run(address, what, "give the address that it was published to")

    def fetched(self, target: Path) -> RunFolder:
        """The run folder with what the seal names and is not here yet by digest; manifest and seal come last."""
        for name, digest in self.sealed["files"].items():
            address = address_below(self.address, name)
            if local_digest(target / name) == digest:
                continue
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".part-", dir=target) as scratch, file_system(address) as (files, path):
                part = Path(scratch, "file")
                files.get_file(path, str(part))
                if local_digest(part) != digest:
                    raise _no_run(address, "content that its seal does not name", _AGAIN)
                part.replace(target / name)
        atomic_write(target / MANIFEST, self.manifest)
        atomic_write(target / SEAL, self.seal)
        return RunFolder.find(target)


def _published(address: str) -> _Published:
    """The run of an address; that of a `latest` is the one that it names. Raises ConfigError, DataError."""
    if expected := address_fault(address):
        raise ConfigError(_NOT_FETCHED, [Problem("command line", "run", "an address that is not taken", expected)])
    source = parent_of(address) if name_of(address) == LATEST else address.rstrip("/")
    seal = None if name_of(address) == LATEST else read_bytes(address_below(source, SEAL))
    if seal is None and (pointer := read_bytes(address_below(source, LATEST))) is not None:
        run_id = pointer.decode("utf-8", "replace").strip()
        if not RUN_ID.fullmatch(run_id):
            raise _no_run(address_below(source, LATEST), f"a pointer to {run_id[:40]!r}", "publish the run again")
        source = address_below(source, run_id)
        seal = read_bytes(address_below(source, SEAL))
    manifest = read_bytes(address_below(source, MANIFEST))
    if seal is None or manifest is None:
        with file_system(source) as (files, path):
            fault = "no seal.json: published in part, or no run" if files.exists(path) else "nothing at this address"
        raise _no_run(source, fault, "task=publish run=RUN publish=ADDRESS puts a run there, or the rest of it")
    return _Published(source, manifest, seal, _opened(address_below(source, SEAL), seal))


def _opened(address: str, seal: bytes) -> dict[str, Any]:
    """What a published seal says. Raises DataError for one that was changed: it names what is fetched."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch, SEAL)
        path.write_bytes(seal)
        try:
            sealed = open_seal(path) or {}
            str(sealed["manifest"]["name"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _no_run(address, f"a damaged seal ({error})", _AGAIN) from error
        return sealed


def _no_run(address: str, found: str, fix: str) -> DataError:
    return DataError(_NOT_FETCHED, [Problem(address, "run", found, "a published run", fix)])
