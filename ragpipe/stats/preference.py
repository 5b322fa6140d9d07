"""Figures of pairwise preference: the win rate at equal length, the strengths of several sides. Arrays in, numbers out.

A pair's value is 1 where the candidate won, 0 where it lost and .5 for a tie, so that the win rate is a mean on 0..1
(`estimate_mean`), as is the win rate of the longer answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement import questions_of
from ragpipe.stats.difference_verdict import State
from ragpipe.stats.differences import FEWEST_CHANGED
from ragpipe.stats.intervals import FEW, Estimate, Interval, estimate_mean, t_quantile

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

SMALLEST = 0.05
"""How far from one half a win rate must be to matter."""
_RIDGE = 0.1  # of the slope: a length that decides every pair must not lead to an infinite one
_STEPS, _ROUNDS = 60, 2000
_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class PreferenceVerdict:
    """The win rate of a candidate with its interval, and what it says: `better` or `worse` where the interval excludes one half and
    at least 6 questions were not tied, `same` where that of twice the error (90 % at 95 %) lies within .05 of it and most pairs gave the same
    result in both orders, else `inconclusive`."""

    rate: Estimate
    wins: int
    ties: int
    losses: int
    state: State


def decide_preference(
    values: Floats, questions: Whole | None = None, inconsistent: Floats | None = None, *, level: float = 0.95
) -> PreferenceVerdict:
    """The verdict on pairs. A value above one half (of several judges or iterations) is a win, below it a loss.

    Args:
        values: of each pair, 0 to 1.
        questions: the number of each pair's question; None where all are independent.
        inconsistent: 1 of each pair whose two orders gave different results, NaN where nothing was asked. A judge that goes by the order
            ties every pair, and knows nothing of them.
        level: the level of the interval.
    """
    by_order = inconsistent is not None and bool(np.nansum(inconsistent) > np.sum(~np.isnan(inconsistent)) / 2)
    rate = estimate_mean(values, questions, low=0.0, high=1.0, level=level)
    won, lost = values > 0.5, values < 0.5
    codes, _ = questions_of(len(values), questions)
    decided = len(np.unique(codes[won | lost]))
    counts = {"wins": int(np.sum(won)), "losses": int(np.sum(lost)), "ties": int(np.sum(~won & ~lost))}
    narrow = estimate_mean(values, questions, low=0.0, high=1.0, level=2 * level - 1).interval
    state: State = "inconclusive"
    if narrow is not None and narrow.low >= 0.5 - SMALLEST and narrow.high <= 0.5 + SMALLEST:
        state = "inconclusive" if by_order else "same"
    elif rate.interval is not None and decided >= FEWEST_CHANGED:
        state = "better" if rate.interval.low > 0.5 else "worse" if rate.interval.high < 0.5 else "inconclusive"
    return PreferenceVerdict(rate, state=state, **counts)


def rate_at_equal_length(values: Floats, longer: Floats, questions: Whole | None = None, *, level: float = 0.95) -> Estimate:
    """The win rate that is left where both answers are as long, 0 to 1, with its interval, method `logistic_t`.

    The length-controlled win rate of AlpacaEval 2 (Dubois, Galambosi, Liang and Hashimoto 2024, arXiv 2404.04475), without their
    term for the difficulty of a question: P(win) = 1 / (1 + exp(-(a + b * tanh(d / s)))) for a difference of length d with standard
    deviation s; the rate is 1 / (1 + exp(-a)). Fitted by maximum likelihood, a tie as half a win, with a penalty of .05 b^2; its
    variance is the sandwich clustered by question, its bounds are those of a +- t(G-2) standard errors.

    Args:
        values: of each pair, 0 to 1.
        longer: by how many characters the candidate's answer is longer than the base's.
        questions: the number of each pair's question; None where all are independent.
        level: the level of the interval.

    No value where either side has the longer answer in fewer than 6 questions (`one_sided`: equal length would be a guess), and where every
    pair has the same result (`one_class`).
    """
    codes, groups = questions_of(len(values), questions)
    n, sides = len(values), [len(np.unique(codes[chosen])) for chosen in (longer > 0, longer < 0)]
    if min(sides) < FEWEST_CHANGED:
        return Estimate(n, groups, reason="one_sided")
    if np.all(values == values[0]):
        return Estimate(n, groups, reason="one_class")
    spread = float(np.std(longer))
    design = np.stack([np.ones(n), np.tanh(longer / spread)], axis=1)
    penalty, theta = np.diag([0.0, _RIDGE]), np.zeros(2)
    for _ in range(_STEPS):
        fitted = _logistic(design @ theta)
        hessian = design.T @ (design * (fitted * (1 - fitted))[:, None]) + penalty
        step = np.linalg.solve(hessian, design.T @ (values - fitted) - penalty @ theta)
        theta = theta + step / max(1.0, float(np.max(np.abs(step))))
        if np.max(np.abs(step)) < 1e-10:
            break
    scores = np.stack(
        [np.bincount(codes, weights=column, minlength=groups) for column in (design * (values - fitted)[:, None]).T]
    )
    inverse = np.linalg.inv(hessian)
    error = math.sqrt(groups / (groups - 2) * float((inverse @ scores @ scores.T @ inverse)[0, 0]))
    half = t_quantile(level, groups - 2) * error
    low, rate, high = (float(_logistic(np.array(theta[0] + shift))) for shift in (-half, 0.0, half))
    interval = Interval(level, low, high, "logistic_t", too_few=groups < FEW)
    return Estimate(n, groups, rate, interval, error=error)


def _logistic(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -500, 500))))


def bradley_terry(
    first: Whole, second: Whole, values: Floats, questions: Whole, *, sides: int, level: float = 0.95
) -> list[Estimate]:
    """The strength of each side as log odds against side 0, which is 0 itself, with its interval, method `bootstrap`.

    P(i beats j) = 1 / (1 + exp(-(s_i - s_j))) (Bradley and Terry 1952), a tie as half a win of both; half a win is added to each side
    of every pair of sides that was asked about, so that a side which won all has a finite strength. Fitted by Hunter's (2004) MM
    steps; the interval is that of 1,000 resamples of whole questions, and none where all of them give the same strength.

    Args:
        first, second: the sides of each pair, from 0; `values` is 1 where the second won.
        questions: the number of each pair's question.
        sides: how many there are.
        level: the level of the intervals.
    """
    codes, groups = questions_of(len(values), questions)
    won = np.zeros((groups, sides, sides))
    np.add.at(won, (codes, second, first), values)
    np.add.at(won, (codes, first, second), 1 - values)
    asked = np.sum(won, axis=0)
    prior = 0.5 * ((asked + asked.T) > 0)
    weights = np.random.default_rng(0).multinomial(groups, np.full(groups, 1 / groups), size=_RESAMPLES)
    drawn = np.einsum("rg,gij->rij", weights, won)
    found = _strengths(np.concatenate([asked[None], drawn]) + prior)
    tail = 50 * (1 - level)
    bounds = np.percentile(found[1:], [tail, 100 - tail], axis=0)
    estimates = [Estimate(len(values), groups, 0.0)]
    for side in range(1, sides):
        interval = Interval(level, float(bounds[0, side]), float(bounds[1, side]), "bootstrap", too_few=groups < FEW)
        estimates.append(
            Estimate(len(values), groups, float(found[0, side]), interval if interval.low < interval.high else None)
        )
    return estimates


def _strengths(won: Floats) -> Floats:
    """Log odds against side 0 of each table of wins (winner, loser); a row per table."""
    played, total = won + won.transpose(0, 2, 1), np.sum(won, axis=2)
    odds = np.ones(total.shape)
    for _ in range(_ROUNDS):
        before = odds
        odds = total / np.sum(played / (odds[:, :, None] + odds[:, None, :]), axis=2)
        odds = odds / np.exp(np.mean(np.log(odds), axis=1, keepdims=True))
        if np.max(np.abs(odds / before - 1)) < 1e-9:
            break
    logs = np.log(odds)
    return np.asarray(logs - logs[:, :1])
