"""The retrieved chunks of some cases as columns, one entry per chunk: their JSON is read once for all that scoring asks of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

Whole = NDArray[np.int64]

_CHUNK = pa.struct(
    [
        ("id", pa.string()),
        ("doc_id", pa.string()),
        ("rel_path", pa.string()),
        ("rank", pa.int64()),
        ("doc_type", pa.string()),
        ("text", pa.string()),
    ]
)
_LINE = pj.ParseOptions(
    explicit_schema=pa.schema([("chunks", pa.list_(_CHUNK))]),
    unexpected_field_behavior="ignore",
)


class RetrievedChunks:
    """The column `chunks` of consecutive rows of `outputs.parquet`, as JSON texts or as `lists` gives them.

    Attributes:
        lengths: of each case the number of its chunks; null where they are not recorded.
        cases: of each chunk the number of its case.

    Raises ValueError for text that is no JSON list of objects.
    """

    def __init__(self, column: pa.ChunkedArray):
        lists = _parsed(column)
        self.lengths: pa.Array = pc.list_value_length(lists).cast(pa.int64())
        self.cases: Whole = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        self._chunks: pa.StructArray = lists.flatten()

    def column(self, name: str) -> pa.Array:
        """A field of every chunk (`id`, `doc_id`, `rel_path`, `rank`, `doc_type` or `text`); null where it has none."""
        return self._chunks.field(name)

    def lists(self, names: Sequence[str]) -> pa.ListArray:
        """The chunks of each case with these fields; null where they are not recorded."""
        offsets = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int32)
        chunks = pa.StructArray.from_arrays([self.column(name) for name in names], names=list(names))
        return pa.ListArray.from_arrays(pa.array(offsets), chunks, mask=pa.array(~self.recorded))

    @property
    def recorded(self) -> NDArray[np.bool_]:
        """The cases whose chunks are recorded, be they none."""
        flags: NDArray[np.bool_] = self.lengths.is_valid().to_numpy(zero_copy_only=False)
        return flags

    @property
    def counts(self) -> Whole:
        """Of each case the number of its chunks; 0 where they are not recorded."""
        counts: Whole = self.lengths.fill_null(0).to_numpy(zero_copy_only=False)
        return counts

    def doc_types(self) -> pa.Array:
        """Of each case the different `doc_type` of its chunks, in rank order."""
        encoded = self.column("doc_type").dictionary_encode()
        typed = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
        codes = encoded.indices.take(pa.array(typed)).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = self.cases[typed] * max(len(encoded.dictionary), 1) + codes
        firsts = np.sort(np.unique(pairs, return_index=True)[1])
        counts = np.bincount(self.cases[typed[firsts]], minlength=len(self.lengths))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), encoded.dictionary.take(pa.array(codes[firsts])))


def _parsed(column: pa.ChunkedArray) -> pa.ListArray:
    """JSON lists of chunks as an array of lists; null stays null."""
    if not len(column):
        return pa.array([], type=pa.list_(_CHUNK))
    if pa.types.is_list(column.type):
        return column.combine_chunks()
    lines = _json_lines(column)
    # one block for all lines, because a line must not straddle two
    options = pj.ReadOptions(use_threads=False, block_size=lines.size + 1)
    table = pj.read_json(pa.BufferReader(lines), read_options=options, parse_options=_LINE)
    if table.num_rows != len(column):
        raise ValueError(f"{len(column)} lists of chunks are {table.num_rows} lines of JSON")
    return table["chunks"].combine_chunks()


def _json_lines(column: pa.ChunkedArray) -> pa.Buffer:
    """Each text as a line with a JSON object, `{"chunks":...}`. Arrow joins them: they are most of a run's text."""
    texts = column.combine_chunks().fill_null("null")
    lines = pc.binary_join_element_wise(pa.scalar('{"chunks":'), texts, pa.scalar("}\n"), pa.scalar(""))
    offsets, content = lines.buffers()[1:]  # of a new array, which begins at the beginning of its buffers
    end = int(np.frombuffer(offsets, dtype=np.int32)[len(lines)])
    return content.slice(0, end)
