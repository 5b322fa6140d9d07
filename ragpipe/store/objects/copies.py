"""Copies of files of object stores on a local disk, where every reader reads them.

A copy is used again while the store says of its file what it said when it was copied: one question, no byte. A file whose store tells
no version is copied at every start. Copies are named by their content, so that one that is in use never changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.errors import DataError, Problem
from ragpipe.store.files.atomic import atomic_write, output_error, sweep_temporaries, temporary_name
from ragpipe.store.objects.addresses import address_below, is_remote, name_fault, name_of, parent_of
from ragpipe.store.objects.object_requests import Transfers
from ragpipe.store.objects.object_store import ObjectInfo, object_store
from ragpipe.store.objects.settings import Storage

_NOTE = "copied.json"
MAX_FILES = 10_000
"""Files that are listed below a folder, at most."""
MAX_TEMPLATES_BYTES = 64 << 20
"""Bytes of a folder that is copied as a whole, at most."""


def transfers_to(address: str, storage: Storage) -> Transfers:
    """Requests to the store of an address."""
    return Transfers(object_store(address, storage.settings), storage.settings.tries)


def copied_file(address: str, storage: Storage) -> Path | None:
    """The copy of a file, made now unless there is one of the same version; None for a folder. Raises DataError, OutputError."""
    transfers = transfers_to(address, storage)
    info = transfers.info(address)
    return None if info is None else _copy(address, info, transfers, storage)


def _copy(address: str, info: ObjectInfo, transfers: Transfers, storage: Storage) -> Path:
    folder, name = copy_folder_of(address, storage), name_of(address) or "file"
    note, known = folder / _NOTE, {"address": address, "size": info.size, "version": info.version}
    noted = _noted(note)
    if info.version and all(noted.get(key) == value for key, value in known.items()):
        path = folder / str(noted.get("copy")) / name
        if path.is_file() and _state(path) == noted.get("state"):
            return path
    folder.mkdir(parents=True, exist_ok=True)
    sweep_temporaries(folder)
    part = temporary_name(folder)
    transfers.fetch(address, part, info)
    path = _placed(part, folder, name)
    atomic_write(note, json.dumps(known | {"copy": path.parent.name, "state": _state(path)}))
    return path


def _placed(part: Path, folder: Path, name: str) -> Path:
    """A copy at its place, which is named by its content: a copy that another start reads is neither changed nor replaced."""
    try:
        digest = sha256_file(part)
        path = folder / digest[:16] / name
        path.parent.mkdir(exist_ok=True)
        try:
            os.link(part, path)  # unlike a rename it fails where there is one
        except OSError:
            if not path.is_file() or sha256_file(path) != digest:
                os.replace(part, path)
    except OSError as error:
        raise output_error(folder, error) from error
    finally:
        part.unlink(missing_ok=True)
    return path


def copy_folder_of(address: str, storage: Storage) -> Path:
    """The folder of the copies of an address."""
    return storage.cache.absolute() / hashlib.sha256(address.encode()).hexdigest()[:16]


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _noted(note: Path) -> dict[str, Any]:
    """What was noted of the newest copy; empty for a note that cannot be read."""
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def copied_folder(address: str, storage: Storage) -> Path:
    """A copy of all files below a folder, for folders of small files such as prompts. Raises DataError, OutputError.

    What is below the folder names the copy, so that one that is in use never changes.
    """
    transfers = transfers_to(address, storage)
    if transfers.info(address) is not None:
        raise DataError(_TITLE, [Problem(address, "folder", "a file", "a folder", "name the folder that it is in")])
    listed = _listed(address, transfers)
    if (size := sum(info.size or 0 for info in listed)) > MAX_TEMPLATES_BYTES:
        limit = f"at most {MAX_TEMPLATES_BYTES >> 20} MiB"
        raise DataError(
            _TITLE, [Problem(address, "folder", f"{size >> 20} MiB", limit, "name a folder of prompts alone")]
        )
    names = [listing.name for listing in listed]
    infos = {name: info for name in names if (info := transfers.info(address_below(address, name)))}
    versions = {name: [info.size, info.version] for name, info in infos.items()}
    folder = copy_folder_of(address, storage)
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / sha256(versions)[:16]
    is_known = all(info.version for info in infos.values())
    if is_known and copy.is_dir():
        return copy
    with TemporaryDirectory(prefix=".part-", dir=folder) as scratch:
        part = Path(scratch) / "files"
        part.mkdir()
        for name, info in infos.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            transfers.fetch(address_below(address, name), part / name, info)
        if not is_known:
            copy = folder / sha256({name: sha256_file(part / name) for name in infos})[:16]
        try:
            part.rename(copy)
        except OSError:  # another start has made the same copy
            if not copy.is_dir():
                raise
    return copy


_TITLE = "a folder of an object store cannot be read"


def _listed(address: str, transfers: Transfers, fits: re.Pattern[str] | None = None) -> list[ObjectInfo]:
    """The files below a folder, of those names that fit. Raises DataError for too many, and for a name that would leave the folder."""
    listed = [info for info in transfers.listed(address) if info.name and not info.name.endswith("/")]
    listed = [info for info in listed if fits is None or fits.fullmatch(info.name)]
    if len(listed) > MAX_FILES:
        limit = f"at most {MAX_FILES:,}"
        raise DataError(
            _TITLE, [Problem(address, "folder", f"{len(listed):,} files", limit, "name a folder further down")]
        )
    for info in listed:
        parts = PurePosixPath(info.name).parts
        if info.name.startswith("/") or ".." in parts or "\\" in info.name or "\0" in info.name:
            problem = Problem(address, "file", repr(info.name), "names that stay below the folder", "rename it")
            raise DataError(_TITLE, [problem])
    return listed


@dataclass(frozen=True)
class LocalPlace:
    """A file or folder of this machine. `file` is None for a folder."""

    root: Path

    @property
    def file(self) -> Path | None:
        return None if self.root.is_dir() else self.root

    @property
    def _folder(self) -> Path:
        return self.root if self.root.is_dir() else self.root.parent

    def names(self, pattern: str) -> list[str]:
        """The files that a pattern such as `*.json` finds in the folder, or in the one of the file, sorted; those of an absolute
        pattern by their whole paths. Raises ValueError for what is no pattern."""
        root = Path(pattern).anchor
        folder, fits = Path(root or self._folder), _translated(pattern)
        files = [path for path in folder.glob(pattern.removeprefix(root)) if not path.is_dir()]
        names = [str(path) if root else str(path.relative_to(folder)) for path in files]
        return sorted(name for name in names if fits.fullmatch(Path(name).as_posix()))

    def below(self, name: str) -> Path:
        """A file of the folder by its name."""
        return self._folder / name


@dataclass(frozen=True)
class RemotePlace:
    """A file or folder of an object store, with the meaning of `LocalPlace`. Every file that is asked for is copied."""

    address: str
    storage: Storage
    file: Path | None

    @property
    def _folder(self) -> str:
        return self.address if self.file is None else parent_of(self.address)

    def names(self, pattern: str) -> list[str]:
        listed = _listed(self._folder, transfers_to(self._folder, self.storage), _translated(pattern))
        return sorted(info.name for info in listed)

    def below(self, name: str) -> Path:
        if expected := name_fault(self._folder, name):
            raise DataError(_TITLE, [Problem(self._folder, "file", "a name that is not taken", expected, "")])
        address = address_below(self._folder, name)
        path = copied_file(address, self.storage)
        if path is None:
            raise DataError(_TITLE, [Problem(address, "file", "a folder", "a file", "name a file of it, or a pattern")])
        return path


Place = LocalPlace | RemotePlace


def open_place(path: str, local: Path, storage: Storage) -> Place:
    """The place that a configured path names: an address, or `local`. A file of an object store is copied now."""
    return RemotePlace(path, storage, copied_file(path, storage)) if is_remote(path) else LocalPlace(local)


def _translated(pattern: str) -> re.Pattern[str]:
    """A pattern of files as a regular expression: `*`, `?` and `[ab]` stay in a folder, `**` is any folders. None of them stands for the
    dot that begins the name of a hidden file or folder. Raises ValueError for `**` that is not followed by a slash, or not alone."""
    *folders, last = pattern.split("/")
    if "**" in last or any("**" in folder and folder != "**" for folder in folders):
        raise ValueError("`**` stands for whole folders: **/*.jsonl")
    text, begins = "", True
    for piece in filter(None, re.split(r"(\*\*/|\*|\?|\[!?\]?[^\]/]*\])", pattern)):
        dot = r"(?!\.)" if begins else ""
        if piece == "**/":
            text += r"(?:(?!\.)[^/]+/)*"
        elif piece in ("*", "?"):
            text += dot + ("[^/]*" if piece == "*" else "[^/]")
        elif piece[0] == "[" and piece[-1] == "]":
            text += dot + f"(?!/){translate(piece)}".replace(r"\Z", "").replace(r"\z", "")
        else:
            text += re.escape(piece)
        begins = piece.endswith("/")
    return re.compile(text)
