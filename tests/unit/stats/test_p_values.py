"""McNemar's exact test and adjusted p-values: by hand, examples of the literature, scipy as an oracle, what always holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragpipe.stats.difference_verdict import benjamini_hochberg, holm
from ragpipe.stats.differences import mcnemar_p

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
P_VALUES = st.lists(st.floats(0, 1) | st.sampled_from([0.0, 0.01, 0.01, 0.05, 1.0]), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [
        (0, 0, None),
        (1, 0, 1.0),  # 2 * 1/2
        (0, 5, 2 / 32),
        (1, 5, 2 * (1 + 6) / 64),
        (3, 3, 1.0),  # 2 * 42/64, cut at 1
        (2, 10, 2 * (1 + 12 + 66) / 4096),
    ],
)
def test_mcnemar_by_hand(gained: int, lost: int, p: float | None) -> None:
    assert mcnemar_p(gained, lost) == (p if p is None else pytest.approx(p, abs=1e-15))
    assert mcnemar_p(lost, gained) == mcnemar_p(gained, lost)


def test_mcnemar_of_many_pairs_as_scipy() -> None:
    for gained, lost in ((40, 70), (700, 812), (1500, 1500)):
        assert mcnemar_p(gained, lost) == pytest.approx(stats.binomtest(gained, gained + lost, 0.5).pvalue, rel=1e-9)


@pytest.mark.parametrize(
    ("p_values", "by_holm", "by_hochberg"),
    [
        ([], [], []),
        ([0.03], [0.03], [0.03]),
        ([None], [None], [None]),
        # 3 * .01, 2 * .03 and then not below it; .01 * 3/1, .03 * 3/2, .04 * 3/3
        ([0.04, 0.01, 0.03], [0.06, 0.03, 0.06], [0.04, 0.03, 0.04]),
        # without a test there is nothing to adjust for
        ([None, 0.02, 0.5, None], [None, 0.04, 0.5, None], [None, 0.04, 0.5, None]),
        ([0.6, 0.7], [1.0, 1.0], [0.7, 0.7]),
        ([0.0, 1.0], [0.0, 1.0], [0.0, 1.0]),
    ],
)
def test_adjusted_by_hand(p_values: list[float | None], by_holm: list[float | None], by_hochberg: list[float | None]) -> None:
    for adjusted, expected in ((holm(p_values), by_holm), (benjamini_hochberg(p_values), by_hochberg)):
        assert [p is None for p in adjusted] == [p is None for p in expected]
        assert [p for p in adjusted if p is not None] == pytest.approx([p for p in expected if p is not None])


def test_the_example_of_benjamini_and_hochberg() -> None:
    """Fifteen p-values of a trial (Benjamini and Hochberg 1995, section 4.1): at .05 their procedure rejects four hypotheses,
    Bonferroni's and Holm's three."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert sum(p is not None and p <= 0.05 for p in benjamini_hochberg(p_values)) == 4
    assert sum(p is not None and p <= 0.05 for p in holm(p_values)) == 3


@given(P_VALUES)
def test_benjamini_and_hochberg_as_in_scipy(p_values: list[float]) -> None:
    assert benjamini_hochberg(p_values) == pytest.approx(list(stats.false_discovery_control(p_values)))


@given(P_VALUES, st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_rejects_step_by_step(p_values: list[float], level: float) -> None:
    """The procedure itself: from the smallest on, reject while p is at most level / (tests that are left)."""
    rejected = 0
    for rank, p in enumerate(sorted(p_values)):
        if p * (len(p_values) - rank) > level:
            break
        rejected += 1
    assert sum(p is not None and p <= level for p in holm(p_values)) == rejected


@pytest.mark.parametrize("p", [-0.1, 1.2, float("nan")])
def test_only_p_values(p: float) -> None:
    for adjust in (holm, benjamini_hochberg):
        with pytest.raises(ValueError, match="between 0 and 1"):
            adjust([0.5, p])
