"""The cases of a finished run that a check judges again, as they are or changed, and the values that they get."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow.compute as pc

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.refusals import load_refusals, read_refusal
from ragpipe.core.sample import Case, CaseKey
from ragpipe.data.dataset import Record
from ragpipe.extras.checks.edits import Change, Subject
from ragpipe.runs.case_sources import RunSource
from ragpipe.runs.finished_run import FinishedRun
from ragpipe.runs.load_dataset import load_dataset
from ragpipe.runs.manifest import scored_iterations
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import batches, read_json

OutputKey = tuple[str, str, int]
"""Sample, method and repeat."""
SEED = 1
"""Of the draw of cases and of their changes: the same run gives the same cases, and a larger `n` holds those of a smaller one."""
HAIR = 1e-9  # of a score's range: a smaller change is rounding
_ROWS = 32_768  # read at once
_LONGEST = 5_000  # characters from which an answer is no refusal


@dataclass(frozen=True, slots=True)
class Pair:
    """A changed output and the one that it is held against, and the `cases` of both. `group` and `part` are those of an attack; `before`,
    `after` and `in_reference` those of an `Edit`."""

    change: str
    base: OutputKey
    changed: OutputKey
    group: str = ""
    part: str = ""
    before: str = ""
    after: str = ""
    in_reference: bool = False
    cases: tuple[Case, ...] = ()

    @classmethod
    def of(cls, change: str, base: Case, changed: Case, **fields: Any) -> Pair:
        """The pair of two cases, with these further fields."""
        return cls(change, base.key[:3], changed.key[:3], cases=(base, changed), **fields)


class ChangedCases(RunSource):
    """The source of cases that are made of those of a finished run. Everything follows from the frozen cases and the arguments alone.
    Raises DataError where the run's tables are missing or were changed.

    `word` says what was done to the cases, in the name of the data set. `recipe` is what the changes follow from beside the cases, for the
    digest. `make` gives the pairs from `pool` drawn cases, in the order of the tables; None: those as they are. `needs` says what a
    run must have for it.
    """

    def __init__(
        self,
        finished: FinishedRun,
        task: str,
        word: str,
        *,
        recipe: Sequence[Any],
        pool: int,
        make: Callable[[list[Case]], Sequence[Pair]] | None = None,
        needs: str = "",
    ):
        super().__init__(finished.folder, finished.manifest)
        data, self.pair = finished.manifest["data"], None
        self.name = f"{data['name']}, {word}"
        self._pool_size, self._make, self._needs = pool, make, needs
        self._digest = sha256([task, data.get("frozen") or data["tables"], *recipe, SEED])

    @property
    def digest(self) -> str:
        return self._digest

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return self._digest

    @cached_property
    def pairs(self) -> Sequence[Pair]:
        """Each changed output with the one that it is held against, made when first asked for. Raises DataError where there is none."""
        if self._make is None:
            return ()
        if not (pairs := self._make(list(self._pool()))):
            found, fix = "no case to which one of the changes applies", "another run, or other changes"
            problem = Problem(str(self._source.root), "outputs", found, self._needs, fix)
            raise DataError("there is nothing to change", [problem])
        return pairs

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        """The cases of one sample beside each other, changed ones after what they are held against."""
        pairs = self.pairs
        cases = [pair.cases[place] for place in (0, 1) for pair in pairs] if self._make is not None else self._pool()
        by_sample: dict[str, dict[CaseKey, Case]] = {}
        for case in cases:
            by_sample.setdefault(case.sample.id, {}).setdefault(case.key, case)
        where = str(self._source.outputs)
        records = (Record(c.sample, c.output, where) for of_one in by_sample.values() for c in of_one.values())
        load_dataset(records, samples=folder.samples, outputs=folder.outputs)

    def _pool(self) -> Iterator[Case]:
        """The cases that may be drawn, in the order of the tables: where there are more, a seeded choice."""
        reader = CaseReader(self._source.samples, self._source.outputs)
        try:
            keys = [(drawn_order(key), key) for block in range(reader.blocks) for key in reader.keys(block)]
            chosen = {key for _, key in heapq.nsmallest(self._pool_size, keys)}
            for block in range(reader.blocks):
                if chosen.intersection(reader.keys(block)):
                    yield from (case for case in reader.block(block) if case.key in chosen)
        finally:
            reader.close()


def drawn_order(key: CaseKey) -> str:
    """Where a case stands in the order of the draw: it depends on nothing but its key."""
    return sha256([SEED, *key[:3]])


def is_usable(case: Case) -> bool:
    """Whether the system answered: its output has no error, and an answer with words that does not decline."""
    answer = case.answer
    has_answer = case.output.error is None and any(c.isalnum() for c in answer)
    if not has_answer or len(answer) > _LONGEST:
        return has_answer
    reading = read_refusal(answer, load_refusals("refusals.v3"))
    return reading.covered and not reading.refused


def changed_case(change: Change, subject: Subject) -> Pair | None:
    """What a change makes of a case; None where it does not apply. What chance decides is the same at every start."""
    case = subject.case
    edit = change.edit(subject, random.Random(sha256([SEED, change.name, *case.key[:3]])))
    if edit is None or edit.output == case.output:
        return None
    changed = renamed(case, Case(case.sample, edit.output, case.iteration), change.name)
    return Pair.of(change.name, case, changed, before=edit.before, after=edit.after, in_reference=edit.in_reference)


def renamed(base: Case, changed: Case, name: str) -> Case:
    """The changed case under a name of its own: the method `<method>~<name>`, and where the sample is another one the sample
    `<id>~<name>`. Recorded judgements, times and costs are the original's: they go."""
    sample, output = changed.sample, changed.output
    update: dict[str, Any] = {"recorded": {}, "timings": {}, "usage": {}, "method": f"{output.method}~{name}"}
    if sample != base.sample:
        sample = sample.model_copy(update={"id": f"{sample.id}~{name}"})
        update["sample_id"] = sample.id
    return Case(sample, output.model_copy(update=update), changed.iteration)


