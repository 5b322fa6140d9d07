"""McNemar's exact test against hand calculation and scipy's binomial test."""

import pytest

from ragpipe.stats.differences import mcnemar_p

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test


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
def test_by_hand(gained: int, lost: int, p: float | None) -> None:
    assert mcnemar_p(gained, lost) == (p if p is None else pytest.approx(p, abs=1e-15))
    assert mcnemar_p(lost, gained) == mcnemar_p(gained, lost)


def test_many_pairs_as_scipy() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    for gained, lost in ((40, 70), (700, 812), (1500, 1500)):
        expected = scipy_stats.binomtest(gained, gained + lost, 0.5).pvalue
        assert mcnemar_p(gained, lost) == pytest.approx(expected, rel=1e-9)
