"""The difference of each run to the previous run of the same name: paired over the cases of both, one after another in a thread beside the page."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ragpipe.comparison.score_differences import paired_score
from ragpipe.comparison.settings import CompareSettings
from ragpipe.comparison.side import EqualAnswers, opened_side, paired_cases
from ragpipe.extras.view.listed_run import ListedRun
from ragpipe.report.styled_text import plural
from ragpipe.runs.manifest import checked_manifest
from ragpipe.store.run_folder import RunFolder

NEWEST = 200
"""So many of the newest runs get their difference."""


@dataclass(frozen=True)
class RunChange:
    """The main score of a run less that of the previous run: in words, and as better, worse, same or inconclusive."""

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
        first, second = RunFolder(before.root), RunFolder(run.root)
        with opened_side(first, checked_manifest(first)) as base, opened_side(second, checked_manifest(second)) as side:
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
        self._found: dict[tuple[object, ...], Future[RunChange]] = {}
        self._thread = ThreadPoolExecutor(1, "ragpipe-view-changes")

    def stop(self) -> None:
        """End the thread after the comparison that it is at."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def of(self, runs: Sequence[ListedRun]) -> tuple[dict[str, RunChange | None], int]:
        """The differences of these runs by key, None for one that is still to be found out, and how many are known. A run
        without a previous run is not in it."""
        changes: dict[str, RunChange | None] = {}
        for before, run in _compared(runs):
            pair = (before.key, before.mark, run.key, run.mark)
            if (found := self._found.get(pair)) is None:
                found = self._found[pair] = self._thread.submit(measured_change, before, run)
            changes[run.key] = found.result() if found.done() else None
        return changes, sum(change is not None for change in changes.values())


def all_changes(runs: Sequence[ListedRun]) -> dict[str, RunChange | None]:
    """The differences of these runs, found out now."""
    return {run.key: measured_change(before, run) for before, run in _compared(runs)}


def _compared(runs: Sequence[ListedRun]) -> list[tuple[ListedRun, ListedRun]]:
    """The newest runs, each after the one that it is compared with."""
    before = runs_before(runs)
    return [(before[run.key], run) for run in runs if run.key in before][:NEWEST]
