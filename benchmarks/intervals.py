"""How often the intervals of ragpipe hold the true mean, by the functions that a run uses: the table of docs/statistics.md.

    python benchmarks/intervals.py [--repetitions 4000] [--seed 11] [--cells cells.csv]

A cell is a number of rows and questions, a likeness of the rows of one question, a kind of values and a true mean; in
each repetition all rows are drawn anew and one interval is made. The true mean of a cell is exact: values are cut from
correlated normal draws (a Gaussian copula). Takes about ten minutes; a tenth of it is a slow test.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from ragpipe.stats.intervals import Interval, estimate_mean, estimate_rate

Floats = NDArray[np.float64]

LEVEL = 0.95
MEANS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98)
FEWER = (0.02, 0.5, 0.7, 0.9, 0.98)
KINDS = {"0/1": MEANS, "share of 5": MEANS, "five grades": FEWER, "mostly 1, else 1/2": FEWER, "continuous": FEWER}
ROWS = [
    *((n, 0.0) for n in (5, 10, 20, 40, 100, 400)),
    *((n, likeness) for likeness in (0.2, 0.6, 0.95) for n in (20, 40, 100, 400)),
]
"""Rows, and the correlation of the rows of one question; 0: every row is another question, else 1 to 6 rows of each."""

SETTLED = {
    (5, 0.0): (0.98, 0.99), (10, 0.0): (0.94, 0.98), (20, 0.0): (0.94, 0.97), (40, 0.0): (0.94, 0.96),
    (100, 0.0): (0.93, 0.95), (400, 0.0): (0.94, 0.95), (20, 0.6): (0.98, 0.99), (100, 0.6): (0.94, 0.97),
    (400, 0.6): (0.93, 0.95),
}  # fmt: skip
"""Least and mean coverage of the simulation by which the rule was chosen among others, before it was built in."""


NEARLY_EQUAL = (
    (0.84, (0.85,)), (0.84, (0.8, 0.85, 0.9)), (0.84, (0.0,)), (0.5, (0.55,)), (0.5, (0.0, 1.0)), (0.75, (0.25, 0.5, 1.0)),
    (0.98, (0.97,)), (1.0, (0.99,)), (1.0, (0.5, 0.8, 0.9)),
)  # fmt: skip
"""The value of nearly all rows, and the few others, equally likely."""
EXPECTED_OTHERS = (0.25, 0.5, 1, 2, 3, 3.3, 4, 5, 6, 8, 12)


@dataclass(frozen=True)
class Cell:
    """Coverage of one cell by the rule, by t, by the rule before (design effect never below 1) and, for 0/1 without repeated
    questions, by plain Wilson; `width` is the rule's, as a share of the scale."""

    rows: int
    questions: int
    likeness: float
    kind: str
    mean: float
    rule: float
    width: float
    t: float
    floor: float
    plain: float | None


def cells(row: tuple[int, float], repetitions: int, seed: int) -> Iterator[Cell]:
    """All cells of one row of the table; their draws depend on the seed and the cell alone."""
    n, likeness = row
    sizes = question_sizes(n) if likeness else np.ones(n, dtype=np.int64)
    questions = np.repeat(np.arange(len(sizes)), sizes)
    for k, (kind, means) in enumerate(KINDS.items()):
        for mean in means:
            rng = np.random.default_rng([seed, n, int(likeness * 100), k, int(mean * 100)])
            drawn = draw(rng, repetitions, questions, likeness, kind, mean)
            yield measure(drawn, questions, likeness, kind, mean)


def question_sizes(n: int) -> NDArray[np.int64]:
    """1 to 6 rows a question until there are `n`; the last question takes what is left."""
    rng = np.random.default_rng(n)
    sizes: list[int] = []
    while sum(sizes) < n:
        sizes.append(int(rng.integers(1, 7)))
    sizes[-1] -= sum(sizes) - n
    return np.array(sizes)


