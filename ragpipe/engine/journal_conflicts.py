"""Contradictions in a run's journal: a case that was finished twice with different scores, because its replies changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.core.errors import RagpipeError
from ragpipe.schema.sample import CaseKey
from ragpipe.stages.resume import JOURNAL_FORM, case_mark, case_of
from ragpipe.store.run.journal import read_entries
from ragpipe.store.run.run_folder import RunFolder


@dataclass(frozen=True)
class RunDifference:
    """A file that differs from what the run wrote: `where` is its path in the run folder, `what` says how it differs."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def journal_conflicts(folder: RunFolder, iterations: Sequence[int]) -> Iterator[RunDifference]:
    """One conflict per iteration whose journal finished a case twice with different values of a score.

    A case that failed the first time, or that the user had asked again (`retry_errors`), is no contradiction. A run without
    a journal (a re-scored one) has none.
    """
    for number in iterations:
        path = folder.iteration(number).journal
        name = path.relative_to(folder.root).as_posix()
        try:
            contradictions = list(_contradictions(path, number))
        except RagpipeError as error:
            yield RunDifference(name, f"cannot be read: {' '.join(str(error).split())[:300]}")
            continue
        if contradictions:
            cases = "1 case was" if len(contradictions) == 1 else f"{len(contradictions):,} cases were"
            yield RunDifference(
                name,
                f"{cases} finished twice with different results, the first: {contradictions[0]}: replies in the call store were changed, "
                "lost or damaged while the run was made",
            )


def _contradictions(path: Path, iteration: int) -> Iterator[str]:
    """The contradictions of one journal. It is read twice: first the digests of all results, then the few that differ."""
    results: dict[CaseKey, set[bytes]] = defaultdict(set)

    def note(entry: dict[str, Any]) -> bool:
        results[case_of(entry, iteration)].add(case_mark(entry).result)
        return False

    read_entries(path, keep=note, form=JOURNAL_FORM)
    conflicting = {case for case, digests in results.items() if len(digests) > 1}
    if not conflicting:
        return
    lines: dict[CaseKey, list[dict[str, Any]]] = defaultdict(list)
    for entry in read_entries(path, keep=lambda entry: case_of(entry, iteration) in conflicting, form=JOURNAL_FORM):
        lines[case_of(entry, iteration)].append(entry)
    for case, entries in lines.items():
        if difference := _difference(entries):
            yield f"{case}: {difference}"


def _difference(entries: Sequence[Mapping[str, Any]]) -> str | None:
    settled: dict[str, Any] = {}
    for entry in entries:
        for name, value in entry["result"].items():
            if value == "error":
                continue
            if name in settled and settled[name] != value and not entry.get("asked_again"):
                return f"{name} {settled[name]}, then {value}"
            settled[name] = value
    return None
