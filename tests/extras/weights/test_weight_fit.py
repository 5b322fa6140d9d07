"""Fitted weights: scipy's non-negative least squares, cases by hand, and advice only where there is something to gain,
as often as docs/extras/weights.md says: a part of its simulation, with other draws."""

import math

import decisions as benchmark
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from ragpipe.extras.weights.ratings import WeightFit, fit_weights, non_negative_least_squares

NUMBER = st.integers(-9, 9).map(float)


@pytest.mark.slow
@given(st.integers(1, 6).flatmap(lambda k: st.lists(st.lists(NUMBER, min_size=k + 1, max_size=k + 1), min_size=1, max_size=15)))
def test_as_near_to_the_target_as_scipy_comes(rows: list[list[float]]) -> None:
    """With equal, dependent and empty columns the weights are not unique, but the distance is."""
    table = np.array(rows)
    columns, target = table[:, :-1], table[:, -1]
    x = non_negative_least_squares(columns, target)
    assert np.all(x >= 0)
    assert np.linalg.norm(columns @ x - target) == pytest.approx(nnls(columns, target)[1], abs=1e-7)


def rated(n: int, true: list[float], noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores that correlate with each other, and ratings that follow a weighting of them."""
    rng = np.random.default_rng(seed)
    scores = 0.6 * rng.standard_normal((n, 1)) + 0.8 * rng.standard_normal((n, len(true)))
    sums = scores @ np.array(true)
    return scores, sums + noise * sums.std() * rng.standard_normal(n)


USED = np.array([0.35, 0.25, 0.2, 0.1, 0.1])


def test_other_weights_are_advised_where_people_weigh_otherwise() -> None:
    scores, ratings = rated(300, [0.05, 0.05, 0.1, 0.4, 0.4], 0.5, seed=3)
    result = fit_weights(scores, ratings, USED)
    assert result.is_advised
    assert (result.n, result.clusters, result.reason) == (300, 300, None)
    assert sum(result.weights) == pytest.approx(1)
    assert result.weights == pytest.approx([0.05, 0.05, 0.1, 0.4, 0.4], abs=0.08)
    assert result.gain is not None
    assert result.fitted_correlation is not None
    assert result.correlation == pytest.approx(np.corrcoef(scores @ USED, ratings)[0, 1])
    assert result.gain == pytest.approx(result.fitted_correlation - result.correlation)
    assert result.gain > 0.1


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_advised_where_people_weigh_as_the_run_does(seed: int) -> None:
    """The weights of the fit differ, and follow these ratings better, but not those of other questions."""
    scores, ratings = rated(100, USED.tolist(), 0.9, seed)
    result = fit_weights(scores, ratings, USED)
    assert not result.is_advised
    fitted = np.corrcoef(scores @ np.array(result.weights), ratings)[0, 1]
    assert result.correlation is not None
    assert fitted > result.correlation


def test_rows_of_a_question_are_never_in_both_parts() -> None:
    """Ratings that are noise, but equal for the 10 rows of a question as are the scores: by row the fit would seem to know them."""
    rng = np.random.default_rng(8)
    scores, ratings = np.repeat(rng.standard_normal((12, 9)), 10, axis=0), np.repeat(rng.standard_normal(12), 10)
    questions = np.repeat(np.arange(12), 10)
    weights = np.full(9, 1 / 9)
    by_question, by_row = (fit_weights(scores, ratings, weights, groups) for groups in (questions, None))
    assert by_row.fitted_correlation is not None
    assert by_question.fitted_correlation is not None
    assert by_row.fitted_correlation > by_question.fitted_correlation + 0.2
    assert by_question.clusters == 12


def test_what_a_fit_takes() -> None:
    scores, ratings = rated(120, [0.1, 0.1, 0.1, 0.3, 0.4], 0.6, seed=5)
    first = fit_weights(scores, ratings, USED, seed=7)
    second = fit_weights(scores, 20 + 3 * ratings, USED * 4, seed=7)
    assert second.weights == pytest.approx(first.weights)
    assert (second.correlation, second.gain) == (pytest.approx(first.correlation), pytest.approx(first.gain))
    assert first == fit_weights(scores, ratings, USED, seed=7)
    with pytest.raises(ValueError, match="do not fit 3 ratings and 2 weights"):
        fit_weights(np.ones((4, 2)), np.ones(3), np.ones(2))


@pytest.mark.parametrize(("scores", "ratings", "reason"), [
    (np.ones((29, 2)), np.arange(29.0), "few_ratings"),
    (np.ones((40, 2)), np.arange(40.0), "no_spread"),
    (np.arange(80.0).reshape(40, 2), np.ones(40), "no_spread"),
])  # fmt: skip
def test_nothing_to_say(scores: np.ndarray, ratings: np.ndarray, reason: str) -> None:
    result: WeightFit = fit_weights(scores, ratings, np.array([0.5, 0.5]))
    assert (result.reason, result.gain, result.is_advised) == (reason, None, False)


REPETITIONS = 100
ADVISED = {30: 0.22, 60: 0.51, 100: 0.86, 300: 1.0}
"""By the simulation by which the rule was chosen, where people weigh quite otherwise: a true gain of .14."""


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("ratings", ADVISED)
def test_advice_is_given_where_there_is_something_to_gain(ratings: int) -> None:
    """No advice where people weigh as the run does (a rate of .005 would show one in 100 in 4 of 10 runs); else the rate of the
    simulation within 3.5 standard errors of both (it had 150 samples), never far under it."""
    by_people = {cell.people: cell for cell in benchmark.fits(ratings, REPETITIONS, seed=21)}
    assert by_people["as in use"].advised <= 0.01
    expected = ADVISED[ratings]
    error = math.sqrt(max(expected * (1 - expected), 0.01) * (1 / REPETITIONS + 1 / 150))
    assert by_people["quite other"].advised == pytest.approx(expected, abs=3.5 * error)
    assert by_people["quite other"].gain > by_people["as in use"].gain
