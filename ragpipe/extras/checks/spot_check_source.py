"""The frozen tables of a spot check: some cases of a finished run, as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.extras.checks.changed_cases import CaseRecord, ChangedCases
from ragpipe.store.run.run_folder import RunFolder


class SpotCheckSource(ChangedCases):
    """Randomly drawn cases of a finished run. The draw follows from the names of its cases and the seed alone.

    Args:
        source: the folder of the finished run.
        manifest: its manifest.
        n: cases that are drawn, at most.
        seed: the seed of the draw.
    """

    def __init__(self, source: RunFolder, manifest: dict[str, Any], *, n: int, seed: int):
        super().__init__(source, manifest, change="spot check", seed=seed)
        self._n = n

    @property
    def digest(self) -> str:
        """The digest of the run's frozen cases and of the draw."""
        return sha256(["spot_check", self._frozen, self._n, self._seed])

    def _records(self) -> Iterator[CaseRecord]:
        where = str(self._source.outputs)
        yield from (CaseRecord(case.sample, case.output, where) for case in self._pool(self._n))
