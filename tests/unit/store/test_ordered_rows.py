"""Tables that are read once from their beginning to their end: the rows of each case, whatever row groups they are in."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import DataError
from ragpipe.store.run.ordered_rows import CaseOrderedRows, PlacedRows, rows_in_order

KEY = ("sample_id", "method", "repeat")
Case = tuple[str, str, int]


def written(path: Path, cases: list[tuple[Case, int]], group: int) -> list[tuple[Case, int]]:
    """A table with so many numbered rows of each case, in row groups of `group` rows. Returns its rows."""
    rows = [(case, number) for case, count in cases for number in range(count)]
    columns = {name: [case[part] for case, _ in rows] for part, name in enumerate(KEY)}
    columns |= {"number": [number for _, number in rows], "text": [f"{case}: {number}" for case, number in rows]}
    types = {"sample_id": pa.string(), "method": pa.string(), "text": pa.string()}
    schema = pa.schema([(name, types.get(name, pa.int32())) for name in columns])
    pq.write_table(pa.table(columns, schema=schema), path, row_group_size=group)
    return rows


def key(number: int) -> Case:
    """Neighbours differ in one part of the key only."""
    return f"s{number // 4}", "ab"[number // 2 % 2], 1 + number % 2


@pytest.mark.slow
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    group=st.integers(1, 12),
    block=st.integers(1, 7),
    wide=st.sets(st.integers(0, 19)),
)
def test_every_case_gets_its_rows_whatever_the_row_groups_and_blocks(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], group: int, block: int, wide: set[int]
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.parquet"
    cases = [(key(number), count) for number, count in enumerate(counts)]
    written(path, cases, group)
    found = {}
    with CaseOrderedRows(path, ["number"], ["text"]) as rows:
        for start in range(0, len(cases), block):
            part = [case for case, _ in cases[start : start + block]]
            found |= rows.take(part, {key(number) for number in wide})
        rows.check_end()
    assert found == {
        case: [{"number": n, "text": f"{case}: {n}"} if place in wide else {"number": n} for n in range(count)]
        for place, (case, count) in enumerate(cases)
    }


@pytest.mark.slow
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    group=st.integers(1, 12),
    block=st.integers(1, 7),
    among=st.sets(st.integers(0, 19)),
)
def test_of_some_cases_the_others_are_passed_over(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], group: int, block: int, among: set[int]
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.parquet"
    cases = [(key(number), count) for number, count in enumerate(counts)]
    written(path, cases, group)
    asked_for = [key(number) for number in sorted(among) if number < len(cases)]
    found = {}
    with CaseOrderedRows(path, ["number"], among=set(asked_for)) as rows:
        for start in range(0, len(asked_for), block):
            found |= rows.take(asked_for[start : start + block])
    assert found == {case: [{"number": n} for n in range(dict(cases)[case])] for case in asked_for}


@pytest.mark.parametrize("others", [[(key(9), 1)], [(key(0), 1), (key(1), 2), (key(0), 1)], [(key(1), 1), (key(0), 1)]])
def test_rows_of_other_cases_or_in_another_order_are_an_error_at_the_end(
    tmp_path: Path, others: list[tuple[Case, int]]
) -> None:
    written(tmp_path / "t.parquet", others, group=1)
    with CaseOrderedRows(tmp_path / "t.parquet", ["number"]) as rows:
        for case in (key(0), key(1)):
            rows.take([case])
        with pytest.raises(DataError, match=r"rows of other cases, or in another order"):
            rows.check_end()


def test_a_table_without_a_column_is_an_error(tmp_path: Path) -> None:
    written(tmp_path / "t.parquet", [(key(0), 1)], group=1)
    with pytest.raises(DataError, match="no column details"):
        CaseOrderedRows(tmp_path / "t.parquet", ["details"])


def test_rows_by_their_places_and_in_order(tmp_path: Path) -> None:
    written(tmp_path / "t.parquet", [(key(0), 7)], group=3)
    with PlacedRows(tmp_path / "t.parquet") as rows:
        assert [row and row["number"] for row in map(rows.get, (6, 0, 3, 6, 7, -1))] == [6, 0, 3, 6, None, None]
    places = np.array([1, 2, 6])
    assert list(rows_in_order(tmp_path / "t.parquet", ["number"], places)) == [{"number": n} for n in (1, 2, 6)]
