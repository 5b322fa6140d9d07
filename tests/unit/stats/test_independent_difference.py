"""The difference of two independent samples: published intervals, another library, and how often it is wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import confint_proportions_2indep

from ragpipe.stats.independent_difference import IndependentRows, independent_difference


def hits(count: int, n: int) -> IndependentRows:
    return IndependentRows(np.repeat([1.0, 0.0], [count, n - count]))


# Newcombe (1998), table II, method 10: two proportions and the interval of their difference
@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0000),
        ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)
def test_published_intervals(first: tuple[int, int], second: tuple[int, int], low: float, high: float) -> None:
    found = independent_difference(hits(*second), hits(*first), low=0, high=1, binary=True).interval
    assert found
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.data())
def test_rates_are_those_of_another_library(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(2, 300)) for _ in range(2)]
    counts = [data.draw(st.integers(0, size)) for size in sizes]
    expected = confint_proportions_2indep(counts[0], sizes[0], counts[1], sizes[1], method="newcomb", compare="diff")
    found = independent_difference(hits(counts[1], sizes[1]), hits(counts[0], sizes[0]), low=0, high=1, binary=True)
    assert found.interval
    assert (found.interval.low, found.interval.high) == pytest.approx(expected, abs=1e-9)
    assert found.interval.low <= found.difference <= found.interval.high


def test_rows_of_one_question_count_as_one() -> None:
    values = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    alone = independent_difference(IndependentRows(values), IndependentRows(values), low=0, high=1).interval
    asked = np.repeat(np.arange(6), 3)
    repeated = IndependentRows(np.repeat(values, 3), asked)
    together = independent_difference(repeated, repeated, low=0, high=1).interval
    assert alone
    assert together
    assert (together.low, together.high) == pytest.approx((alone.low, alone.high))


def test_without_an_interval_there_is_none() -> None:
    single, several = IndependentRows(np.array([0.5])), IndependentRows(np.array([0.5, 0.7]))
    assert independent_difference(single, several, low=0, high=1).interval is None
    assert independent_difference(single, several, low=0, high=1).difference == pytest.approx(0.1)
    assert independent_difference(IndependentRows(np.array([])), several, low=0, high=1).difference is None
    assert independent_difference(IndependentRows(np.array([2.0, 2.0])), several).interval is None, (
        "equal counts have no spread"
    )


@pytest.mark.parametrize(("rate", "sizes"), [(0.85, (200, 200)), (0.5, (60, 200)), (0.95, (100, 40))])
def test_equal_systems_seldom_differ(rate: float, sizes: tuple[int, int]) -> None:
    """The interval of two equal rates leaves out 0 in about 5 % of 400 repetitions, give or take three standard errors of .011."""
    rng = np.random.default_rng(11)
    counts = [rng.binomial(size, rate, 400) for size in sizes]
    wrong = 0
    for first, second in zip(*counts, strict=True):
        interval = independent_difference(
            hits(first, sizes[0]), hits(second, sizes[1]), low=0, high=1, binary=True
        ).interval
        assert interval
        wrong += not interval.low <= 0 <= interval.high
    assert wrong / 400 <= 0.083


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "low", "high"), [("shares", 0.030, 0.066), ("two rows a question", 0.026, 0.064)])
def test_graded_and_repeated_rows_of_equal_systems(kind: str, low: float, high: float) -> None:
    """With other draws than the table of docs/statistics.md (.053 and .045 of 100 questions), give or take three standard errors of .006."""
    rng = np.random.default_rng(23)

    def sample() -> IndependentRows:
        rates = rng.beta(1.275, 0.225, 100) if kind == "shares" else rng.beta(1.7, 0.3, 50)
        if kind == "shares":
            return IndependentRows(rng.binomial(5, rates) / 5)
        asked = np.repeat(np.arange(50), 2)
        return IndependentRows((rng.random(100) < rates[asked]).astype(float), asked)

    wrong = 0
    for _ in range(1500):
        interval = independent_difference(sample(), sample(), low=0, high=1, binary=kind != "shares").interval
        assert interval
        wrong += not interval.low <= 0 <= interval.high
    assert low <= wrong / 1500 <= high
