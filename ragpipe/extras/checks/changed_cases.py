"""Cases of a finished run, as they are or changed, as a data set of their own: what a self-test, an audit and a spot check ask about."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ragpipe.core.digest import sha256
from ragpipe.engine.integrity import check_unmodified
from ragpipe.engine.runs.finished_run import FinishedRun
from ragpipe.engine.sources.case_sources import check_frozen_tables
from ragpipe.extras.checks.mutant import Edit
from ragpipe.patterns.refusals import load_refusals, read_refusal
from ragpipe.schema.sample import Case, CaseKey, Output, Sample
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.load_dataset import load_dataset
from ragpipe.store.run.run_folder import RunFolder

OutputKey = tuple[str, str, int]
"""Sample, method and repeat."""
SEPARATOR = "~"
_PATTERNS = "refusals.v3"
_LONGEST = 5_000
"""Characters from which an answer is no refusal."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A changed output and the one that it is held against. `group` and `part` are those of an attack; `in_reference`: see `Edit`."""

    kind: Literal["mutation", "attack", "probe"]
    name: str
    base: OutputKey
    changed: OutputKey
    group: str = ""
    part: str = ""
    in_reference: bool = False


@dataclass(frozen=True, slots=True)
class ChangedCase:
    """A case, what one change made of it, and the pair of both. `edit` is that of a mutation."""

    pair: Pair
    base: Case
    case: Case
    edit: Edit | None = None


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """A case as a record of a data set; `where` is the file that it comes from."""

    sample: Sample
    output: Output
    where: str


class ChangedCases:
    """A source of cases (see `ragpipe.engine.sources.case_sources.CaseSource`) that are made of those of a finished run. Everything
    follows from the frozen cases and the arguments alone. Raises DataError where the run's tables are missing or were changed.

    Args:
        finished: the finished run.
        task: the name of the check.
        word: what was done to the cases, for the name of the data set: `<name>, <word>`.
        recipe: what the changes follow from beside the cases and the seed, for the digest.
        seed: the seed of the draw.
        pool: how many cases may be drawn.
        make: the changed cases, from those of the pool in the order of the tables; None: the pool as it is.
    """

    linked_from: RunFolder | None = None

    def __init__(
        self,
        finished: FinishedRun,
        *,
        task: str,
        word: str,
        recipe: Sequence[Any],
        seed: int,
        pool: int,
        make: Callable[[list[Case]], Sequence[ChangedCase]] | None = None,
    ):
        self._source, data = finished.folder, finished.manifest["data"]
        check_frozen_tables(self._source)
        check_unmodified(self._source, finished.manifest["iterations"], scores=False)
        self._seed, self._pool_size, self._make = seed, pool, make
        self.name = f"{data['name']}, {word}"
        self.collected_at: str | None = data.get("collected_at")
        self.digest = sha256([task, data.get("frozen") or data["tables"], *recipe, seed])

    @cached_property
    def changed(self) -> Sequence[ChangedCase]:
        """The changed cases, made when first asked for. Raises DataError where there is none."""
        return self._make(list(self._pool())) if self._make is not None else ()

    @property
    def pairs(self) -> list[Pair]:
        """Each changed output with the one that it is held against. Raises DataError."""
        return [changed.pair for changed in self.changed]

    def _records(self) -> Iterator[CaseRecord]:
        """The cases: those of one sample beside each other, changed ones after what they are held against."""
        by_sample: dict[str, dict[CaseKey, Case]] = {}
        if self._make is None:
            cases: Iterator[Case] = self._pool()
        else:
            cases = (
                case for cases in ([c.base for c in self.changed], [c.case for c in self.changed]) for case in cases
            )
        for case in cases:
            by_sample.setdefault(case.sample.id, {}).setdefault(case.key, case)
        where = str(self._source.outputs)
        yield from (CaseRecord(c.sample, c.output, where) for cases in by_sample.values() for c in cases.values())

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return self.digest

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        load_dataset(self._records(), samples=folder.samples, outputs=folder.outputs)

    def restore(self, folder: RunFolder, fault: str) -> None:
        self.write(folder, {})

    def retry_failures(self, folder: RunFolder) -> bool:
        return False

    def adopt_judged(self, folder: RunFolder) -> dict[str, str]:
        return {}

    def check_unchanged(self) -> None:
        """Frozen tables do not change."""

    def _pool(self) -> Iterator[Case]:
        """The cases that may be drawn, in the order of the tables: where there are more, a seeded choice."""
        reader = CaseReader(self._source.samples, self._source.outputs)
        try:
            keys = [(drawn_order(key, self._seed), key) for block in range(reader.blocks) for key in reader.keys(block)]
            chosen = {key for _, key in heapq.nsmallest(self._pool_size, keys)}
            for block in range(reader.blocks):
                if chosen.intersection(reader.keys(block)):
                    yield from (case for case in reader.block(block) if case.key in chosen)
        finally:
            reader.close()


def drawn_order(key: CaseKey, seed: int) -> str:
    """Where a case stands in the order of the draw: it depends on nothing but its key and the seed."""
    return sha256([seed, *key[:3]])


def is_usable(case: Case) -> bool:
    """Whether the system answered: its output has no error, and an answer with words that does not decline."""
    answer = case.answer
    has_answer = case.output.error is None and any(c.isalnum() for c in answer)
    if not has_answer or len(answer) > _LONGEST:
        return has_answer
    reading = read_refusal(answer, load_refusals(_PATTERNS))
    return reading.covered and not reading.refused


def renamed(base: Case, changed: Case, name: str) -> Case:
    """The changed case under a name of its own: the method `<method>~<name>`, and where the sample is another one the sample
    `<id>~<name>`. Recorded judgements, times and costs are the original's: they go."""
    sample, output = changed.sample, changed.output
    update: dict[str, Any] = {"recorded": {}, "timings": {}, "usage": {}}
    if sample != base.sample:
        sample = sample.model_copy(update={"id": f"{sample.id}{SEPARATOR}{name}"})
        update["sample_id"] = sample.id
    update["method"] = f"{output.method}{SEPARATOR}{name}"
    return Case(sample, output.model_copy(update=update), changed.iteration)


def with_output(case: Case, output: Output) -> Case:
    """The case with another output."""
    return Case(case.sample, output, case.iteration)
