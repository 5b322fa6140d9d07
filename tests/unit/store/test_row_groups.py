"""Consecutive tables as row groups: gathered up to a number of rows or of bytes, never divided, all of them written."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.store.files import parquet_parts as module
from ragpipe.store.files.parquet_parts import RowGroups, parquet_writer


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([3], [3]),
        ([4, 4, 4, 4, 4], [12, 8]),
        ([10], [10]),
        ([9, 1, 25, 2], [10, 25, 2]),
    ],
)
def test_tables_are_gathered_up_to_ten_rows(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], groups: list[int]
) -> None:
    monkeypatch.setattr(module, "GROUP_ROWS", 10)
    assert written([["x"] * size for size in sizes]) == groups


def test_long_texts_are_written_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_BYTES", 1000)
    assert written([["x" * 600], ["x" * 600], ["x"], ["x"]]) == [2, 2]


def written(texts: list[list[str]]) -> list[int]:
    """The sizes of the row groups; every text has to come back in its place."""
    schema, file = pa.schema([("text", pa.string())]), io.BytesIO()
    with parquet_writer(file, schema) as writer:
        groups = RowGroups(writer)
        for part in texts:
            groups.add(pa.table({"text": part}, schema=schema))
        groups.write()
    read = pq.ParquetFile(file)
    assert read.read()["text"].to_pylist() == [text for part in texts for text in part]
    return [read.metadata.row_group(number).num_rows for number in range(read.num_row_groups)]
