"""How often weights fitted to ratings are advised, with nothing to gain and with something: the table of docs/extras/weights.md.

    python benchmarks/weights.py [--repetitions 300] [--seed 8]

Ratings follow a weighting of five correlated scores, plus noise of .9 of its spread: the weights in use (nothing to gain), slightly
other ones, or quite other ones. The true gain of a fit is measured on 4,000 new cases. Takes about five minutes; a part of it is a
slow test.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ragpipe.extras.weights.rank_stability import rank_stability
from ragpipe.extras.weights.ratings import fit_weights

Floats = NDArray[np.float64]

IN_USE = np.array([0.35, 0.25, 0.2, 0.1, 0.1])
PEOPLE = {
    "as in use": IN_USE,
    "slightly other": np.array([0.25, 0.25, 0.2, 0.15, 0.15]),
    "quite other": np.array([0.05, 0.05, 0.1, 0.4, 0.4]),
}
RATINGS = (30, 60, 100, 300)


@dataclass(frozen=True)
class Cell:
    """Share of samples in which the fitted weights are advised, and means of the gain out of fold and of the true one."""

    ratings: int
    people: str
    advised: float
    gain: float
    true_gain: float


def rated(rng: np.random.Generator, cases: int, weights: Floats) -> tuple[Floats, Floats]:
    """Scores on 0..1 that correlate with each other, and ratings."""
    common = rng.standard_normal((cases, 1))
    scores = ndtr(0.6 * common + 0.8 * rng.standard_normal((cases, len(weights))))
    overall = scores @ weights
    return scores, overall + 0.9 * overall.std() * rng.standard_normal(cases)


def cells(ratings: int, repetitions: int, seed: int) -> Iterator[Cell]:
    """One cell for each way in which people weigh."""
    for number, (people, weights) in enumerate(PEOPLE.items()):
        rng = np.random.default_rng([seed, ratings, number])
        new_scores, new_ratings = rated(np.random.default_rng(1), 4000, weights)
        now = np.corrcoef(new_scores @ IN_USE, new_ratings)[0, 1]
        advised, gains, true_gains = 0, [], []
        for _ in range(repetitions):
            fit = fit_weights(*rated(rng, ratings, weights), IN_USE)
            advised += fit.is_advised
            gains.append(fit.gain or 0.0)
            true_gains.append(np.corrcoef(new_scores @ np.array(fit.weights), new_ratings)[0, 1] - now)
        yield Cell(ratings, people, advised / repetitions, float(np.mean(gains)), float(np.mean(true_gains)))


def close_methods(repetitions: int, seed: int) -> tuple[float, float]:
    """How often the leader of three methods, a hundredth or two apart on 40 questions, is first: over all weights alone, and with
    the questions drawn anew; means over samples."""
    alone, both = [], []
    for number in range(repetitions):
        rng = np.random.default_rng([seed, number])
        shared, own = rng.standard_normal((40, 1, 8)), rng.standard_normal((40, 3, 8))
        apart = np.array([0.0, 0.01, 0.03])[None, :, None]
        scores = np.clip(0.7 + 0.25 * (np.sqrt(0.5) * shared + np.sqrt(0.5) * own) + apart, 0, 1)
        ranking = rank_stability(scores.reshape(-1, 8), np.tile(np.arange(3), 40), np.repeat(np.arange(40), 3), draws=2000)
        leader = int(np.argmax(ranking.first_by_weights))
        alone.append(ranking.first_by_weights[leader])
        both.append(ranking.ranks[leader][0])
    return float(np.mean(alone)), float(np.mean(both))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=8)
    args = parser.parse_args()
    print("| ratings | people weigh | advised | gain out of fold | true gain |\n|---|---|---|---|---|")
    for ratings in RATINGS:
        for cell in cells(ratings, args.repetitions, args.seed):
            print(f"| {ratings} | {cell.people} | {cell.advised:.3f} | {cell.gain:+.3f} | {cell.true_gain:+.3f} |", flush=True)
    print("the leader of three close methods is first:", close_methods(args.repetitions // 3, args.seed))


if __name__ == "__main__":
    main()
