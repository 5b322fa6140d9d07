"""The difference of each run to the run before of the same name: paired over the cases of both, one after another in a thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragpipe.comparing.equal_answers import EqualAnswers
from ragpipe.comparing.pairing import paired_cases
from ragpipe.comparing.score_differences import paired_score
from ragpipe.comparing.settings import CompareSettings
from ragpipe.comparing.side import opened_side
from ragpipe.engine.runs.manifest import checked_manifest
from ragpipe.extras.view.listed_run import ListedRun
from ragpipe.reports.number_format import plural
from ragpipe.store.run.run_folder import RunFolder

NEWEST = 200
"""So many of the newest runs get their difference."""


@dataclass(frozen=True)
class RunChange:
    """The main score of a run less that of the run before: in words, and as better, worse, same or inconclusive."""

    words: str
    state: str
    before: str


def runs_before(runs: Sequence[ListedRun]) -> dict[str, ListedRun]:
    """For each run the newest earlier one of its name that measured the main score in the same way on the same samples.

    `runs` is newest first. Runs of a self-test, whose answers are made up, have and are none.
    """
    earlier: dict[tuple[str, str, str], ListedRun] = {}
    before = {}
    for run in reversed(runs):
        if run.main is None or run.is_unfinished or run.selftest:
            continue
        series = (run.name, run.series, run.main.name)
        if series in earlier:
            before[run.key] = earlier[series]
        earlier[series] = run
    return before


def measured_change(before: ListedRun, run: ListedRun) -> RunChange:
    """Read both runs and compare their main score. Takes up to seconds for large runs. Never raises."""
    try:
        folders = RunFolder(before.root), RunFolder(run.root)
        with (
            opened_side(folders[0], checked_manifest(folders[0])) as base,
            opened_side(folders[1], checked_manifest(folders[1])) as side,
        ):
            name = run.main.name if run.main else ""
            pairs = paired_cases(base.cases, side.cases)
            verdict = paired_score(name, base, side, pairs, EqualAnswers(base, side, pairs)).decided(CompareSettings())
    except Exception as error:  # a damaged run: the list says so in this place and nowhere else
        return RunChange(f"not compared ({type(error).__name__})", "", before.key)
    if verdict is None:
        return RunChange("no shared case", "", before.key)
    paired, interval = verdict.paired, verdict.paired.interval
    if not (paired.changed or paired.difference):
        return RunChange(f"no change in {plural(len(pairs), 'case')}", "same", before.key)
    bounds = "" if interval is None or interval.too_few else f" [{interval.low:+.2f}, {interval.high:+.2f}]"
    return RunChange(f"{paired.difference:+.2f}{bounds}", verdict.state, before.key)


class RunChanges:
    """The differences that are known, and a thread that finds out the others, newest first."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], RunChange] = {}
        self._wanted: list[tuple[ListedRun, ListedRun]] = []
        self._lock = threading.Condition()
        self._is_stopped = False
        self._runs_key: str | None = None
        self._before: Mapping[str, ListedRun] = {}

    def start(self) -> None:
        """Begin to compare, in a thread that ends with the process."""
        threading.Thread(target=self._work, name="ragpipe-view-changes", daemon=True).start()

    def stop(self) -> None:
        """End the thread after the comparison that it is at."""
        with self._lock:
            self._is_stopped = True
            self._lock.notify()

    def of(self, runs: Sequence[ListedRun], revision: str) -> tuple[dict[str, RunChange | None], int]:
        """The differences of these runs by key, None for one that is still to be found out, and how many are known. A run
        without a run before is not in it."""
        if revision != self._runs_key:
            self._before, self._runs_key = runs_before(runs), revision
        pairs = [(run, self._before[run.key]) for run in runs if run.key in self._before][:NEWEST]
        changes = {run.key: self._known.get(_pair_key(before, run)) for run, before in pairs}
        missing = [(before, run) for run, before in pairs if changes[run.key] is None]
        with self._lock:
            self._wanted = missing
            self._lock.notify()
        return changes, len(changes) - len(missing)

    def all_of(self, runs: Sequence[ListedRun]) -> dict[str, RunChange | None]:
        """The differences of these runs, found out now."""
        before = runs_before(runs)
        newest = [run for run in runs if run.key in before][:NEWEST]
        return {run.key: measured_change(before[run.key], run) for run in newest}

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._wanted and not self._is_stopped:
                    self._lock.wait()
                if self._is_stopped:
                    return
                before, run = self._wanted.pop(0)
            if _pair_key(before, run) not in self._known:
                self._known[_pair_key(before, run)] = measured_change(before, run)


def _pair_key(before: ListedRun, run: ListedRun) -> tuple[object, ...]:
    return before.key, before.mark, run.key, run.mark