def draw(
    rng: np.random.Generator, repetitions: int, questions: NDArray[np.int64], likeness: float, kind: str, mean: float
) -> Floats:
    """Values on 0..1 with the true mean `mean`: a repetition per row, the rows of a case across."""
    shared = rng.standard_normal((repetitions, questions[-1] + 1))[:, questions]
    normal = math.sqrt(likeness) * shared + math.sqrt(1 - likeness) * rng.standard_normal((repetitions, len(questions)))
    if kind == "continuous":
        return np.asarray(stats.beta.ppf(ndtr(normal), 10 * mean, 10 * (1 - mean)))
    values, shares = distribution(kind, mean)
    cuts = ndtri(np.clip(np.cumsum(shares)[:-1], 1e-15, 1 - 1e-15))
    return values[np.searchsorted(cuts, normal)]


def distribution(kind: str, mean: float) -> tuple[Floats, Floats]:
    """The values that occur and their probabilities."""
    if kind == "0/1":
        return np.array([0.0, 1.0]), np.array([1 - mean, mean])
    if kind == "share of 5":
        supported = np.arange(6)
        return supported / 5, stats.betabinom.pmf(supported, 5, 3 * mean, 3 * (1 - mean))
    if kind == "five grades":  # a normal quality of standard deviation 1, cut in five
        limits = np.array([-1.2, -0.4, 0.4, 1.2])
        centre = brentq(lambda c: float(np.sum(ndtr(c - limits))) / 4 - mean, -8, 8)
        return np.arange(5) / 4, np.diff(np.concatenate([[0], ndtr(limits - centre), [1]]))
    if mean >= 0.5:
        return np.array([0.5, 1.0]), np.array([2 * (1 - mean), 2 * mean - 1])
    return np.array([0.0, 0.5]), np.array([1 - 2 * mean, 2 * mean])


def measure(drawn: Floats, questions: NDArray[np.int64], likeness: float, kind: str, mean: float) -> Cell:
    """How often the intervals of these repetitions hold the true mean. No interval is a miss."""
    held = {"rule": 0, "t": 0, "floor": 0, "plain": 0}
    width = 0.0
    plain = kind == "0/1" and not likeness
    for values in drawn:
        rule = estimate_mean(values, questions, low=0.0, high=1.0).interval
        assert rule is not None
        width += rule.high - rule.low
        held["rule"] += holds(rule, mean)
        held["t"] += holds(estimate_mean(values, questions).interval, mean)
        held["floor"] += holds(with_floor(values, questions), mean)
        held["plain"] += plain and holds(estimate_rate(values, questions).interval, mean)
    n = len(drawn)
    return Cell(
        drawn.shape[1], int(questions[-1]) + 1, likeness, kind, mean, held["rule"] / n, width / n, held["t"] / n,
        held["floor"] / n, held["plain"] / n if plain else None,
    )  # fmt: skip


def holds(interval: Interval | None, mean: float) -> bool:
    return interval is not None and interval.low - 1e-9 <= mean <= interval.high + 1e-9


def with_floor(values: Floats, questions: NDArray[np.int64]) -> Interval:
    """The rule that rates had before: the measured design effect, never below 1."""
    n, mean = len(values), float(np.mean(values))
    sizes, sums = np.bincount(questions), np.bincount(questions, weights=values - mean)
    effect = float(sizes @ sizes) / n
    if np.ptp(values) > 1e-12:
        variance = len(sizes) / (len(sizes) - 1) * float(sums @ sums) / n**2
        effect = max(1.0, variance * n / (mean * (1 - mean)))
    square = _t(len(sizes) - 1) ** 2 * effect / n
    half = math.sqrt(max(0.0, square * mean * (1 - mean) + square**2 / 4))
    low, high = ((mean + square / 2 + sign * half) / (1 + square) for sign in (-1, 1))
    return Interval(LEVEL, low, high, "floor", too_few=False)


_QUANTILES: dict[int, float] = {}


def _t(freedom: int) -> float:
    return _QUANTILES.setdefault(freedom, float(stats.t.ppf(0.5 + LEVEL / 2, freedom)))


