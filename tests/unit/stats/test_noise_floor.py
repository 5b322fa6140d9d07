"""Judge noise and item variance: by hand, against a mixed model of statsmodels, and what to buy next."""

import math

import numpy as np
import pytest

from ragpipe.stats.noise_floor import NoiseFloor, flip_rate, noise_floor, second_judging_from

pytestmark = pytest.mark.slow


def floor_of(judgings: np.ndarray) -> NoiseFloor:
    counts = np.sum(~np.isnan(judgings), axis=1)
    means = np.array([np.nanmean(row) if n else np.nan for row, n in zip(judgings, counts, strict=True)])
    return noise_floor(means, np.nansum((judgings - means[:, None]) ** 2, axis=1), counts)


def test_by_hand_with_and_without_missing_judgings() -> None:
    """Means .2 .6 .7: variance .07. Squares .02, .02, 0 over 3 degrees: s_j^2 = .04/3. Items .07 - .02/3; floor
    1.96 sqrt(2 * .02/3 / 3)."""
    result = floor_of(np.array([[0.1, 0.3], [0.7, 0.5], [0.7, 0.7]]))
    assert (result.n, result.repeats, result.reason) == (3, 2, None)
    assert result.judge_variance == pytest.approx(0.04 / 3)
    assert result.item_variance == pytest.approx(0.07 - 0.02 / 3)
    assert result.floor == pytest.approx(1.959964 * math.sqrt(2 * 0.02 / 3 / 3), rel=1e-6)
    assert result.judge_share == pytest.approx(0.04 / 3 / (0.04 / 3 + 0.07 - 0.02 / 3))
    # cases of 3, 1 and 0 judgings: squares .02 over 2 degrees; mean of 1/r is (1/3 + 1)/2 = 2/3.
    result = floor_of(np.array([[0.1, 0.2, 0.3], [0.9, np.nan, np.nan], [np.nan] * 3]))
    assert (result.n, result.repeats) == (2, pytest.approx(1.5))
    assert result.judge_variance == pytest.approx(0.01)
    assert result.item_variance == pytest.approx(0.245 - 0.01 * 2 / 3)
    assert result.floor == pytest.approx(1.959964 * math.sqrt(2 * 0.01 * 2 / 3 / 2), rel=1e-6)


@pytest.mark.parametrize(("judgings", "reason", "items", "share"), [
    ([[0.5], [0.6]], "no_case_with_two_values", None, None), (np.empty((0, 2)), "no_case_with_two_values", None, None),
    ([[0.5, 0.7]], "one_case", None, None), ([[0.5, 0.5], [0.5, 0.5]], None, 0.0, None), ([[0.0, 1.0], [1.0, 0.0]], None, 0.0, 1.0),
])  # fmt: skip
def test_what_cannot_be_said(judgings: object, reason: str | None, items: float | None, share: float | None) -> None:
    result = floor_of(np.array(judgings, dtype=np.float64))
    assert (result.reason, result.item_variance, result.judge_share) == (reason, items, share)


def test_the_variances_of_a_mixed_model() -> None:
    """Balanced: the estimates of restricted maximum likelihood by statsmodels, to its convergence."""
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    rng = np.random.default_rng(6)
    judgings = 0.3 * rng.standard_normal((40, 1)) + 0.2 * rng.standard_normal((40, 3))
    model = mixed.MixedLM(judgings.ravel(), np.ones((120, 1)), groups=np.repeat(np.arange(40), 3)).fit(reml=True)
    result = floor_of(judgings)
    assert result.judge_variance == pytest.approx(model.scale, rel=1e-4)
    assert result.item_variance == pytest.approx(float(model.cov_re[0, 0]), rel=1e-3)


@pytest.mark.parametrize(
    ("passed", "judged", "rate"),
    [
        ([0, 1], [1, 1], None),
        ([], [], None),
        ([0, 2, 1, 5], [2, 2, 2, 5], 0.25),  # one of four cases, always unlike
        ([1, 2, 0], [3, 3, 1], 2 / 3),  # two of three pairs of judgings differ
        ([2], [5], 0.6),  # 6 of 10 pairs
    ],
)
def test_flip_rate(passed: list[int], judged: list[int], rate: float | None) -> None:
    result = flip_rate(np.array(passed, dtype=np.int16), np.array(judged, dtype=np.int16))
    assert result == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize(("judge", "items"), [(0.3, 0.3), (0.1, 0.3), (0.3, 0.1)])
def test_from_which_cost_a_second_judging_pays(judge: float, items: float) -> None:
    """There a budget of 300 gives the same variance either way; a cheaper case is better bought, a dearer one judged twice."""
    cost = second_judging_from(NoiseFloor(10, 2, judge**2, items**2, 0.1))

    def variance(repeats: int, case: float) -> float:
        return (items**2 + judge**2 / repeats) * (case + repeats) / 300

    assert variance(1, cost) == pytest.approx(variance(2, cost))
    assert variance(1, cost * 0.9) < variance(2, cost * 0.9)
    assert variance(1, cost * 1.1) > variance(2, cost * 1.1)
    assert second_judging_from(NoiseFloor(10, 2, 0.0, 0.1, 0.0)) is None
    assert second_judging_from(NoiseFloor(10, reason="no_case_with_two_values")) is None
