"""All runs of an output folder: read when somebody asks, newest first, and again only where a file of a run has changed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.text import on_one_line
from ragpipe.extras.view.listed_run import FILES, ListedRun, read_run, run_mark
from ragpipe.extras.view.run_files import FolderScan, Sweep, file_mark, read_sweep, scan_folder

EVERY_S = 1.0
"""So often the folder is looked at while somebody asks."""
PUBLISH_S = 0.5
"""So long runs are read before the list is given as far as it is known: the next who asks goes on."""


@dataclass(frozen=True)
class Listing:
    """The folder at a moment. `runs` is newest first; `unread` counts those that are still to be read. `comparisons` are the
    folders of `task=compare` by key, `pages` histories and checks for drift. `revision` changes with what is shown of finished runs."""

    runs: tuple[ListedRun, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    comparisons: Mapping[str, Path] = field(default_factory=dict)
    pages: Mapping[str, Path] = field(default_factory=dict)
    unread: int = 0
    revision: str = ""
    error: str = ""

    @cached_property
    def by_key(self) -> Mapping[str, ListedRun]:
        """The runs by their keys: what an address may name."""
        return {run.key: run for run in self.runs}

    def sweep(self, key: str) -> Sweep | None:
        """The sweep of a key; None for any other word."""
        return next((sweep for sweep in self.sweeps if sweep.key == key), None)

    def file(self, path: str) -> tuple[Path, tuple[str, ...]] | None:
        """The folder and the way below it of a file that the page links to, by its address; None for any other."""
        parts = path.split("/")
        for length in range(1, min(4, len(parts))):
            key, name = "/".join(parts[:-length]), "/".join(parts[-length:])
            run, sweep = self.by_key.get(key), self.sweep(key)
            if run and (name in FILES or name in [page.path for page in run.pages]):
                return run.root, tuple(parts[-length:])
            if sweep and name in ("comparison.html", "comparison.md"):
                return sweep.root, (name,)
            if name == "compare.html" and key in self.comparisons:
                return self.comparisons[key], (name,)
        return (self.pages[path].parent, (self.pages[path].name,)) if path in self.pages else None

    def neighbours(self, run: ListedRun) -> tuple[ListedRun | None, ListedRun | None]:
        """The run before and the one after of the same name that have a report."""
        same = [other for other in self.runs if other.name == run.name and (other is run or "report.html" in other.files)]
        place = same.index(run)
        return same[place + 1] if place + 1 < len(same) else None, same[place - 1] if place else None


class RunIndex:
    """The runs below `root`."""

    def __init__(self, root: Path):
        self.root = Path(root)
        self._known: dict[str, ListedRun] = {}
        self._sweeps: dict[str, tuple[Any, Sweep]] = {}
        self._listing = Listing(unread=1)
        self._lock = threading.Lock()
        self._pass: Iterator[Listing] | None = None
        self._looked_at = -math.inf

    def listing(self) -> Listing:
        """What is known now, at most `EVERY_S` old. Reads for about `PUBLISH_S` at most: call it in a thread."""
        with self._lock:
            if self._pass is None and time.monotonic() - self._looked_at < EVERY_S:
                return self._listing
            self._pass = self._pass or self._steps()
            try:
                self._listing = next(self._pass)
            except Exception as error:  # the page must stay, and say what is wrong
                fault = on_one_line(f"{self.root} cannot be read: {type(error).__name__}: {error}")
                self._listing = replace(self._listing, error=fault, unread=0, revision=sha256(fault)[:12])
            if not self._listing.unread:
                self._pass, self._looked_at = None, time.monotonic()
            return self._listing

    def read_all(self) -> Listing:
        """Read everything now, and return it."""
        *_, self._listing = self._steps()
        return self._listing

    def _steps(self) -> Iterator[Listing]:
        """Listings of one pass over the folder: one every `PUBLISH_S` while runs are being read, and the last one."""
        try:
            scan = scan_folder(self.root)
        except FileNotFoundError:
            yield Listing(error=on_one_line(f"{self.root}: no such folder; a first run makes it"))
            return
        except OSError as error:
            yield Listing(error=on_one_line(f"{self.root} cannot be read: {error.strerror}"))
            return
        published, paths = time.monotonic(), scan.runs
        sweeps = tuple(self._read_sweeps(scan.sweeps))
        self._known = {key: known for key, known in self._known.items() if key in paths}
        unread = [key for key in paths if key not in self._known]
        for key in sorted(paths, key=lambda key: (key in self._known, -_changed(paths[key]))):
            known = self._known.get(key)
            if known is None or known.is_unfinished or known.mark != run_mark(paths[key]):
                self._known[key] = read_run(paths[key], key)
            if known is None and time.monotonic() - published > PUBLISH_S:
                published = time.monotonic()
                yield self._assembled(sweeps, scan, sum(key not in self._known for key in unread))
        yield self._assembled(sweeps, scan, 0)

    def _assembled(self, sweeps: tuple[Sweep, ...], scan: FolderScan, unread: int) -> Listing:
        runs = sorted(self._known.values(), key=lambda run: (run.created, run.key), reverse=True)
        marks = [(run.key, run.status.state, run.mark) for run in runs]
        revision = sha256([marks, [sweep.key for sweep in sweeps], sorted((*scan.comparisons, *scan.pages)), unread])[:12]
        return Listing(tuple(runs), sweeps, scan.comparisons, scan.pages, unread, revision)

    def _read_sweeps(self, paths: Mapping[str, Path]) -> Iterator[Sweep]:
        for key, path in paths.items():
            mark = file_mark(path, "sweep.json")
            if key not in self._sweeps or self._sweeps[key][0] != mark:
                self._sweeps[key] = (mark, read_sweep(path, key))
            if self._sweeps[key][1].jobs:
                yield self._sweeps[key][1]


def _changed(path: Path) -> float:
    return (file_mark(path, "manifest.json") or file_mark(path) or (0,))[0]
