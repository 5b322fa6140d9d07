"""Sealed run folders on object stores: copied there seal last, and back by the digests of their seal.

`<address>/<name>/<run id>/` holds the files that the seal names, `manifest.json`, `seal.json` and `.published.json`, which says what was
sent; `<address>/<name>/latest` is the id of the newest evaluation. A folder without a seal was published in part and is no run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.errors import ConfigError, DataError, OutputError, Problem, RagpipeError
from ragpipe.engine.runs.manifest import checked_manifest
from ragpipe.store.files.atomic import atomic_write
from ragpipe.store.objects.addresses import address_below, address_fault, bucket_of, name_of, parent_of
from ragpipe.store.objects.copies import copy_folder_of, transfers_to
from ragpipe.store.objects.object_requests import Transfers
from ragpipe.store.objects.settings import Storage
from ragpipe.store.run.run_folder import LATEST, RUN_ID, RunFolder
from ragpipe.store.run.seals import open_seal

_SENT, _MANIFEST, _SEAL = ".published.json", "manifest.json", "seal.json"
_NOTED_BYTES = (
    32 << 20
)  # sent since what was sent was last noted: what a killed process sends again at most, beside the file in flight
_NOT_PUBLISHED = "a run cannot be published"
_NOT_FETCHED = "a published run cannot be read"


@dataclass(frozen=True)
class Published:
    """Where a run is published, how many files were sent now, and how many were there already."""

    address: str
    sent: int
    kept: int

    def line(self) -> str:
        """What to print."""
        return f"published: {self.address} ({self.sent:,} files sent, {self.kept:,} there already)"


def check_target(address: str, storage: Storage) -> None:
    """Raises ConfigError where nothing can be published to an address, before anything is spent: no such bucket, no access, no answer."""
    bucket = bucket_of(address)
    try:
        if bucket is None:
            transfers_to(address, storage).exists(address)  # a folder is made
        else:
            transfers_to(bucket, storage).info(bucket)
    except DataError as error:
        what = "a bucket" if bucket is not None else "a store"
        problems = [_as_target(problem, what) if problem.key == "file" else problem for problem in error.problems]
        raise ConfigError("nothing can be published; nothing was started", problems) from error


def _as_target(problem: Problem, what: str) -> Problem:
    """A fault of reading said of what was looked at: not a file, but the place of many."""
    fix = "check `publish`, storage.endpoint and the connection; storage.tries allows more tries"
    return Problem(problem.where, "publish", problem.found, f"{what} that answers", fix)


def publish_run(folder: RunFolder, address: str, storage: Storage) -> Published:
    """Copy a sealed run to `<address>/<name>/<run id>`. What is there with the same digest is not sent again.

    Raises DataError for a run without a seal and for a file that is not what was sealed, OutputError where something cannot be sent.
    """
    manifest = checked_manifest(folder)
    digests = _digests(folder.root, _sealed(folder))
    named = address_below(address, str(manifest["name"]))
    target = address_below(named, str(manifest["run_id"]))
    transfers = transfers_to(target, storage)
    try:
        published = _send(folder.root, digests, target, transfers)
        if folder.latest.is_symlink() or folder.latest.is_file():
            _point(folder, address_below(named, LATEST), str(manifest["run_id"]), transfers)
    except DataError as error:  # what is there could not be read
        raise OutputError(f"cannot publish to {target}: {error}") from error
    return published


def _sealed(folder: RunFolder) -> dict[str, Any]:
    try:
        seal = open_seal(folder.seal)
    except ValueError as error:
        raise _unsealed(folder, f"a damaged seal ({error})") from error
    if seal is None:
        raise _unsealed(folder, "no seal.json")
    return seal


def _unsealed(folder: RunFolder, found: str) -> DataError:
    fix = "start the run's command again: it is sealed when it ends"
    return DataError(_NOT_PUBLISHED, [Problem(str(folder.root), "run", found, "a run that has ended", fix)])


def sealed_digests(seal: Mapping[str, Any]) -> dict[str, str]:
    """The sha256 of every file that a seal names."""
    return {**seal["files"], **{name: table["sha256"] for name, table in seal["tables"].items()}}


def _digests(root: Path, seal: Mapping[str, Any]) -> dict[str, str]:
    """The digests of the sealed files. Raises DataError for a file that is missing or not what was sealed."""
    digests = sealed_digests(seal)
    problems = []
    for name, digest in digests.items():
        if (found := _digest(root / name)) != digest:
            actual = "no such file" if found is None else "content that is not what was sealed"
            fix = f"task=verify run={root} says what differs; start the run's command again"
            problems.append(Problem(str(root / name), "file", actual, "the file as the run ended", fix))
    if problems:
        raise DataError(_NOT_PUBLISHED, problems)
    return digests


def _digest(path: Path) -> str | None:
    return sha256_file(path) if path.is_file() and not path.is_symlink() else None


def _send(root: Path, digests: Mapping[str, str], target: str, transfers: Transfers) -> Published:
    noted = _noted(transfers.read_bytes(address_below(target, _SENT)))
    kept = {name: entry for name, entry in noted.items() if _is_there(name, entry, digests, target, transfers)}
    missing = [name for name in digests if name not in kept]
    ends = {name: (root / name).read_bytes() for name in (_MANIFEST, _SEAL)}
    if not missing and all(
        transfers.read_bytes(address_below(target, name)) == content for name, content in ends.items()
    ):
        return Published(target, 0, len(digests) + len(ends))
    transfers.delete(address_below(target, _SEAL))  # from here on it is published in part
    unnoted = 0
    try:
        for name in missing:
            transfers.upload(root / name, address_below(target, name))
            info = transfers.info(address_below(target, name))
            kept[name] = [digests[name], info.size if info else None, info.version if info else ""]
            unnoted += (root / name).stat().st_size
            if unnoted >= _NOTED_BYTES:
                _note(kept, target, transfers)
                unnoted = 0
    except BaseException:
        with suppress(RagpipeError):  # what went wrong first is what is said
            _note(kept, target, transfers)
        raise
    if missing:
        _note(kept, target, transfers)
    for name, content in ends.items():
        transfers.write_bytes(content, address_below(target, name))
    return Published(target, len(missing) + len(ends), len(digests) - len(missing))


def _noted(content: bytes | None) -> dict[str, list[Any]]:
    """By file what was sent: its digest, its size and its version there. Empty for a note that cannot be read."""
    try:
        note = json.loads(content or b"{}")
    except ValueError:
        return {}
    entries = note.items() if isinstance(note, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, list) and len(entry) == 3}


def _note(kept: Mapping[str, Any], target: str, transfers: Transfers) -> None:
    transfers.write_bytes(json.dumps(dict(sorted(kept.items())), indent=1).encode(), address_below(target, _SENT))


def _is_there(name: str, entry: list[Any], digests: Mapping[str, str], target: str, transfers: Transfers) -> bool:
    """Whether what was sent is still there, unchanged, and is what is to be sent."""
    digest, size, version = entry
    if digests.get(name) != digest or not version:
        return False
    info = transfers.file_at(address_below(target, name))
    return info is not None and (info.size, info.version) == (size, version)


def _point(folder: RunFolder, address: str, run_id: str, transfers: Transfers) -> None:
    """Point `latest` there to this run, where it does so here."""
    if RunFolder.find(folder.latest).root.resolve() == folder.root.resolve():
        content = f"{run_id}\n".encode()
        if transfers.read_bytes(address) != content:
            transfers.write_bytes(content, address)


def fetch_run(address: str, storage: Storage, *, check: bool = True) -> RunFolder:
    """The copy of a published run, in the folder of copies. `address` is that of a run folder, of a `latest`, or of the folder of one.

    Files that are here with the digest of the seal are not fetched again. With `check` every file is what the seal names; without it a
    changed file is what it is there, for `task=verify` to find. Raises ConfigError for a wrong address, DataError.
    """
    source, seal = _published(_checked(address), storage)
    ends = _read_ends(source, seal, storage, check=check)
    return _fetched(source, ends, copy_folder_of(parent_of(source), storage) / name_of(source), storage, check=check)


def fetch_run_to(address: str, output_dir: Path, storage: Storage) -> RunFolder:
    """A published run as a run of `output_dir`. Raises DataError where another state of it is there already."""
    source, seal = _published(_checked(address), storage)
    ends = _read_ends(source, seal, storage, check=True)
    folder = RunFolder.at(output_dir, str(ends.sealed["manifest"]["name"]), name_of(source))
    if folder.manifest.exists() and _digest(folder.seal) != sha256(seal):
        fix = "move it away, or choose another output_dir"
        problem = Problem(str(folder.root), "run", "another state of this run", "no such folder, or the same run", fix)
        raise DataError("a published run is not fetched over one that differs", [problem])
    return _fetched(source, ends, folder.root, storage, check=True)


def _checked(address: str) -> str:
    if expected := address_fault(address):
        raise ConfigError(_NOT_FETCHED, [Problem("command line", "run", "an address that is not taken", expected)])
    return address


def _published(address: str, storage: Storage) -> tuple[str, bytes]:
    """The address of the run folder, and its seal."""
    transfers = transfers_to(address, storage)
    source = address.rstrip("/")
    if name_of(source) == LATEST:
        source = parent_of(source)
    seal = None if name_of(address) == LATEST else transfers.read_bytes(address_below(source, _SEAL))
    if seal is None and (pointer := transfers.read_bytes(address_below(source, LATEST))) is not None:
        run_id = pointer.decode("utf-8", "replace").strip()
        if not RUN_ID.fullmatch(run_id):
            raise _no_run(address_below(source, LATEST), f"a pointer to {run_id[:40]!r}", "publish the run again")
        source = address_below(source, run_id)
        seal = transfers.read_bytes(address_below(source, _SEAL))
    if seal is None and transfers.exists(source):
        fix = "publish it again (task=publish): what was sent is not sent again"
        raise _no_run(source, "no seal.json: published in part, or no run", fix)
    if seal is None:
        raise _no_run(source, "nothing at this address", "task=publish run=RUN publish=ADDRESS puts a run there")
    return source, seal


def _no_run(address: str, found: str, fix: str) -> DataError:
    return DataError(_NOT_FETCHED, [Problem(address, "run", found, "a published run", fix)])


@dataclass(frozen=True)
class _Ends:
    """What a published run ends with: the bytes of its manifest and of its seal, and what the seal says."""

    manifest: bytes
    seal: bytes
    sealed: dict[str, Any]


def _read_ends(source: str, seal: bytes, storage: Storage, *, check: bool) -> _Ends:
    """The manifest and the seal of a published run. With `check` the manifest is the one of the seal and of this address; the states
    of its iterations are not sealed. Raises DataError."""
    sealed = _read_seal(source, seal)
    address, fix = address_below(source, _MANIFEST), "publish the run again; task=verify run=ADDRESS says what differs"
    content = transfers_to(source, storage).read_bytes(address)
    if content is None:
        raise _no_run(address, "nothing at this address", "publish the run again")
    if check:
        try:
            manifest = {key: value for key, value in json.loads(content).items() if key != "iterations"}
        except (ValueError, AttributeError) as error:
            raise _no_run(address, "no manifest of a run", "publish the run again") from error
        if manifest != sealed["manifest"]:
            raise _no_run(address, "a manifest that its seal does not hold", fix)
        if manifest.get("run_id") != name_of(source):
            what = f"the run {str(manifest.get('run_id'))[:40]}, and not {name_of(source)}"
            raise _no_run(address, what, "give the address that it was published to")
    return _Ends(content, seal, sealed)


def _fetched(source: str, ends: _Ends, target: Path, storage: Storage, *, check: bool) -> RunFolder:
    """The run folder with what its seal names; manifest and seal come last."""
    transfers = transfers_to(source, storage)
    target.mkdir(parents=True, exist_ok=True)
    for name, digest in sealed_digests(ends.sealed).items():
        if _digest(target / name) == digest:
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        _fetch(address_below(source, name), target / name, transfers)
        if check and _digest(target / name) != digest:
            fix = "publish the run again; task=verify run=ADDRESS says what differs"
            raise _no_run(address_below(source, name), "content that its seal does not name", fix)
    atomic_write(target / _MANIFEST, ends.manifest)
    atomic_write(target / _SEAL, ends.seal)
    return RunFolder.find(target)


def _read_seal(source: str, seal: bytes) -> dict[str, Any]:
    """What a published seal says. Raises DataError for one that was changed: it names what is fetched."""
    with TemporaryDirectory() as scratch:
        fetched = Path(scratch) / _SEAL
        fetched.write_bytes(seal)
        try:
            opened = open_seal(fetched)
            if opened is None:
                raise ValueError("it is empty")
            sealed_digests(opened)
            str(opened["manifest"]["name"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _no_run(address_below(source, _SEAL), f"a damaged seal ({error})", "publish the run again") from error
        return opened


def _fetch(address: str, target: Path, transfers: Transfers) -> None:
    info = transfers.info(address)
    if info is None:
        raise _no_run(address, "a folder", "publish the run again")
    transfers.fetch(address, target, info)
