"""How often the interval of a corrected mean holds the true mean, and how wide it is: the tables of docs/statistics.md.

    python benchmarks/corrected_means.py [--repetitions 400] [--seed 3] [--cells cells.csv]

A cell is a kind of labels, a judge, a true mean, a number of labels among 1,000 cases and one row per question or four of a likeness
of .5; in each repetition all cases are drawn anew, and so are those that are labelled. Takes about ten minutes; a part of it is a
slow test.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr, ndtri

from ragpipe.stats.corrected_mean import CorrectedMean, corrected_mean
from ragpipe.stats.intervals import Interval, estimate_mean

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

CASES = 1000
LIKENESS = 0.5
"""Of four rows of a question: of their labels, and of the judge's errors."""
JUDGES = {
    "guesses": (0.5, 0.5), "lenient": (0.95, 0.70), "one-sided": (1.0, 0.8), "good": (0.92, 0.90),
    "nearly perfect": (0.99, 0.985), "perfect": (1.0, 1.0),
}  # fmt: skip
"""Sensitivity and specificity of judges of 0/1."""
SHARES = {"guesses": 1.0, "lenient": 0.5, "good": 0.2, "nearly perfect": 0.03}
"""In how many cases judges of shares of five claims guess; their guesses are too high."""
TRUTHS = (0.75, 0.95)
LABELS = (30, 60, 100, 300)
SIZES = [(labels, rows) for rows in (1, 4) for labels in LABELS]
SETTLED = {30: (0.92, 0.98), 60: (0.94, 0.97), 100: (0.93, 0.97), 300: (0.93, 0.95)}
"""Least and mean coverage of the simulation by which the estimator was chosen, before it was built in."""


@dataclass(frozen=True)
class Cell:
    """Coverage and mean width of the corrected interval, of that of the labels alone, and coverage of the judge's own."""

    kind: str
    judge: str
    truth: float
    labels: int
    per_question: int
    sampling: str
    covered: float
    width: float
    alone_covered: float
    alone_width: float
    judge_covered: float


@dataclass(frozen=True)
class Population:
    """Labels that people would give and the judge's scores of all cases, and the question of each."""

    labels: Floats
    scores: Floats
    questions: Whole


