"""Judge noise and item variance: by hand, against a mixed model of statsmodels, and what to buy next."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.stats.noise_floor import NoiseFloor, best_repeats, flip_rate, noise_floor, second_judging_from
from ragpipe.stats.rank_stability import rank_stability, weighted_means

pytestmark = pytest.mark.slow


def floor_of(judgings: np.ndarray) -> NoiseFloor:
    """Of a table with a row per case; NaN where a judging gave no value."""
    counts = np.sum(~np.isnan(judgings), axis=1)
    means = np.array([np.nanmean(row) if n else np.nan for row, n in zip(judgings, counts, strict=True)])
    return noise_floor(means, np.nansum((judgings - means[:, None]) ** 2, axis=1), counts)


def test_by_hand() -> None:
    """Means .2 .6 .7: variance .07. Squares .02, .02, 0 over 3 degrees: s_j^2 = .04/3. Items .07 - .02/3; floor
    1.96 sqrt(2 * .02/3 / 3)."""
    result = floor_of(np.array([[0.1, 0.3], [0.7, 0.5], [0.7, 0.7]]))
    assert (result.n, result.repeats, result.reason) == (3, 2, None)
    assert result.judge_variance == pytest.approx(0.04 / 3)
    assert result.item_variance == pytest.approx(0.07 - 0.02 / 3)
    assert result.floor == pytest.approx(1.959964 * math.sqrt(2 * 0.02 / 3 / 3), rel=1e-6)
    assert result.judge_share == pytest.approx(0.04 / 3 / (0.04 / 3 + 0.07 - 0.02 / 3))


def test_missing_judgings() -> None:
    """Cases of 3, 1 and 0 judgings: squares .02 over 2 degrees; mean of 1/r is (1/3 + 1)/2 = 2/3."""
    result = floor_of(np.array([[0.1, 0.2, 0.3], [0.9, np.nan, np.nan], [np.nan] * 3]))
    assert (result.n, result.repeats) == (2, pytest.approx(1.5))
    assert result.judge_variance == pytest.approx(0.01)
    assert result.item_variance == pytest.approx(0.245 - 0.01 * 2 / 3)
    assert result.floor == pytest.approx(1.959964 * math.sqrt(2 * 0.01 * 2 / 3 / 2), rel=1e-6)


@pytest.mark.parametrize(
    ("judgings", "reason", "items", "share"),
    [
        ([[0.5], [0.6]], "no_case_with_two_values", None, None), (np.empty((0, 2)), "no_case_with_two_values", None, None),
        ([[0.5, 0.7]], "one_case", None, None), ([[0.5, 0.5], [0.5, 0.5]], None, 0.0, None), ([[0.0, 1.0], [1.0, 0.0]], None, 0.0, 1.0),
    ],
)  # fmt: skip
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


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=6), min_size=1, max_size=8))
def test_the_flip_rate_counts_pairs(verdicts: list[list[bool]]) -> None:
    shares = []
    for case in verdicts:
        pairs = [(a, b) for place, a in enumerate(case) for b in case[place + 1 :]]
        shares.append(sum(a != b for a, b in pairs) / len(pairs))
    passed = np.array([sum(case) for case in verdicts])
    assert flip_rate(passed, np.array([len(case) for case in verdicts])) == pytest.approx(np.mean(shares))


def test_the_most_precise_mean_for_a_budget() -> None:
    """The best number of judgings of all that a budget of 300 buys: variance (s_i^2 + s_j^2 / r) / n with n cases."""
    for judge, items, case, call in ((0.3, 0.3, 4, 1), (0.3, 0.1, 2, 1), (0.05, 0.3, 10, 1), (0.3, 0.3, 0, 1)):
        tried = np.arange(1, 40, 0.01)
        variances = (items**2 + judge**2 / tried) * (case + call * tried) / 300
        best = best_repeats(NoiseFloor(10, 2, judge**2, items**2, 0.1), case, call)
        assert best == pytest.approx(tried[np.argmin(variances)], abs=0.02)
    assert best_repeats(NoiseFloor(10, 2, 0.1, 0.0, 0.1), 1) == math.inf
    assert best_repeats(NoiseFloor(10, 2, 0.0, 0.0, 0.0), 1) is None
    assert best_repeats(NoiseFloor(10, reason="no_case_with_two_values"), 1) is None
    assert best_repeats(NoiseFloor(10, 2, 0.0, 0.1, 0.0), 1) == 1
    with pytest.raises(ValueError, match="judging above 0"):
        best_repeats(NoiseFloor(10, 2, 0.1, 0.1, 0.1), 1, 0)


@pytest.mark.parametrize(("judge", "items"), [(0.3, 0.3), (0.1, 0.3), (0.3, 0.1)])
def test_from_which_cost_a_second_judging_pays(judge: float, items: float) -> None:
    """There a budget of 300 gives the same variance either way; a cheaper case is better bought, a dearer one judged twice."""
    floor = NoiseFloor(10, 2, judge**2, items**2, 0.1)
    cost = second_judging_from(floor)

    def variance(repeats: int, case: float) -> float:
        return (items**2 + judge**2 / repeats) * (case + repeats) / 300

    assert variance(1, cost) == pytest.approx(variance(2, cost))
    assert variance(1, cost * 0.9) < variance(2, cost * 0.9)
    assert variance(1, cost * 1.1) > variance(2, cost * 1.1)
    assert best_repeats(floor, cost) == pytest.approx(max(1, 2**0.5))
    assert second_judging_from(NoiseFloor(10, 2, 0.0, 0.1, 0.0)) is None
    assert second_judging_from(NoiseFloor(10, reason="no_case_with_two_values")) is None


NONE = math.nan


def test_weighted_means_by_hand() -> None:
    """A score that does not apply leaves its weight to the others; only scores of weight 0: none."""
    scores = np.array([[1.0, 0.5, 0.0], [1.0, NONE, 0.0], [NONE, NONE, 0.2], [NONE, NONE, NONE]])
    means = weighted_means(scores, np.array([3.0, 2.0, 1.0]))
    assert means[:3] == pytest.approx([4 / 6, 3 / 4, 0.2])
    assert np.isnan(means[3])
    assert np.isnan(weighted_means(scores, np.array([1.0, 1.0, 0.0]))[2])


def test_two_scores_that_disagree_split_the_weights_where_they_cross() -> None:
    """A has (.9, .5) on every question, B (.6, .6): A is first where .9 w + .5 (1 - w) > .6, w > 1/4, in 3 of 4 weight sets."""
    scores = np.tile([[0.9, 0.5], [0.6, 0.6]], (50, 1))
    result = rank_stability(scores, np.tile([4, 2], 50), np.repeat(np.arange(50), 2))
    assert (result.draws, result.questions, result.methods) == (10_000, 50, (2, 4))
    # no question differs from another, so drawing them changes nothing
    assert result.first_by_weights == pytest.approx((0.25, 0.75), abs=0.02)
    assert [ranks[0] for ranks in result.ranks] == pytest.approx(result.first_by_weights, abs=1e-12)
    assert np.array(result.ranks) == pytest.approx(np.array([[0.25, 0.75], [0.75, 0.25]]), abs=0.02)


def test_questions_make_what_weights_leave_sure_unsure() -> None:
    """A is better in 11 of 20 questions and worse in 9, by the same: first under all weights, and by the binomial distribution in
    the share of samples of 20 in which more than half are such questions, plus half of the ties."""
    from scipy.stats import binom

    of_first = np.array([0.7] * 11 + [0.3] * 9)
    scores = np.concatenate([of_first, np.full(20, 0.5)])[:, None].repeat(2, axis=1)
    result = rank_stability(scores, np.repeat([0, 1], 20), np.tile(np.arange(20), 2))
    assert result.first_by_weights == (1.0, 0.0)
    by_chance = binom.sf(10, 20, 0.55) + binom.pmf(10, 20, 0.55) / 2
    assert result.ranks[0][0] == pytest.approx(by_chance, abs=0.02)


def test_equal_methods_share_their_ranks() -> None:
    scores = np.random.default_rng(2).random((30, 3))
    result = rank_stability(np.tile(scores, (3, 1)), np.repeat([5, 6, 7], 30), np.tile(np.arange(30), 3), draws=500)
    assert np.array(result.ranks) == pytest.approx(np.full((3, 3), 1 / 3))
    assert result.first_by_weights == pytest.approx((1 / 3,) * 3)


def test_only_questions_of_all_methods_count() -> None:
    """B is better on the shared question; A alone has nine more, on which it is perfect."""
    scores = np.array([[0.4, 0.4], *[[1.0, 1.0]] * 9, [0.6, 0.6], [NONE, NONE]])
    methods = np.array([0] * 10 + [1, 1])
    questions = np.array([*range(10), 0, 1])
    result = rank_stability(scores, methods, questions, draws=100)
    assert (result.questions, result.first_by_weights) == (1, (0.0, 1.0))
    with pytest.raises(ValueError, match="2 methods with 0 shared questions"):
        rank_stability(scores, methods, np.arange(12))
    with pytest.raises(ValueError, match="1 methods"):
        rank_stability(scores, np.zeros(12, dtype=np.int64), questions)


def test_ranks_and_methods_add_up_and_the_order_of_rows_means_nothing() -> None:
    rng = np.random.default_rng(6)
    scores = rng.random((90, 4))
    scores[rng.random((90, 4)) < 0.3] = NONE
    methods, questions = np.tile([0, 1, 2], 30), np.repeat(np.arange(30), 3)
    result = rank_stability(scores, methods, questions, draws=2000)
    ranks = np.array(result.ranks)
    assert ranks.sum(axis=0) == pytest.approx(np.ones(3))
    assert ranks.sum(axis=1) == pytest.approx(np.ones(3))
    order = np.lexsort((questions, methods))
    assert rank_stability(scores[order], methods[order], questions[order], draws=2000) == result


def test_draws_do_not_depend_on_the_size_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of several blocks is another one than the only block, yet the shares agree within chance."""
    scores = np.random.default_rng(3).random((40, 3))
    methods, questions = np.repeat([0, 1], 20), np.tile(np.arange(20), 2)
    once = rank_stability(scores, methods, questions, draws=4000)
    monkeypatch.setattr("ragpipe.stats.rank_stability._VALUES_AT_ONCE", 40 * 64)
    in_blocks = rank_stability(scores, methods, questions, draws=4000)
    assert in_blocks.draws == 4000
    assert in_blocks.ranks[0][0] == pytest.approx(once.ranks[0][0], abs=0.05)


def test_ten_thousand_weight_sets_over_ten_thousand_cases_grow_with_the_cases_alone() -> None:
    """Ten times the cases take about ten times as long: no step is quadratic in questions or draws."""
    from time import process_time

    seconds = []
    for cases in (1000, 10_000):
        scores = np.random.default_rng(1).random((cases, 8))
        start = process_time()
        rank_stability(scores, np.arange(cases) % 2, np.arange(cases) // 2)
        seconds.append(process_time() - start)
    assert seconds[1] < 30 * seconds[0]
