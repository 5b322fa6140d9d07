"""Files of run folders for a server: the folder may come from anybody, and nothing in it may hang, fill or leave it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ragpipe.core.errors import DataError, Problem, RagpipeError
from ragpipe.core.version import FORMAT, format_mismatch
from ragpipe.runs.run_list import run_folders, run_list_folders
from ragpipe.store.files import open_regular
from ragpipe.store.run_folder import COMPARISONS, HISTORY, SWEEPS
from ragpipe.store.run_tables import check_sealed, shape_fault

JSON_MAX = 64 << 20
"""Bytes of a JSON file that the index reads: that of a run of 100,000 cases has a few millions."""


def opened_below(root: Path, parts: Sequence[str]) -> BinaryIO:
    """A file below a folder, opened for reading. Raises DataError unless it is a regular file that can be read, and no part of
    its path below `root` is a link. Opening never waits (a pipe would)."""
    path = root
    for part in parts:
        if part in ("", ".", "..") or "/" in part or os.sep in part or "\0" in part:
            raise _refused(root, f"the name {part!r}", "a name without levels")
        path = path / part
        if path.is_symlink():
            raise _refused(path, "a symbolic link", "the file itself: links in a run folder are not followed")
    try:
        return open_regular(path)
    except FileNotFoundError as error:
        raise _refused(path, "no such file", "a file of a run") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: ")
        raise _refused(path, reason, "a readable regular file") from error


def bytes_below(root: Path, *parts: str, limit: int = JSON_MAX) -> bytes:
    """The content of a file below a folder. Raises DataError, also for one larger than `limit` bytes."""
    try:
        with opened_below(root, parts) as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise _refused(root.joinpath(*parts), str(error), "a readable file") from error
    if len(content) > limit:
        raise _refused(root.joinpath(*parts), f"more than {limit:,} bytes", f"at most {limit:,}")
    return content


def json_below(root: Path, *parts: str, limit: int = JSON_MAX) -> dict[str, Any]:
    """A JSON object below a folder. Raises DataError."""
    raw, path = bytes_below(root, *parts, limit=limit), root.joinpath(*parts)
    check_sealed(path)
    try:
        content = json.loads(raw)
    except (RecursionError, ValueError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise _refused(path, f"no readable JSON ({why})"[:200], "a JSON object") from error
    if not isinstance(content, dict):
        raise _refused(path, f"a JSON {type(content).__name__}", "a JSON object")
    if fault := shape_fault(path, content):
        raise _refused(path, fault, "what ragpipe wrote")
    return content


def manifest_below(root: Path) -> dict[str, Any]:
    """The manifest of a run folder. Raises DataError; FormatMismatch for a run of another format."""
    manifest = json_below(root, "manifest.json")
    if type(written := manifest.get("format")) is not int or written != FORMAT:
        title = "a run of another format is not read"
        fix = "start the run's command again, or use the ragpipe that made this one"
        raise format_mismatch(title, root / "manifest.json", written, manifest.get("ragpipe"), fix)
    return manifest


def file_mark(root: Path, *parts: str) -> tuple[int, int] | None:
    """Time and size of a file below a folder, which change with its content; None where there is none."""
    try:
        status = os.lstat(root.joinpath(*parts))
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


def is_file_below(root: Path, *parts: str) -> bool:
    """Whether there is a file below a folder that is no link, pipe, device or folder."""
    try:
        return stat.S_ISREG(os.lstat(root.joinpath(*parts)).st_mode)
    except (OSError, ValueError):
        return False


def _refused(path: Path, content: str, expected: str) -> DataError:
    return DataError("cannot read this run", [Problem(str(path), "file", content, expected)])


@dataclass(frozen=True)
class Sweep:
    """A sweep: its words, and the run folder of each job, by key."""

    key: str
    words: tuple[str, ...]
    jobs: tuple[str, ...]
    root: Path

    @property
    def file(self) -> str:
        """Its page; of one without a page its table in Markdown."""
        return "comparison.html" if is_file_below(self.root, "comparison.html") else "comparison.md"


@dataclass
class FolderScan:
    """The folders below an output folder by their keys: paths from there, with `/`. `pages` are single pages: histories of names, and
    what is known of the drift of judges."""

    runs: dict[str, Path] = field(default_factory=dict)
    comparisons: dict[str, Path] = field(default_factory=dict)
    sweeps: dict[str, Path] = field(default_factory=dict)
    pages: dict[str, Path] = field(default_factory=dict)


def scan_folder(root: Path) -> FolderScan:
    """Look through an output folder. Raises OSError where the folder itself cannot be read."""
    os.listdir(root)
    scan = FolderScan()
    drift = root / ".store" / "drift"
    found = [] if drift.is_symlink() or drift.parent.is_symlink() else sorted(drift.glob("*.html"))
    for folder in run_list_folders(root):
        name = folder.relative_to(root).as_posix()
        scan.runs |= _by_key(name, run_folders(folder))
        found += [] if (folder / HISTORY).is_symlink() else [folder / HISTORY / "history.html"]
        for kind, places, file in ((COMPARISONS, scan.comparisons, "compare.html"), (SWEEPS, scan.sweeps, "sweep.json")):
            made: Iterable[Path] = () if (folder / kind).is_symlink() else run_folders(folder / kind)
            places |= _by_key(f"{name}/{kind}", (path for path in made if file_mark(path, file)))
    for path in found:
        if is_file_below(path.parent, path.name):
            scan.pages |= _by_key(path.parent.relative_to(root).as_posix(), [path])
    return scan


def _by_key(name: str, paths: Iterable[Path]) -> dict[str, Path]:
    """The folders by their keys. A name that is no Unicode text cannot be part of an address: it is skipped."""
    keys = {f"{name}/{path.name}": path for path in paths}
    return {key: path for key, path in keys.items() if key.encode("utf-8", "replace").decode() == key}


def read_sweep(root: Path, key: str) -> Sweep:
    """A sweep from its `sweep.json`; without jobs where that cannot be read."""
    name = key.rsplit("/", 2)[0]
    try:
        content = json_below(root, "sweep.json")
        words = tuple(map(str, content["overrides"]))
        jobs = tuple(f"{name}/{job['run_id']}" for job in content["jobs"] if job["run_id"])
    except (RagpipeError, KeyError, TypeError):
        return Sweep(key, (), (), root)
    return Sweep(key, words, jobs, root)
