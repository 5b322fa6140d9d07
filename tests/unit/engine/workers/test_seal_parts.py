"""The digests of a table, taken elsewhere row group by row group: the seal of one process, for tables of any shape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.engine.workers.plain_messages import packed_message
from ragpipe.engine.workers.seal_parts import digests_of, open_sealing
from ragpipe.store.run.seals import CellDigests, seal_table
from tests.support.sent_messages import sent

SCHEMA = pa.schema({
    "text": pa.string(), "kind": pa.dictionary(pa.int32(), pa.string()), "n": pa.int64(), "x": pa.float64(), "flag": pa.bool_(),
    "texts": pa.list_(pa.string()), "pairs": pa.list_(pa.struct({"a": pa.int64()})), "nothing": pa.string(),
})  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {
        "text": "\ud7ff\U0001f600",
        "kind": "a",
        "n": -1,
        "x": 0.1,
        "flag": True,
        "texts": ["", None],
        "pairs": [{"a": 1}],
    },
    {},
    {"text": "", "kind": "", "n": 2**62, "x": float("nan"), "flag": False, "texts": [], "pairs": []},
    {"text": "x" * 3_000_000, "n": 0, "x": -0.0, "flag": True, "texts": ["y"], "pairs": [{"a": None}]},
    {"text": "y" * 3_000_000, "kind": "b", "n": 7, "texts": None, "pairs": [{"a": 2}, {"a": 3}]},
]


def by_messages(path: Path) -> Iterator[CellDigests]:
    """All that workers do, in this process."""
    answer = open_sealing({"path": str(path)})
    for group in range(pq.read_metadata(path).num_row_groups):
        values, _ = sent(packed_message({"group": group}))
        parts = digests_of(*sent(answer(values)))
        assert parts is not None
        yield from parts


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(SCHEMA.names) | row for row in rows], schema=SCHEMA)


@pytest.mark.parametrize("group", [1, 2, 100])
def test_a_table_has_one_seal_whoever_takes_its_digests(tmp_path: Path, group: int) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(ROWS * 3), path, row_group_size=group)
    assert pq.read_metadata(path).num_row_groups == -(-15 // group)
    assert seal_table(path, digested=by_messages) == seal_table(path)


def test_tables_without_rows_have_one_seal_too(tmp_path: Path) -> None:
    for number, groups in enumerate(([], [[]], [[], ROWS[:1], []])):
        path = tmp_path / f"{number}.parquet"
        with pq.ParquetWriter(path, SCHEMA) as writer:
            for rows in groups:
                writer.write_table(table(rows))
        assert seal_table(path, digested=by_messages) == seal_table(path)
        assert list(seal_table(path)["columns"]) == SCHEMA.names


def test_an_unreadable_row_group_is_answered_with_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(ROWS), path, row_group_size=1, compression="zstd")
    start = pq.read_metadata(path).row_group(3).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 200] = b"\xff" * 200
    path.write_bytes(data)
    answer = open_sealing({"path": str(path)})
    assert digests_of(*sent(answer({"group": 3}))) is None
    assert digests_of(*sent(answer({"group": 4}))) is not None
    with pytest.raises((OSError, pa.ArrowException)):
        seal_table(path)
