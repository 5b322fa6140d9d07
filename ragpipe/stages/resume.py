"""Resuming an iteration: what its journal says of finished cases, compared with the call store before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ragpipe.core.digest import sha256
from ragpipe.core.digest_table import DIGEST, DigestTable, name_digest
from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.sample import CaseKey
from ragpipe.schema.table_schemas import JUDGE_INPUTS, SCORES
from ragpipe.stages.case_reader import CaseReader
from ragpipe.store.files.parquet_parts import Parts
from ragpipe.store.run.journal import read_entries
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_columns

JOURNAL_FORM = {
    "sample_id": str,
    "method": str,
    "repeat": int,
    "question": str,
    "completed_at": str,
    "transient": bool,
    "result": dict,
}
"""The fields of every line of the journal: see `journal_entry`."""
_MARK = DIGEST + 2


class CaseMark(NamedTuple):
    """What tells one journal line of a case from another: the digest of its result, whether asking again may change it, and
    whether one of its scores failed."""

    result: bytes
    transient: bool
    failed: bool


@dataclass(slots=True)
class ResumedCases:
    """Finished cases over the replies that the call store has now.

    `again` cases must be asked again, with `calls` questions at most, first `first_again`; `changed` cases get another
    result, first `first_changed`.
    """

    again: int = 0
    calls: int = 0
    first_again: str = ""
    changed: int = 0
    first_changed: str = ""

    def compare(self, case: CaseKey, before: CaseMark, now: Mapping[str, Any] | None, missing: int) -> None:
        """Compare a case with its result over the stored replies (`now`; None where it is not known). `missing` of its
        questions have no reply."""
        if missing:
            self.again += 1
            self.calls += missing
            self.first_again = self.first_again or str(case)
        elif now is not None and _digest(now) != before.result:
            self.changed += 1
            self.first_changed = self.first_changed or str(case)


def _digest(result: Mapping[str, Any]) -> bytes:
    # 4 and 4.0 are one value: a table has only one of them
    values = {name: float(value) if isinstance(value, int) else value for name, value in result.items()}
    return bytes.fromhex(sha256(values))[:DIGEST]


def case_mark(entry: Mapping[str, Any]) -> CaseMark:
    """The mark of a journal line, written or about to be."""
    result = entry["result"]
    return CaseMark(_digest(result), entry["transient"], "error" in result.values())


class CaseMarks:
    """The marks of many cases, in some 40 bytes each."""

    def __init__(self) -> None:
        self._marks = DigestTable(_MARK)

    def __len__(self) -> int:
        return len(self._marks)

    def get(self, case: CaseKey) -> CaseMark | None:
        """The mark of a case; None where it has none."""
        packed = self._marks.get(name_digest(*map(str, case))) if self._marks else None
        return None if packed is None else CaseMark(packed[:DIGEST], bool(packed[DIGEST]), bool(packed[DIGEST + 1]))

    def __setitem__(self, case: CaseKey, mark: CaseMark) -> None:
        self._marks[name_digest(*map(str, case))] = mark.result + bytes([mark.transient, mark.failed])


def case_of(entry: Mapping[str, Any], iteration: int) -> CaseKey:
    """The case that a journal line is about."""
    return CaseKey(entry["sample_id"], entry["method"], entry["repeat"], iteration)


@dataclass(frozen=True, slots=True)
class Resumption:
    """What an iteration has from earlier starts.

    `done` are the finished cases that are judged again because their block is not written yet: each needs its replies from the
    call store once more. Cases that failed for a transient reason are left out. `written` are the blocks that are not done
    again, `stored` the questions in them.
    """

    done: Mapping[CaseKey, CaseMark] = field(default_factory=dict)
    written: frozenset[int] = frozenset()
    stored: int = 0


def resumption(run: RunFolder, cases: CaseReader, iteration: int, *, is_done: bool) -> Resumption:
    """What journal and parts of an iteration say, or its tables where it is judged to its end. Raises DataError for a bad
    line."""
    folder = run.iteration(iteration)
    if is_done:
        return Resumption(written=frozenset(range(cases.blocks)), stored=_questions(folder.judge_inputs))
    marks: dict[CaseKey, CaseMark] = {}

    def note(entry: dict[str, Any]) -> bool:
        marks[case_of(entry, iteration)] = case_mark(entry)
        return False

    read_entries(folder.journal, keep=note, form=JOURNAL_FORM)
    if not marks:
        return Resumption()
    _check_known(folder.journal, cases, iteration, set(marks))
    inputs = Parts(folder.parts / "judge_inputs", JUDGE_INPUTS)
    intact = Parts(folder.parts / "scores", SCORES).intact() & inputs.intact()
    written = set()
    for block in sorted(block for block in intact if block < cases.blocks):
        keys = [key._replace(iteration=iteration) for key in cases.keys(block)]
        if all(key in marks and not marks[key].transient for key in keys):
            written.add(block)
        for key in keys:
            marks.pop(key, None)
    stored = sum(_questions(inputs.path(block)) for block in written)
    return Resumption({case: mark for case, mark in marks.items() if not mark.transient}, frozenset(written), stored)


def _check_known(journal: Path, cases: CaseReader, iteration: int, unknown: set[CaseKey]) -> None:
    """Raises DataError where the journal has finished cases that the run does not have."""
    for index in range(cases.blocks):
        unknown.difference_update(key._replace(iteration=iteration) for key in cases.keys(index))
    if unknown:
        finished = [case_of(entry, iteration) for entry in read_entries(journal, form=JOURNAL_FORM)]
        lines = [number for number, case in enumerate(finished, start=2) if case in unknown]
        more = f" (and in {len(lines) - 1:,} more lines)" if len(lines) > 1 else ""
        problem = Problem(
            f"{journal}:{lines[0]}",
            "sample_id",
            f"{finished[lines[0] - 2]}{more}",
            "a case of this run",
            "take the line out",
        )
        raise DataError(f"the journal {journal} cannot be continued", [problem])


def _questions(judge_inputs: Path) -> int:
    """How many questions to a judge a table has; texts to an embedder have no template."""
    templates = read_columns(judge_inputs, ["template"])["template"]
    return len(templates) - int(templates.null_count)
