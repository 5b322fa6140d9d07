"""The rows of a case come out of their packing as they went in, in groups that depend on the rows alone."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.schema.table_schemas import JUDGE_INPUTS
from ragpipe.stages.table_rows import PackedInputs, row_groups

TEXTS = st.none() | st.text(st.characters(exclude_categories=()), max_size=12)  # lone surrogates among them
CELLS = TEXTS | st.integers() | st.floats(allow_nan=False) | st.lists(st.text(max_size=3), max_size=2)
ROW = st.fixed_dictionaries({name: CELLS for name in JUDGE_INPUTS.names} | {"messages": TEXTS, "reply": TEXTS})


def by_row(group: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(group, cells, strict=True)) for cells in zip(*group.values(), strict=True)]


def text_length(rows: list[dict[str, Any]]) -> int:
    return sum(len(row["messages"] or "") + len(row["reply"] or "") for row in rows)


@pytest.mark.slow
@given(st.lists(st.lists(ROW, max_size=3), max_size=5), st.integers(1, 40))
def test_rows_are_packed_and_grouped_without_a_change(cases: list[list[dict[str, Any]]], limit: int) -> None:
    groups = [by_row(group) for group in row_groups(map(PackedInputs.of, cases), limit)]
    assert list(chain(*groups)) == list(chain(*cases))
    expected: list[list[dict[str, Any]]] = [[]]
    for rows in cases:
        expected[-1] = expected[-1] + rows
        if text_length(expected[-1]) >= limit:
            expected.append([])
    assert groups == expected


def test_no_case_is_one_group_without_rows() -> None:
    assert list(row_groups([], 10)) == [{name: [] for name in JUDGE_INPUTS.names}]
