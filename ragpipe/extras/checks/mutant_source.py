"""The frozen tables of a self-test: cases of a finished run, each beside the mutants that were made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.extras.checks.changed_cases import CaseRecord, ChangedCases
from ragpipe.extras.checks.mutant_draw import POOL, Mutant, draw_mutants
from ragpipe.extras.checks.mutations import MUTATIONS, MUTATIONS_VERSION
from ragpipe.store.run.run_folder import RunFolder


class MutantSource(ChangedCases):
    """Mutants of a finished run's cases.

    An original is a method's output as it was; a mutant is the output of `<method>~<mutation>` for the same sample. The draw
    follows from the frozen cases, `n` and `seed` alone. Raises DataError where the run's tables are missing or were changed.

    Args:
        source: the folder of the finished run.
        manifest: its manifest.
        names: the mutations to make.
        n: mutants of each mutation, at most.
        seed: the seed of the draw.
    """

    def __init__(self, source: RunFolder, manifest: dict[str, Any], *, names: Sequence[str], n: int, seed: int):
        super().__init__(source, manifest, change="mutated", seed=seed)
        self._names, self._n = tuple(names), n

    @property
    def digest(self) -> str:
        """The digest of the run's frozen cases and of how they are mutated."""
        return sha256(["selftest", self._frozen, MUTATIONS_VERSION, list(self._names), self._n, self._seed])

    @cached_property
    def mutants(self) -> list[Mutant]:
        """The mutants, drawn when first asked for. Raises DataError where no mutation applies to any case."""
        chosen = [mutation for mutation in MUTATIONS if mutation.name in self._names]
        mutants = draw_mutants(list(self._pool(POOL * self._n)), chosen, n=self._n, seed=self._seed)
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

    def _records(self) -> Iterator[CaseRecord]:
        """Each sample with the originals that were mutated, and after them their mutants."""
        by_sample: dict[str, list[Mutant]] = {}
        for mutant in self.mutants:
            by_sample.setdefault(mutant.original.sample.id, []).append(mutant)
        where = str(self._source.outputs)
        for mutants in by_sample.values():
            originals = {mutant.original.key: mutant.original for mutant in mutants}
            outputs = [case.output for case in originals.values()] + [mutant.output for mutant in mutants]
            yield from (CaseRecord(mutants[0].original.sample, output, where) for output in outputs)
