"""All runs of an output folder: read in a thread, newest first, and read again only where a file of a run has changed."""

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
from ragpipe.core.safe_text import on_one_line
from ragpipe.extras.view.listed_run import ListedRun, read_run, run_mark
from ragpipe.extras.view.run_files import Sweep, file_mark, read_sweep, scan_folder

EVERY_S = 1.0
"""So often the folder is looked at while somebody asks."""
PUBLISH_S = 0.5
"""So often a list that is still being read is shown."""
STALE_S = 3.0
"""A listing that is older is not given at once: the folder is looked at first, as far as that goes within `PATIENCE_S`."""
PATIENCE_S = 1.0
_IDLE_S = 5.0  # nobody asked for so long: the thread waits for the next one


@dataclass(frozen=True)
class Listing:
    """The folder at a moment. `runs` is newest first; `unread` counts those that are still to be read. `comparisons` are the
    folders of `task=compare` by key. `revision` changes with what is shown of finished runs."""

    runs: tuple[ListedRun, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    comparisons: Mapping[str, Path] = field(default_factory=dict)
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


class RunIndex:
    """The runs below `root`. A thread reads while somebody asks: `listing()` waits for it only where nobody has asked for long."""

    def __init__(self, root: Path):
        self.root = Path(root)
        self._known: dict[str, ListedRun] = {}
        self._sweeps: dict[str, tuple[Any, Sweep]] = {}
        self._listing = Listing(unread=1)
        self._published = threading.Condition()
        self._published_at = -math.inf
        self._asked = threading.Event()
        self._last_asked = 0.0
        self._is_stopped = False

    def start(self) -> None:
        """Begin to read, in a thread that ends with the process."""
        self._last_asked = time.monotonic()
        threading.Thread(target=self._work, name="ragpipe-view-index", daemon=True).start()

    def stop(self) -> None:
        """End the thread at its next step."""
        self._is_stopped = True
        self._asked.set()

    def listing(self) -> Listing:
        """What is known now. Waits up to `PATIENCE_S` where that is older than `STALE_S`: call it in a thread."""
        self._last_asked = time.monotonic()
        self._asked.set()
        with self._published:
            if time.monotonic() - self._published_at > STALE_S:
                self._published.wait(timeout=PATIENCE_S)
            return self._listing

    def read_all(self) -> Listing:
        """Read everything now, and return it."""
        for listing in self._steps():
            self._listing = listing
        return self._listing

    def _work(self) -> None:
        while not self._is_stopped:
            try:
                for listing in self._steps():
                    self._publish(listing)
                    if self._is_stopped:
                        return
            except Exception as error:  # this thread must not end: the page would stand still without a word
                fault = on_one_line(f"{self.root} cannot be read: {type(error).__name__}: {error}")
                self._publish(replace(self._listing, error=fault, revision=sha256(fault)[:12]))
            if time.monotonic() - self._last_asked > _IDLE_S:
                self._asked.clear()
                self._asked.wait()
            else:
                time.sleep(EVERY_S)

    def _publish(self, listing: Listing) -> None:
        with self._published:
            self._listing, self._published_at = listing, time.monotonic()
            self._published.notify_all()

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
        published = time.monotonic()
        paths, comparisons = scan.runs, scan.comparisons
        sweeps = tuple(self._read_sweeps(scan.sweeps))
        self._known = {key: known for key, known in self._known.items() if key in paths}
        unread = [key for key in paths if key not in self._known]
        for key in sorted(paths, key=lambda key: (key in self._known, -_changed(paths[key]))):
            root = paths[key]
            known = self._known.get(key)
            if known is None or known.is_unfinished or known.mark != run_mark(root):
                self._known[key] = read_run(root, key)
            if known is None and time.monotonic() - published > PUBLISH_S:
                published = time.monotonic()
                yield self._assembled(sweeps, comparisons, sum(key not in self._known for key in unread))
        yield self._assembled(sweeps, comparisons, 0)

    def _assembled(self, sweeps: tuple[Sweep, ...], comparisons: Mapping[str, Path], unread: int) -> Listing:
        runs = sorted(self._known.values(), key=lambda run: (run.created, run.key), reverse=True)
        marks = [(run.key, run.status.state, run.mark) for run in runs]
        revision = sha256([marks, [sweep.key for sweep in sweeps], sorted(comparisons), unread])[:12]
        return Listing(tuple(runs), sweeps, comparisons, unread, revision)

    def _read_sweeps(self, paths: Mapping[str, Path]) -> Iterator[Sweep]:
        for key, path in paths.items():
            mark = file_mark(path, "sweep.json")
            if key not in self._sweeps or self._sweeps[key][0] != mark:
                self._sweeps[key] = (mark, read_sweep(path, key))
            if self._sweeps[key][1].jobs:
                yield self._sweeps[key][1]


def _changed(path: Path) -> float:
    mark = file_mark(path, "manifest.json") or file_mark(path)
    return mark[0] if mark else 0
