"""The probability of every drawn case is right: by all orders of a few cases, and by many seeds of more."""

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.calibration.label_files import asked_of, draw_cases, random_order
from ragpipe.core.errors import ConfigError

FEW = ["a", "a", "b", "b", "b", "b", "b"]


def draws(size, random_size):
    """The draw of every order of the few cases."""
    return [draw_cases(order, FEW, size, random_size=random_size) for order in permutations(range(7))]


@pytest.mark.parametrize(("size", "random_size"), [(5, 5), (4, 2), (5, 3), (6, 1)])
def test_each_case_is_drawn_as_often_as_its_probability_says(size, random_size):
    by_counts = defaultdict(list)
    for draw in draws(size, random_size):
        by_counts[draw.drawn["a"], draw.drawn["b"]].append(draw)
    for (of_a, of_b), same in by_counts.items():
        often = Counter(place for draw in same for place in draw.places)
        expected = [Fraction(of_a, 2)] * 2 + [Fraction(of_b, 5)] * 5
        assert [Fraction(often[place], len(same)) for place in range(7)] == expected
        assert [same[0].probability(stratum) for stratum in FEW] == [float(share) for share in expected]


def test_the_random_part_is_a_simple_random_sample():
    heads = Counter(frozenset(draw.places[: draw.random]) for draw in draws(5, 3))
    assert len(heads) == 35  # 7 over 3
    assert len(set(heads.values())) == 1


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=40),
    st.integers(6, 30), st.integers(0, 20), st.floats(0, 1), st.integers(0, 9),
)  # fmt: skip
def test_a_larger_draw_contains_the_smaller_one(strata, size, more, share, seed):
    order = random_order([str(place) for place in range(len(strata))], seed)
    first = draw_cases(order, strata, size, random_size=round(share * size))
    grown = draw_cases(order, strata, size + more, random_size=round(share * (size + more)))
    slack = 2 * len(set(strata))  # two of every stratum are drawn, also where the random part has taken all
    assert min(size, len(strata)) <= len(first.places) <= min(size + slack, len(strata))
    assert set(first.places) <= set(grown.places)
    assert len(set(grown.places)) == len(grown.places) >= min(size + more, len(strata))
    assert Counter(strata[place] for place in grown.places) == Counter(grown.drawn)
    assert grown.places[: grown.random] == order[: grown.random]


def test_the_strata_get_as_many_cases_each():
    assert draw_cases(range(100), ["a"] * 40 + ["b"] * 60, 30, random_size=0).drawn == {"a": 15, "b": 15}


def test_a_draw_of_more_than_all_is_all():
    draw = draw_cases([2, 0, 1], ["all"] * 3, 60, random_size=60)
    assert (draw.places, draw.random, draw.probability("all")) == ([2, 0, 1], 3, 1.0)


def test_more_strata_than_the_draw_can_serve_are_refused():
    with pytest.raises(ConfigError, match=r"at least 2 cases of each of the 5 strata"):
        draw_cases(range(20), list("abcde") * 4, 9, random_size=2)


def test_the_order_depends_on_seed_and_keys_alone():
    keys = [f"q{number}" for number in range(50)]
    order = random_order(keys, 7)
    assert order == random_order(keys, 7) != random_order(keys, 8)
    without = random_order(keys[1:], 7)
    assert [place - 1 for place in order if place] == without


@pytest.mark.parametrize("count", [1, 7, 60, 101])
def test_a_fifth_of_the_cases_is_for_all_annotators(count):
    asked = asked_of(count, ["ann", "bob", "cy"])
    assert asked.count(None) == int(np.ceil(count / 5))
    turns = Counter(names[0] for names in asked if names)
    assert max(turns.values(), default=0) - min((turns[name] for name in ("ann", "bob", "cy")), default=0) <= 1
    assert asked_of(count + 9, ["ann", "bob", "cy"])[:count] == asked


def test_one_annotator_is_asked_for_everything():
    assert asked_of(3, []) == asked_of(3, ["ann"]) == [None, None, None]
