"""Numbers of clusters against the slow functions of numpy."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.stats.intervals import cluster_codes, distinct, in_all, in_any

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
NUMBERS = st.lists(st.integers(0, 6), max_size=12).map(lambda numbers: np.array(numbers, dtype=np.int64))
NONE = np.empty(0, dtype=np.int64)


@given(NUMBERS)
def test_different_numbers_and_codes_are_those_of_unique(numbers: np.ndarray) -> None:
    for clusters in (numbers, np.sort(numbers)):
        names, expected = np.unique(clusters, return_inverse=True)
        assert distinct(clusters).tolist() == names.tolist()
        codes, groups = cluster_codes(clusters)
        assert (codes.tolist(), groups, codes.dtype) == (expected.tolist(), len(names), np.int64)


@given(st.lists(NUMBERS, max_size=3))
def test_what_lists_share(lists: list[np.ndarray]) -> None:
    assert in_all(lists).tolist() == (reduce(np.intersect1d, lists, np.unique(lists[0])) if lists else NONE).tolist()
    assert in_any(lists).tolist() == reduce(np.union1d, lists, NONE).tolist()
