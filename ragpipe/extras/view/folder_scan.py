"""What an output folder holds: run folders, comparisons and sweeps by their keys. Links are skipped, and so is what cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ragpipe.core.errors import RagpipeError
from ragpipe.engine.runs.run_list import DEPTH
from ragpipe.extras.view.run_files import file_mark, json_below
from ragpipe.store.run.run_folder import COMPARISONS, RUN_ID, SWEEPS


@dataclass(frozen=True)
class Sweep:
    """A sweep: its words, and the run folder of each job, by key."""

    key: str
    words: tuple[str, ...]
    jobs: tuple[str, ...]
    root: Path


@dataclass
class FolderScan:
    """The folders below an output folder by their keys: paths from there, with `/`."""

    runs: dict[str, Path] = field(default_factory=dict)
    comparisons: dict[str, Path] = field(default_factory=dict)
    sweeps: dict[str, Path] = field(default_factory=dict)


def scan_folder(root: Path) -> FolderScan:
    """Look through an output folder. Raises OSError where the folder itself cannot be read."""
    scan = FolderScan()
    os.listdir(root)
    _scan(root, "", DEPTH, scan)
    return scan


def run_home(run: Path, output_dir: Path) -> tuple[Path, str]:
    """The output folder of a run folder and its key there: `output_dir` where it holds the run, else the folder two above. Both
    paths are resolved."""
    home = output_dir if run.is_relative_to(output_dir) else run.parent.parent
    return home, run.relative_to(home).as_posix()


def _scan(folder: Path, prefix: str, depth: int, scan: FolderScan) -> None:
    """A run folder has an id for a name, or a manifest; a name may have levels (`team/nightly`)."""
    for name in _folders(folder):
        key, path = prefix + name, folder / name
        if prefix and name in (COMPARISONS, SWEEPS):
            _scan_made(path, key, scan, name)
        elif prefix and (RUN_ID.fullmatch(name) or file_mark(path, "manifest.json")):
            scan.runs[key] = path
        elif depth and not name.startswith(".") and not file_mark(path, "manifest.json"):
            _scan(path, f"{key}/", depth - 1, scan)


def _scan_made(folder: Path, key: str, scan: FolderScan, kind: str) -> None:
    places, file = (scan.comparisons, "compare.html") if kind == COMPARISONS else (scan.sweeps, "sweep.json")
    for name in _folders(folder):
        if RUN_ID.fullmatch(name) and file_mark(folder / name, file):
            places[f"{key}/{name}"] = folder / name


def _folders(folder: Path) -> Iterator[str]:
    """The names of the folders in a folder, in order. A name that is no Unicode text cannot be part of an address: it is skipped."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in sorted(names):
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            continue
        yield name


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
