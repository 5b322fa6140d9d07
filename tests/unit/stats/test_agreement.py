"""Agreement against worked examples of the literature, and against scikit-learn and scipy as oracles."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.stats.agreement import cohen_kappa, equal_share, kendall, pearson, quadratic_kappa, ranks, spearman

GRADES = st.integers(0, 5)
PAIRS = st.lists(st.tuples(GRADES, GRADES), min_size=2, max_size=60)


def _arrays(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(pairs, dtype=float)
    return both[:, 0], both[:, 1]


def test_kappa_of_two_raters_and_whole_pairs() -> None:
    # the textbook's 2x2 table: both yes 20, both no 15, yes/no 5, no/yes 10. p_o = 35/50 = 0.7,
    # p_e = (25*30 + 25*20) / 2500 = 0.5, kappa = 0.2 / 0.5 = 0.4
    old = np.array([1.0] * 20 + [1.0] * 5 + [0.0] * 10 + [0.0] * 15)
    new = np.array([1.0] * 20 + [0.0] * 5 + [1.0] * 10 + [0.0] * 15)
    found = cohen_kappa(old, new)
    assert (found.n, found.reason) == (50, None)
    assert (found.value, equal_share(old, new)) == (pytest.approx(0.4, abs=1e-12), pytest.approx(0.7))
    with pytest.raises(ValueError, match="same cases"):
        cohen_kappa(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        pearson(np.array([1.0, math.nan]), np.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("function", "old", "new", "reason"),
    [
        (cohen_kappa, [], [], "no_pairs"), (cohen_kappa, [1, 1], [1, 1], "one_class"), (quadratic_kappa, [], [], "no_pairs"),
        (quadratic_kappa, [3, 3, 3], [3, 3, 3], "one_class"), (pearson, [], [], "no_pairs"), (pearson, [1], [2], "one_pair"),
        (pearson, [0.1, 0.1, 0.1], [1, 2, 3], "no_spread"), (spearman, [1, 2, 3], [4, 4, 4], "no_spread"),
        (kendall, [], [], "no_pairs"), (kendall, [1], [2], "one_pair"), (kendall, [1, 2, 3], [4, 4, 4], "no_spread"),
    ],
)  # fmt: skip
def test_what_is_not_defined_says_why(function, old: list[float], new: list[float], reason: str) -> None:
    found = function(np.array(old, float), np.array(new, float))
    assert (found.n, found.value, found.reason) == (len(old), None, reason)


@pytest.mark.slow
@given(PAIRS)
def test_the_same_as_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import cohen_kappa_score

    old, new = _arrays(pairs)
    if len({*old, *new}) == 1:
        assert cohen_kappa(old, new).reason == quadratic_kappa(old, new).reason == "one_class"
        return
    plain = cohen_kappa_score(old.astype(int), new.astype(int))
    weighted = cohen_kappa_score(old.astype(int), new.astype(int), weights="quadratic", labels=list(range(6)))
    assert cohen_kappa(old, new).value == pytest.approx(plain, abs=1e-12)
    assert quadratic_kappa(old, new).value == pytest.approx(weighted, abs=1e-12)


@pytest.mark.slow
@given(st.lists(st.tuples(*[st.floats(-1e6, 1e6) | GRADES.map(float)] * 2), min_size=3, max_size=40))
def test_the_same_as_scipy(pairs: list[tuple[float, float]]) -> None:
    from scipy import stats

    old, new = _arrays(pairs)
    assert ranks(old).tolist() == stats.rankdata(old).tolist()
    if len(set(old)) == 1 or len(set(new)) == 1:
        assert pearson(old, new).reason == spearman(old, new).reason == kendall(old, new).reason == "no_spread"
        return
    assert kendall(old, new).value == pytest.approx(stats.kendalltau(old, new).statistic, abs=1e-12)
    assert spearman(old, new).value == pytest.approx(stats.spearmanr(old, new).statistic, abs=1e-9)
    if min(np.ptp(old) / np.max(np.abs(old)), np.ptp(new) / np.max(np.abs(new))) > 1e-6:  # where scipy is exact itself
        assert pearson(old, new).value == pytest.approx(stats.pearsonr(old, new).statistic, abs=1e-9)