def populate(rng: np.random.Generator, kind: str, judge: str, truth: float, rows: int) -> Population:
    """Draw all cases anew; their labels have the true mean `truth`."""
    questions = np.repeat(np.arange(CASES // rows), rows)
    quality, noise = normal_rows(rng, questions, rows), normal_rows(rng, questions, rows)
    if kind == "0/1":
        labels = np.where(quality < ndtri(truth), 1.0, 0.0)
        sensitivity, specificity = JUDGES[judge]
        scores = np.where(labels == 1, ndtr(noise) < sensitivity, ndtr(noise) >= specificity).astype(np.float64)
    elif kind == "share of 5":
        labels = shares_of_five(quality, truth)
        guesses = shares_of_five(rng.standard_normal(CASES), min(0.97, truth + 0.1))
        scores = np.where(ndtr(noise) < SHARES[judge], guesses, labels)
    else:  # 0/1 by people, a continuous score with an AUROC of about .9 by the judge
        labels = np.where(quality < ndtri(truth), 1.0, 0.0)
        scores = 1 / (1 + np.exp(-1.8 * ((2 * labels - 1) * 0.9 + noise)))
    return Population(labels, scores, questions)


def normal_rows(rng: np.random.Generator, questions: Whole, rows: int) -> Floats:
    """Standard normal draws; those of one question correlate."""
    if rows == 1:
        return rng.standard_normal(len(questions))
    shared = rng.standard_normal(int(questions[-1]) + 1)[questions]
    return math.sqrt(LIKENESS) * shared + math.sqrt(1 - LIKENESS) * rng.standard_normal(len(questions))


def shares_of_five(draws: Floats, mean: float) -> Floats:
    """Supported claims of five, beta-binomial with this mean, from standard normal draws."""
    up_to = np.cumsum(stats.betabinom.pmf(np.arange(6), 5, 3 * mean, 3 * (1 - mean)))[:-1]
    return np.searchsorted(ndtri(np.clip(up_to, 1e-15, 1 - 1e-15)), draws) / 5


def labelled(rng: np.random.Generator, people: Population, labels: int, sampling: str) -> tuple[Floats, Whole | None]:
    """The labels of those that are drawn, and the strata: at random, or three of five nearest to one half."""
    drawn, strata = np.full(CASES, math.nan), None
    if sampling == "random":
        places = rng.choice(CASES, labels, replace=False)
    else:
        distance = np.abs(people.scores - 0.5)
        strata = np.searchsorted(np.quantile(distance, [1 / 3, 2 / 3]), distance).astype(np.int64)
        sizes = [round(labels * share) for share in (0.6, 0.2, 0.2)]
        places = np.concatenate(
            [rng.choice(np.flatnonzero(strata == s), max(5, size), replace=False) for s, size in enumerate(sizes)]
        )
    drawn[places] = people.labels[places]
    return drawn, strata


def cells(size: tuple[int, int], repetitions: int, seed: int, *, sampling: str = "random") -> Iterator[Cell]:
    """All cells with so many labels and rows per question; their draws depend on the seed and the cell alone."""
    labels, rows = size
    kinds = [*(("0/1", judge) for judge in JUDGES), *(("share of 5", judge) for judge in SHARES)]
    if sampling != "random":
        kinds = [("score", "AUROC .9")]
    for number, (kind, judge) in enumerate(kinds):
        for truth in TRUTHS:
            rng = np.random.default_rng([seed, labels, rows, number, int(truth * 100), len(sampling)])
            results = []
            for _ in range(repetitions):
                people = populate(rng, kind, judge, truth, rows)
                drawn, strata = labelled(rng, people, labels, sampling)
                result = corrected_mean(people.scores, drawn, people.questions, strata=strata, low=0, high=1)
                results.append((result, labels_alone(drawn, people.questions, strata)))
            yield measured(kind, judge, truth, size, sampling, results)


def labels_alone(drawn: Floats, questions: Whole, strata: Whole | None) -> Interval | None:
    """The interval of the mean of the labels, as if there were no judge; with strata that of a judge who always says the same."""
    if strata is not None and len(np.unique(strata)) > 1:
        return corrected_mean(np.zeros(len(drawn)), drawn, questions, strata=strata, low=0, high=1).interval
    known = ~np.isnan(drawn)
    return estimate_mean(drawn[known], questions[known], low=0, high=1).interval


def measured(
    kind: str,
    judge: str,
    truth: float,
    size: tuple[int, int],
    sampling: str,
    results: list[tuple[CorrectedMean, Interval | None]],
) -> Cell:
    """The shares of intervals that hold the truth, and their mean widths; a refusal counts as no interval and not as a miss."""
    defined = [(result, alone) for result, alone in results if result.interval is not None]
    corrected, own = [result.interval for result, _ in defined], [result.judge.interval for result, _ in defined]
    alone = [interval for _, interval in defined]
    return Cell(
        kind, judge, truth, *size, sampling, holding(corrected, truth), width(corrected), holding(alone, truth), width(alone),
        holding(own, truth),
    )  # fmt: skip


def holding(intervals: Iterable[Interval | None], truth: float) -> float:
    return float(np.mean([i is not None and i.low - 1e-9 <= truth <= i.high + 1e-9 for i in intervals]))


def width(intervals: Iterable[Interval | None]) -> float:
    return float(np.mean([i.high - i.low for i in intervals if i is not None]))


def of_only_these(labels: int, repetitions: int, seed: int) -> list[float]:
    """Coverage of the mean of just these 300 cases, for each judge of 0/1 at a mean of .9."""
    shares = []
    for number, judge in enumerate(JUDGES):
        rng = np.random.default_rng([seed, 1, labels, number])
        held = 0
        for _ in range(repetitions):
            people = populate(rng, "0/1", judge, 0.9, 1)
            scores, truth = people.scores[:300], people.labels[:300]
            is_labelled = rng.permutation(300) < labels
            result = corrected_mean(scores, np.where(is_labelled, truth, math.nan), low=0, high=1, only_these=True)
            held += holding([result.interval], float(np.mean(truth)))
        shares.append(held / repetitions)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--cells", help="write every cell to this CSV file")
    args = parser.parse_args()
    print("| labels (rows per question) | corrected | labels alone | the judge alone |\n|---|---|---|---|")
    every: list[Cell] = []
    for size in SIZES:
        row = list(cells(size, args.repetitions, args.seed))
        every += row
        columns: tuple[Callable[[Cell], float], ...] = (
            lambda c: c.covered, lambda c: c.alone_covered, lambda c: c.judge_covered,
        )  # fmt: skip
        figures = [[column(cell) for cell in row] for column in columns]
        shown = " | ".join(f"{min(values):.2f} / {np.mean(values):.2f}" for values in figures)
        print(f"| {size[0]}{f' ({size[1]})' if size[1] > 1 else ''} | {shown} |", flush=True)
    print_widths([cell for cell in every if cell.kind == "0/1" and cell.per_question == 1])
    print("\n| labels, judge of AUROC .9 | random: coverage, width | near the threshold |\n|---|---|---|")
    for labels in (60, 100, 300):
        near = list(cells((labels, 1), args.repetitions, args.seed, sampling="near"))
        every += near
        at_random = [scored_at_random(labels, truth, args.repetitions, args.seed) for truth in TRUTHS]
        for cell, (covered, wide) in zip(near, at_random, strict=True):
            print(f"| {labels}, truth {cell.truth} | {covered:.2f}, {wide:.3f} | {cell.covered:.2f}, {cell.width:.3f} |")
    for labels in (30, 60, 150):
        shares = of_only_these(labels, args.repetitions, args.seed)
        print(f"only these 300 cases, {labels} labels: {min(shares):.2f} / {np.mean(shares):.2f}")
    if args.cells:
        with open(args.cells, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[field.name for field in fields(Cell)], *map(astuple, every)])


def scored_at_random(labels: int, truth: float, repetitions: int, seed: int) -> tuple[float, float]:
    """Coverage and width with a continuous score and random labels."""
    rng = np.random.default_rng([seed, 4, labels, int(truth * 100)])
    intervals = []
    for _ in range(repetitions):
        people = populate(rng, "score", "", truth, 1)
        drawn, _ = labelled(rng, people, labels, "random")
        intervals.append(corrected_mean(people.scores, drawn, low=0, high=1).interval)
    return holding(intervals, truth), width(intervals)


def print_widths(every: list[Cell]) -> None:
    """Mean widths for 0/1, one row per question."""
    for truth in TRUTHS:
        print(f"\n| judge, truth {truth} | {' | '.join(f'{labels} labels' for labels in LABELS)} |\n|---|---|---|---|---|")
        rows = {judge: [c.width for c in every if (c.judge, c.truth) == (judge, truth)] for judge in JUDGES}
        alone = [c.alone_width for c in every if (c.judge, c.truth) == ("good", truth)]
        for name, widths in {"labels alone": alone, **rows}.items():
            print(f"| {name} | {' | '.join(f'{value:.3f}' for value in widths)} |")


if __name__ == "__main__":
    main()
