"""Pairs of answers of two sides as the cases of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.comparison.preference import pair_name
from ragpipe.comparison.side import paired_cases
from ragpipe.core.digest import sha256
from ragpipe.core.sample import OUTPUT_KEY, Case, Chunk, PairedOutput
from ragpipe.data.dataset import Record
from ragpipe.runs.case_sources import CaseSource
from ragpipe.runs.load_dataset import load_dataset
from ragpipe.runs.manifest import checked_manifest
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.runs.run_list import Methods, paired_answers
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_columns
from ragpipe.store.table_rows import PAIRS

METRIC = "preference"
_VERSION = 1  # of how pairs are made


class PairSource(CaseSource):
    """The cases that two runs share, each the candidate's output beside the base's answer and with the contexts of both; between the
    `methods` of one run (then `base` is `candidate`) those of every two of them, named `b vs a`.

    `of` are the methods of base and candidate whose cases are paired, None for all. `pair` names these and the frozen tables.
    Where one gave an error, so has the pair. Raises DataError for tables that cannot be read.
    """

    def __init__(self, base: RunFolder, candidate: RunFolder, of: Sequence[Methods]):
        self._folders, self._of = (base, candidate), of
        self._same_run = base.root == candidate.root
        names = dict.fromkeys(str(checked_manifest(folder)["name"]) for folder in self._folders)
        self.name = f"pairs of {' and '.join(names)}"
        self.pair = paired_answers(base, candidate, of)

    @property
    def digest(self) -> str:
        """Of both sides' frozen tables and of what is paired."""
        return sha256([METRIC, _VERSION, self.pair, [list(methods) for methods in self._of]])

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return self.digest

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        records = (record for methods in self._of for record in self._records(*methods))
        load_dataset(records, samples=folder.samples, outputs=folder.outputs, schema=PAIRS)

    def _records(self, base_method: str | None, candidate_method: str | None) -> Iterator[Record]:
        base, candidate = self._folders
        (at_base, of_base), (at_candidate, of_candidate) = _chosen(base, base_method), _chosen(candidate, candidate_method)
        pairs = paired_cases(of_base, of_candidate)
        name = pair_name(base_method, candidate_method) if self._same_run else None
        with (
            closing(CaseReader(base.samples, base.outputs)) as one,
            closing(CaseReader(candidate.samples, candidate.outputs)) as other,
        ):
            for row, of_row in zip(at_base[pairs.base].tolist(), at_candidate[pairs.candidate].tolist(), strict=True):
                case = other.case_at(of_row)
                yield Record(case.sample, paired_output(one.case_at(row), case, name), str(candidate.outputs))


def _chosen(folder: RunFolder, method: str | None) -> tuple[np.ndarray[Any, np.dtype[np.int64]], pa.Table]:
    """The rows of the outputs of a method, and their keys."""
    keys = read_columns(folder.outputs, OUTPUT_KEY)
    rows = np.arange(len(keys)) if method is None else np.flatnonzero(pc.equal(keys["method"], method).to_numpy())
    return rows.astype(np.int64), keys.take(pa.array(rows)).combine_chunks()


def paired_output(base: Case, candidate: Case, method: str | None = None) -> PairedOutput:
    """The pair of two cases of a sample. `method` is its name; None for the candidate's."""
    output, other = candidate.output, base.output
    error = output.error or (None if other.error is None else f"the base: {other.error}")
    return PairedOutput(
        sample_id=output.sample_id,
        method=method or output.method,
        repeat=output.repeat,
        answer=output.answer,
        chunks=None if output.chunks is None and other.chunks is None else _both(base.contexts, candidate.contexts),
        version=output.version,
        error=error,
        retrieves=output.retrieves or other.retrieves,
        other_answer=other.answer,
    )


def _both(base: Sequence[Chunk], candidate: Sequence[Chunk]) -> list[Chunk]:
    """The chunks of both, each text once, by rank; which side they are from decides nothing."""
    by_text: dict[str, Chunk] = {}
    for chunk in sorted((*base, *candidate), key=lambda chunk: (chunk.rank, chunk.text)):
        by_text.setdefault(chunk.text or f"id {chunk.id}", chunk)
    chunks = by_text.values()
    return [
        chunk.model_copy(update={"rank": rank, "id": f"{rank}:{chunk.id}", "score": None})
        for rank, chunk in enumerate(chunks, 1)
    ]
