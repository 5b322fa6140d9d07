"""The ranks of methods under all weights: by hand, against the binomial distribution, and whatever the order of rows."""

import math

import decisions as benchmark
import numpy as np
import pytest

from ragpipe.extras.weights.rank_stability import rank_stability

pytestmark = pytest.mark.slow
NONE = math.nan


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

    scores = np.concatenate([np.array([0.7] * 11 + [0.3] * 9), np.full(20, 0.5)])[:, None].repeat(2, axis=1)
    result = rank_stability(scores, np.repeat([0, 1], 20), np.tile(np.arange(20), 2))
    assert result.first_by_weights == (1.0, 0.0)
    by_chance = binom.sf(10, 20, 0.55) + binom.pmf(10, 20, 0.55) / 2
    assert result.ranks[0][0] == pytest.approx(by_chance, abs=0.02)


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


def test_questions_make_the_leader_less_sure_than_weights_alone() -> None:
    alone, both = benchmark.close_methods(20, seed=21)
    assert alone > both + 0.05
