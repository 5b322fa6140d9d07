"""Rows of a table of a run, found by their cells or by their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.core.errors import DataError
from ragpipe.store.run.run_tables import numbered_rows, query_rows, rows_at

ROWS = [
    {"sample_id": f"q{place % 7}", "method": ("a", "b", None)[place % 3], "repeat": 1 + place % 2, "text": f"{place}"}
    for place in range(60)
]


@pytest.fixture(params=[1, 8, 60])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=request.param)
    return path


@pytest.mark.parametrize(
    "cells",
    [
        {"sample_id": "q3"},
        {"sample_id": "q3", "method": "b"},
        {"method": None},
        {"method": None, "repeat": 2},
        {"sample_id": "q5", "method": "a", "repeat": 1},
        {"repeat": 2, "sample_id": "q0"},
        {"sample_id": "not there"},
        {"sample_id": 3},
        {},
    ],
)
def test_the_rows_with_these_cells(table: Path, cells: dict[str, Any]) -> None:
    expected = {place: row for place, row in enumerate(ROWS) if row.items() >= cells.items()}
    assert query_rows(table, **cells) == list(expected.values())
    assert numbered_rows(table, **cells) == expected
    texts = {place: {"text": row["text"]} for place, row in expected.items()}
    assert numbered_rows(table, ["text"], **cells) == texts


def test_the_rows_at_these_places(table: Path) -> None:
    places = [59, 0, 17, 8, 7, 16]
    assert rows_at(table, places) == {place: ROWS[place] for place in places}
    assert rows_at(table, []) == {}


def test_a_column_that_is_not_there_is_named(table: Path) -> None:
    with pytest.raises(DataError, match="iteration"):
        numbered_rows(table, ["iteration"], sample_id="q1")
