"""Does the journal of a run say two things of one case? Then its replies changed while it was made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.core.errors import RagpipeError
from ragpipe.schema.sample import CaseKey
from ragpipe.stages.resume import JOURNAL_FORM, case_mark, case_of
from ragpipe.store.run.journal import read_entries
from ragpipe.store.run.run_folder import RunFolder


@dataclass(frozen=True)
class JournalConflict:
    """One file that is not what it was: `where` is its path in the run folder, `what` says where and how it differs."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def journal_conflicts(folder: RunFolder, iterations: Sequence[int]) -> Iterator[JournalConflict]:
    """For each iteration whose journal finished a case twice, with different values of one score, one finding. What failed
    the first time, and what the user had asked again (`retry_errors`), is no contradiction. A run without a journal (a
    re-scored one) has none."""
    for number in iterations:
        path = folder.iteration(number).journal
        name = path.relative_to(folder.root).as_posix()
        try:
            found = list(_twice(path, number))
        except RagpipeError as error:
            yield JournalConflict(name, f"cannot be read: {' '.join(str(error).split())[:300]}")
            continue
        if found:
            cases = "1 case was" if len(found) == 1 else f"{len(found):,} cases were"
            yield JournalConflict(
                name,
                f"{cases} finished twice with different results, the first: {found[0]}: replies in the call store were changed, "
                "lost or damaged while the run was made",
            )


def _twice(path: Any, iteration: int) -> Iterator[str]:
    """The contradictions of one journal. Read twice: first the digests of all results, then the few that differ."""
    results: dict[CaseKey, set[bytes]] = defaultdict(set)

    def note(entry: dict[str, Any]) -> bool:
        results[case_of(entry, iteration)].add(case_mark(entry).result)
        return False

    read_entries(path, keep=note, form=JOURNAL_FORM)
    several = {case for case, found in results.items() if len(found) > 1}
    if not several:
        return
    lines: dict[CaseKey, list[dict[str, Any]]] = defaultdict(list)
    for entry in read_entries(path, keep=lambda entry: case_of(entry, iteration) in several, form=JOURNAL_FORM):
        lines[case_of(entry, iteration)].append(entry)
    for case, entries in lines.items():
        if words := _differing(entries):
            yield f"{case}: {words}"


def _differing(entries: Sequence[Mapping[str, Any]]) -> str | None:
    settled: dict[str, Any] = {}
    for entry in entries:
        for name, value in entry["result"].items():
            if value == "error":
                continue
            if name in settled and settled[name] != value and not entry.get("asked_again"):
                return f"{name} {settled[name]}, then {value}"
            settled[name] = value
    return None
