"""Rows of a table of a run, found by their cells or by their place."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragpipe.core.errors import DataError
from ragpipe.schema.sample import CaseKey
from ragpipe.store.run.run_tables import numbered_rows, query_rows, rows_at, rows_of_cases

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

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


IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.text("é\uffff\U0001f600z", max_size=3).map(
    lambda text: text * 2000  # longer than what a footer keeps of a value
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(IDS, min_size=1, max_size=12), st.lists(IDS, max_size=3), st.integers(1, 5), st.booleans(), st.data())
def test_the_rows_of_cases_are_those_of_a_search_through_all(
    tmp_path: Path, ids: list[str], others: list[str], group: int, has_statistics: bool, data: st.DataObject
) -> None:
    path = tmp_path / "cases.parquet"
    rows = [{"place": place, "sample_id": name, "method": "a", "repeat": 1} for place, name in enumerate(ids)]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group, write_statistics=has_statistics)
    asked = {CaseKey(name, "a") for name in [*data.draw(st.lists(st.sampled_from(ids), max_size=4)), *others]}
    assert rows_of_cases(path, asked) == {
        case: [row for row in rows if row["sample_id"] == case.sample_id] for case in asked
    }
