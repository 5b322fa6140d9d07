"""Columns that grow: what was added comes back bit by bit, however it was divided and however many different values there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.scoring.growing_columns import GrowingArray, GrowingCodes, GrowingValues, unique_numbers

VALUES = st.lists(st.floats(width=64) | st.sampled_from([0.0, -0.0, 1.0, float("nan")]), max_size=60)


def grown(values: list[float], size: int) -> GrowingValues:
    column = GrowingValues()
    for start in range(0, len(values), size):
        column.add(np.array(values[start : start + size]))
    return column


@pytest.mark.slow
@given(VALUES, st.integers(1, 60), st.integers(0, 5))
def test_every_bit_of_a_value_comes_back(values: list[float], size: int, step: int) -> None:
    column = grown(values, size).column()
    expected = np.array(values)
    assert len(column) == len(values)
    assert column[:].tobytes() == expected.tobytes(), "NaN and -0.0 too"
    places = np.arange(0, len(values), step + 1)
    assert column[places].tobytes() == expected[places].tobytes()
    assert column[expected == 1].tobytes() == expected[expected == 1].tobytes()


@pytest.mark.parametrize(("different", "width"), [(256, 1), (257, 2), (4096, 2), (4097, 8)])
@pytest.mark.parametrize("size", [100, 9000])
def test_more_different_values_take_more_bytes(different: int, width: int, size: int) -> None:
    values = [place % different / 7 for place in range(9000)]
    column = grown(values, size).column()
    assert column[:].tolist() == values
    assert column._stored.nbytes == 9000 * width  # what it is there for


@pytest.mark.slow
@given(st.lists(st.integers(0, 999), max_size=999), st.integers(1, 999))
def test_codes_lead_to_their_numbers(numbers: list[int], size: int) -> None:
    column = GrowingCodes()
    for start in range(0, len(numbers), size):
        column.add(np.array(numbers[start : start + size], dtype=np.int64))
    assert column.different()[column.codes()].tolist() == numbers
    assert len(column) == len(set(numbers))


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(-128, 127))))
def test_an_array_is_its_blocks_behind_each_other(blocks: list[list[int]]) -> None:
    column = GrowingArray(np.int8)
    for block in blocks:
        column.add(np.array(block, dtype=np.int64))
    assert column.array().tolist() == [number for block in blocks for number in block]


@pytest.mark.parametrize("numbers", [[], [7], [5, 5, 5], [3, 1, 3, 2, 1], [2, 2, 1]])
def test_the_different_numbers_are_those_of_numpy(numbers: list[int]) -> None:
    column = np.array(numbers, dtype=np.int64)
    expected = np.unique(column, return_index=True, return_inverse=True)
    assert [part.tolist() for part in unique_numbers(column)] == [part.tolist() for part in expected]
