"""Pairing of cases: by sample, method and repeat; by sample and repeat where each side has one method."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.comparing.pairing import Pairs, paired_cases, paired_judgements

KEYS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y", "z"]), st.integers(1, 3)), unique=True)


def table(keys: list[tuple[str, str, int]]) -> pa.Table:
    columns = list(zip(*keys, strict=True)) or [(), (), ()]
    kinds = pa.string(), pa.string(), pa.int64()
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=["sample_id", "method", "repeat"])


def keys_of(pairs: Pairs) -> list[tuple[str, str, int]]:
    return [tuple(row.values()) for row in pairs.cases.to_pylist()]


def test_cases_of_several_methods_meet_by_all_of_their_key() -> None:
    base = [("q2", "old", 1), ("q1", "old", 1), ("q1", "new", 1), ("q1", "new", 2)]
    candidate = [("q1", "new", 2), ("q3", "old", 1), ("q1", "old", 1), ("q2", "new", 1)]
    pairs = paired_cases(table(base), table(candidate))
    assert keys_of(pairs) == [("q1", "old", 1), ("q1", "new", 2)]  # in the order of the base
    assert (pairs.base.tolist(), pairs.candidate.tolist()) == ([1, 3], [2, 0])
    assert (pairs.only_base, pairs.only_candidate) == (2, 2)
    assert pairs.questions[0] == pairs.questions[1]


def test_one_method_on_each_side_meets_whatever_it_is_called() -> None:
    pairs = paired_cases(table([("q1", "bm25", 1), ("q2", "bm25", 1)]), table([("q2", "dense", 1), ("q1", "dense", 1)]))
    assert keys_of(pairs) == [("q1", "dense", 1), ("q2", "dense", 1)]  # as the candidate names them
    assert (pairs.only_base, pairs.only_candidate) == (0, 0)


def test_repeats_do_not_meet_each_other() -> None:
    pairs = paired_cases(table([("q1", "a", 1), ("q1", "a", 2)]), table([("q1", "b", 2)]))
    assert keys_of(pairs) == [("q1", "b", 2)]
    assert pairs.only_base == 1


@pytest.mark.slow
@given(KEYS, KEYS)
def test_pairs_are_the_intersection_of_the_keys(
    base: list[tuple[str, str, int]], candidate: list[tuple[str, str, int]]
) -> None:
    pairs = paired_cases(table(base), table(candidate))
    by_all = max(len({key[1] for key in side}) for side in (base, candidate)) > 1 if base or candidate else True

    def name(key: tuple[str, str, int]) -> tuple[object, ...]:
        return key if by_all else (key[0], key[2])

    shared = {name(key) for key in base} & {name(key) for key in candidate}
    assert [name(base[row]) for row in pairs.base] == [name(key) for key in base if name(key) in shared]
    assert [name(candidate[row]) for row in pairs.candidate] == [name(base[row]) for row in pairs.base]
    assert [candidate[row] for row in pairs.candidate] == keys_of(pairs)
    assert pairs.only_base + len(pairs) == len(base)
    assert pairs.only_candidate + len(pairs) == len(candidate)
    for i, first in enumerate(keys_of(pairs)):
        for j, second in enumerate(keys_of(pairs)):
            assert (pairs.questions[i] == pairs.questions[j]) == (first[0] == second[0])


def test_judgements_meet_within_an_iteration_and_are_numbered_over_all() -> None:
    """The candidate's iterations stand in another order; iteration 2 lacks q1 there."""
    keys = [("q1", "a", 1), ("q2", "a", 1)]
    base = {1: table(keys), 2: table(keys)}
    pairs = paired_judgements(base, {2: table(keys[1:]), 1: table(keys[::-1])})
    assert pairs.base.tolist() == [0, 1, 3]
    assert pairs.candidate.tolist() == [2, 1, 0]
    assert pairs.cases["iteration"].to_pylist() == [1, 1, 2]
    assert pairs.questions.tolist() == [0, 1, 1]
    assert (pairs.only_base, pairs.only_candidate) == (1, 0)