@dataclass(frozen=True, slots=True)
class Scored:
    """The values of one score that has a range: for each output one per iteration that gave one."""

    name: str
    low: float
    high: float
    higher_is_better: bool
    values: Mapping[OutputKey, Sequence[float]]

    @property
    def span(self) -> float:
        """The width of the range."""
        return self.high - self.low

    def mean(self, output: OutputKey) -> float | None:
        """The mean over the iterations; None without a value."""
        values = self.values.get(output)
        return math.fsum(values) / len(values) if values else None

    def share(self, output: OutputKey) -> float | None:
        """The mean as a share of the range, 1 the best; None without a value."""
        if (mean := self.mean(output)) is None:
            return None
        share = (mean - self.low) / self.span
        return share if self.higher_is_better else 1 - share


def scored_values(folder: RunFolder) -> dict[str, Scored]:
    """The scores of a check's run by name, those with a range. Raises DataError for a table that cannot be read."""
    values: dict[str, dict[OutputKey, list[float]]] = {}
    columns = ("sample_id", "method", "repeat", "score_name", "value")
    for number in scored_iterations(folder):
        for batch in batches(folder.iteration(number).scores, columns, size=_ROWS):
            for row in batch.filter(pc.is_valid(batch.column("value"))).to_pylist():
                key = (row["sample_id"], row["method"], row["repeat"])
                values.setdefault(row["score_name"], {}).setdefault(key, []).append(row["value"])
    return {
        name: Scored(name, said["low"], said["high"], said["higher_is_better"], values.get(name, {}))
        for name, said in read_json(folder.final.metrics)["declared"].items()
        if said["low"] is not None and said["high"] is not None
    }


def inputs_of(folder: RunFolder, metric: str) -> dict[OutputKey, frozenset[str]]:
    """The payloads of the questions that a metric asked about each output."""
    payloads: dict[OutputKey, set[str]] = {}
    columns = ("sample_id", "method", "repeat", "metric", "payload_id")
    for number in scored_iterations(folder):
        for batch in batches(folder.iteration(number).judge_inputs, columns, size=_ROWS):
            for row in batch.filter(pc.equal(batch.column("metric"), metric)).to_pylist():
                payloads.setdefault((row["sample_id"], row["method"], row["repeat"]), set()).add(row["payload_id"])
    return {key: frozenset(ids) for key, ids in payloads.items()}
