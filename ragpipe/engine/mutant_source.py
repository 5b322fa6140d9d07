"""The frozen tables of a self-test: cases of a finished run, each beside the mutants that were made of it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.engine.case_sources import check_frozen_tables
from ragpipe.engine.integrity import check_unmodified
from ragpipe.mutating.mutant_draw import POOL, Mutant, draw_mutants, drawn_order
from ragpipe.mutating.mutations import MUTATIONS, MUTATIONS_VERSION
from ragpipe.schema.sample import Case, Output, Sample
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.load_dataset import load_dataset
from ragpipe.store.run.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class _Record:
    """A case as a record of a data set."""

    sample: Sample
    output: Output
    where: str


class MutantSource:
    """Mutants of a finished run's cases, as a data set of their own: see `ragpipe.engine.case_sources.CaseSource`.

    An original is a method's output as it was; a mutant is the output of `<method>~<mutation>` for the same sample. The draw
    follows from the frozen cases, `n` and `seed` alone. Raises DataError where the run's tables are missing or were changed.

    Args:
        source: the folder of the finished run.
        manifest: its manifest.
        names: the mutations to make.
        n: mutants of each mutation, at most.
        seed: the seed of the draw.
    """

    linked_from: RunFolder | None = None

    def __init__(self, source: RunFolder, manifest: dict[str, Any], *, names: Sequence[str], n: int, seed: int):
        check_frozen_tables(source)
        check_unmodified(source, manifest["iterations"], scores=False)
        self._source, self._manifest_data = source, manifest["data"]
        self._names, self._n, self._seed = tuple(names), n, seed
        self.name = f"{self._manifest_data['name']}, mutated"
        self.collected_at: str | None = self._manifest_data.get("collected_at")

    @property
    def digest(self) -> str:
        """The digest of the run's frozen cases and of how they are mutated."""
        frozen = self._manifest_data.get("frozen") or self._manifest_data["tables"]
        return sha256(["selftest", frozen, MUTATIONS_VERSION, list(self._names), self._n, self._seed])

    @cached_property
    def mutants(self) -> list[Mutant]:
        """The mutants, drawn when first asked for. Raises DataError where no mutation applies to any case."""
        chosen = [mutation for mutation in MUTATIONS if mutation.name in self._names]
        mutants = draw_mutants(list(self._pool()), chosen, n=self._n, seed=self._seed)
        if mutants:
            return mutants
        problem = Problem(
            str(self._source.root),
            "outputs",
            "no case to which one of the mutations applies",
            "answers with claims, numbers or citations, or at least two chunks",
            "choose other mutations (selftest.mutations), or a run with recorded answers and chunks",
        )
        raise DataError("there is nothing to mutate", [problem])

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
        """The cases that may be drawn, in the order of the tables: a seeded choice where there are many."""
        reader = CaseReader(self._source.samples, self._source.outputs)
        try:
            keys = [(drawn_order(key, self._seed), key) for block in range(reader.blocks) for key in reader.keys(block)]
            chosen = {key for _, key in heapq.nsmallest(POOL * self._n, keys)}
            for block in range(reader.blocks):
                if chosen.intersection(reader.keys(block)):
                    yield from (case for case in reader.block(block) if case.key in chosen)
        finally:
            reader.close()

    def _records(self) -> Iterator[_Record]:
        """Each sample with the originals that were mutated, and after them their mutants."""
        by_sample: dict[str, list[Mutant]] = {}
        for mutant in self.mutants:
            by_sample.setdefault(mutant.original.sample.id, []).append(mutant)
        where = str(self._source.outputs)
        for mutants in by_sample.values():
            originals = {mutant.original.key: mutant.original for mutant in mutants}
            outputs = [case.output for case in originals.values()] + [mutant.output for mutant in mutants]
            yield from (_Record(mutants[0].original.sample, output, where) for output in outputs)
