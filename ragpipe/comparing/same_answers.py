"""The shared cases whose answers are the same on both sides: where another judge saw what the first one saw."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.comparing.pairing import Pairs
from ragpipe.comparing.side import Side
from ragpipe.schema.answer_digest import answer_digest
from ragpipe.schema.sample import Chunk, Output, Sample, Turn
from ragpipe.store.run.run_tables import batches, read_columns

Flags = NDArray[np.bool_]
_BATCH = 2048


def same_answers(base: Side, candidate: Side, pairs: Pairs) -> Flags:
    """For each pair whether question, earlier turns, answer and chunk texts are the same."""
    return np.array(_digests(base)[pairs.base] == _digests(candidate)[pairs.candidate], dtype=np.bool_)


def _digests(side: Side) -> NDArray[np.bytes_]:
    """The answer digest of each case of a side."""
    digests = np.fromiter((bytes.fromhex(text) for text in _run_digests(side)), dtype="S32", count=side.n_rows)
    return digests[side.rows]


def _run_digests(side: Side) -> Iterator[str]:
    """The answer digests of all outputs of the run, in the order of the data."""
    columns = read_columns(side.folder.samples, ["id", "question", "history"])
    texts = zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True)
    samples = [
        Sample(id=name, question=question, history=[Turn(**turn) for turn in from_json(history or "[]")])
        for name, question, history in texts
    ]
    for batch in batches(side.folder.outputs, ["sample_row", "method", "answer", "chunks"], size=_BATCH):
        for row in batch.to_pylist():
            sample = samples[row["sample_row"]]
            chunks = None if row["chunks"] is None else from_json(row["chunks"])
            listed = None if chunks is None else [Chunk(**chunk) for chunk in chunks]
            output = Output(sample_id=sample.id, method=row["method"], answer=row["answer"], chunks=listed)
            yield answer_digest(sample, output)
