"""Cases drawn from a finished run, as they are or changed, as a data set of their own: what a self-test, an audit and a spot check share."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ragpipe.engine.integrity import check_unmodified
from ragpipe.engine.sources.case_sources import check_frozen_tables
from ragpipe.extras.checks.mutant_draw import drawn_order
from ragpipe.schema.sample import Case, Output, Sample
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.load_dataset import load_dataset
from ragpipe.store.run.run_folder import RunFolder


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
        source: the folder of the finished run.
        manifest: its manifest.
        change: the word for the name of the data set: `<name>, <change>`.
        seed: the seed of the draw.
    """

    linked_from: RunFolder | None = None

    def __init__(self, source: RunFolder, manifest: dict[str, Any], *, change: str, seed: int):
        check_frozen_tables(source)
        check_unmodified(source, manifest["iterations"], scores=False)
        self._source, self._manifest_data, self._seed = source, manifest["data"], seed
        self.name = f"{self._manifest_data['name']}, {change}"
        self.collected_at: str | None = self._manifest_data.get("collected_at")

    @property
    def digest(self) -> str:
        """The digest of the run's frozen cases and of how they are changed."""
        raise NotImplementedError

    def _records(self) -> Iterator[CaseRecord]:
        """The cases, changed and unchanged, those of one sample beside each other."""
        raise NotImplementedError

    @property
    def _frozen(self) -> Any:
        """The digest of the frozen cases of the finished run."""
        return self._manifest_data.get("frozen") or self._manifest_data["tables"]

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

    def _pool(self, count: int) -> Iterator[Case]:
        """The cases that may be drawn, in the order of the tables: where there are more than `count`, a seeded choice."""
        reader = CaseReader(self._source.samples, self._source.outputs)
        try:
            keys = [(drawn_order(key, self._seed), key) for block in range(reader.blocks) for key in reader.keys(block)]
            chosen = {key for _, key in heapq.nsmallest(count, keys)}
            for block in range(reader.blocks):
                if chosen.intersection(reader.keys(block)):
                    yield from (case for case in reader.block(block) if case.key in chosen)
        finally:
            reader.close()