def nearly_equal(n: int, draws: int, seed: int) -> tuple[float, float, float, float]:
    """Of n rows that are equal but for 0 to 12 expected others: how often all are equal and the interval misses, at most; coverage,
    least and mean; and by how much the width changes, at most, when one row more is another."""
    missed, covered, steps = [], [], []
    for value, others in NEARLY_EQUAL:
        widths = [
            high - low
            for low, high in (_bounds(value, others, n, (k, *[0] * (len(others) - 1))) for k in range(min(13, n // 2 + 1)))
        ]
        steps += [max(a / b, b / a) for a, b in pairwise(widths)]
        for expected in EXPECTED_OTHERS:
            rng = np.random.default_rng([seed, n, int(100 * expected)])
            share = min(0.5, expected / n)
            counts, times = np.unique(
                rng.multinomial(n, [1 - share, *[share / len(others)] * len(others)], draws), axis=0, return_counts=True
            )
            truth = (1 - share) * value + share * float(np.mean(others))
            bounds = [_bounds(value, others, n, tuple(row[1:])) for row in counts.tolist()]
            misses = np.array([not low - 1e-9 <= truth <= high + 1e-9 for low, high in bounds])
            covered.append(1 - float(times[misses].sum()) / draws)
            missed.append(float(times[misses & (counts[:, 0] == n)].sum()) / draws)
    return max(missed), min(covered), float(np.mean(covered)), max(steps)


@lru_cache(None)
def _bounds(value: float, others: tuple[float, ...], n: int, counts: tuple[int, ...]) -> tuple[float, float]:
    rows = np.repeat([value, *others], [n - sum(counts), *counts])
    interval = estimate_mean(rows, low=0.0, high=1.0).interval
    assert interval is not None
    return interval.low, interval.high


def lines(measured: list[Cell]) -> Iterator[str]:
    """The table as Markdown: least and mean coverage over the cells of each row."""
    yield "| rows (questions), likeness | the rule | t, none = miss | design effect >= 1 | width of the rule |"
    yield "|---|---|---|---|---|"
    for n, likeness in ROWS:
        row = [cell for cell in measured if (cell.rows, cell.likeness) == (n, likeness)]
        both = (
            f"{min(figures):.2f} / {np.mean(figures):.2f}"
            for figures in ([c.rule for c in row], [c.t for c in row], [c.floor for c in row])
        )
        name = f"{n}" if not likeness else f"{n} ({row[0].questions}), {likeness:g}"
        yield f"| {name} | {' | '.join(both)} | {np.mean([c.width for c in row]):.3f} |"
    yield ""
    yield "| 0/1, one row per question | plain Wilson |"
    yield "|---|---|"
    for n, likeness in ROWS:
        plain = [c.plain for c in measured if (c.rows, c.likeness) == (n, likeness) and c.plain is not None]
        if plain:
            yield f"| {n} | {min(plain):.2f} / {np.mean(plain):.2f} |"
    yield ""


def lines_of_equal(draws: int, seed: int) -> Iterator[str]:
    """The table of rows that are nearly all equal."""
    yield "| rows | all equal, and missed | coverage | widest step |"
    yield "|---|---|---|---|"
    for n in (10, 20, 60, 100, 300, 1000):
        missed, least, mean, step = nearly_equal(n, draws, seed)
        yield f"| {n} | {missed:.3f} | {least:.2f} / {mean:.2f} | {step:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--cells", help="a CSV file for the figures of every cell")
    args = parser.parse_args()
    print("\n".join(lines_of_equal(50 * args.repetitions, args.seed)))
    measured = [cell for row in ROWS for cell in cells(row, args.repetitions, args.seed)]
    print("\n".join(lines(measured)))
    for row, (least, _) in SETTLED.items():
        low = min(cell.rule for cell in measured if (cell.rows, cell.likeness) == row)
        if low < least - 0.02:
            print(f"{row}: a cell covers {low:.3f}, more than .02 under {least}")
    if args.cells:
        with open(args.cells, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[field.name for field in fields(Cell)], *map(astuple, measured)])


if __name__ == "__main__":
    main()
