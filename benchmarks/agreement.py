"""How often the intervals of agreement hold the true value, by the functions of `ragpipe/stats`: the tables of docs/statistics.md.

    python benchmarks/agreement.py [--repetitions 400] [--seed 5]

A cell is a statistic, a number of rows with one row per question or three, a share of positive labels and a true value; in
each repetition all rows are drawn anew and one interval is made. True values are exact: they follow from the cells of
a normal distribution with two dimensions. Takes about twenty minutes; a part of it is a slow test.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from ragpipe.stats.agreement import (
    cohen_kappa,
    difference_of_versions,
    estimate_correlation,
    estimate_kappa,
    kendall,
    pearson,
    spearman,
)
from ragpipe.stats.detection import estimate_auroc, estimate_balanced_accuracy
from ragpipe.stats.intervals import Interval
from ragpipe.stats.several_raters import estimate_ac, estimate_alpha

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

SIZES = ((30, 1), (60, 1), (100, 1), (300, 1), (30, 3), (99, 3), (300, 3))
"""Rows, and rows per question; three rows of a question have a likeness of .5."""
FEWER_SIZES = ((30, 1), (100, 1), (99, 3))
"""Those of the second table, whose statistics take longer."""
POSITIVE = (0.5, 0.8, 0.95)
KAPPAS = (0.4, 0.7, 0.8, 0.9, 0.95)
GRADES = {0.5: (0.1, 0.25, 0.45, 0.7), 0.95: (0.02, 0.05, 0.1, 0.3)}
"""Shares of labels up to each limit of five grades: spread, and mostly the highest."""
SEPARATIONS = (0.0, 1.0, 2.0, 3.0)
"""How far the scores of both classes lie apart, in standard deviations."""
CORRELATIONS = {"Pearson": pearson, "Spearman": spearman, "Kendall": kendall}
ALIKE = (0.4, 0.8, 0.95)
"""Correlations of the normal draws behind both raters."""
STATISTICS = (
    "kappa", "quadratic kappa", "AUROC", "balanced accuracy", "difference of kappas",
    *CORRELATIONS, "AC1", "alpha, ratings missing",
)  # fmt: skip
FIRST_TABLE = 5


@dataclass(frozen=True)
class Cell:
    """Share of defined intervals that hold the true value, their mean width, and the share of samples without one."""

    statistic: str
    rows: int
    per_question: int
    positive: float
    truth: float
    covered: float
    width: float
    undefined: float


@lru_cache
def joint_shares(limits: tuple[float, ...], correlation: float) -> Floats:
    """Probability of each pair of classes: both are cut at the same shares, from normal draws that correlate."""
    cuts = ndtri(np.array(limits))
    normal = stats.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])
    up_to = np.zeros((len(cuts) + 2, len(cuts) + 2))
    up_to[-1, 1:-1] = up_to[1:-1, -1] = limits
    up_to[-1, -1] = 1
    up_to[1:-1, 1:-1] = [[normal.cdf([a, b]) for b in cuts] for a in cuts]
    return np.diff(np.diff(up_to, axis=0), axis=1)


def true_kappa(limits: tuple[float, ...], correlation: float, *, is_quadratic: bool = False) -> float:
    """Kappa of draws without end."""
    shares = joint_shares(limits, correlation)
    grades = np.arange(len(shares))
    apart = np.subtract.outer(grades, grades)
    distances = apart**2 if is_quadratic else (apart != 0) * 1
    by_chance = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    return float(1 - np.sum(shares * distances) / np.sum(by_chance * distances))


@lru_cache
def correlation_for(limits: tuple[float, ...], kappa: float, is_quadratic: bool) -> float:
    """The correlation of the normal draws that gives a true kappa."""
    return float(brentq(lambda c: true_kappa(limits, c, is_quadratic=is_quadratic) - kappa, 0, 0.9999, xtol=1e-5))


def normal_rows(rng: np.random.Generator, questions: Whole, likeness: float) -> Floats:
    """Standard normal draws; those of one question correlate by the likeness."""
    shared = rng.standard_normal(int(questions[-1]) + 1)[questions]
    return math.sqrt(likeness) * shared + math.sqrt(1 - likeness) * rng.standard_normal(len(questions))


def grades_of(draws: Floats, limits: tuple[float, ...]) -> Floats:
    return np.searchsorted(ndtri(np.array(limits)), draws).astype(np.float64)


Sample = Callable[[np.random.Generator], Interval | None]


def kappa_samples(questions: Whole, likeness: float, *, is_quadratic: bool) -> Iterator[tuple[float, float, Sample]]:
    """Share of positive labels, true value, and one interval of new rows."""
    by_share = GRADES if is_quadratic else {share: (1 - share,) for share in POSITIVE}
    for share, limits in by_share.items():
        for kappa in KAPPAS:
            correlation = correlation_for(limits, kappa, is_quadratic)

            def sample(rng: np.random.Generator, limits=limits, correlation=correlation) -> Interval | None:
                people = normal_rows(rng, questions, likeness)
                judge = correlation * people + math.sqrt(1 - correlation**2) * normal_rows(rng, questions, likeness)
                labels, verdicts = grades_of(people, limits), grades_of(judge, limits)
                if is_quadratic:
                    return estimate_kappa(labels, verdicts, questions, scale=(0, 4)).interval
                return estimate_kappa(labels, verdicts, questions).interval

            yield share, kappa, sample


def difference_samples(questions: Whole, likeness: float) -> Iterator[tuple[float, float, Sample]]:
    """Two versions of a judge whose errors correlate, with true kappas of .6 and .7, and of .8 both."""
    for share in POSITIVE[:2]:
        limits = (1 - share,)
        for base, candidate in ((0.6, 0.7), (0.8, 0.8)):
            correlations = [correlation_for(limits, kappa, False) for kappa in (base, candidate)]

            def sample(rng: np.random.Generator, limits=limits, correlations=correlations) -> Interval | None:
                people, common = normal_rows(rng, questions, likeness), normal_rows(rng, questions, likeness)
                versions = []
                for correlation in correlations:
                    noise = math.sqrt(0.7) * common + math.sqrt(0.3) * normal_rows(rng, questions, likeness)
                    judge = correlation * people + math.sqrt(1 - correlation**2) * noise
                    versions.append(grades_of(judge, limits))
                return difference_of_versions(cohen_kappa, grades_of(people, limits), *versions, questions).interval

            yield share, candidate - base, sample


def detection_samples(questions: Whole, likeness: float, *, is_area: bool) -> Iterator[tuple[float, float, Sample]]:
    """Scores of both classes are normal, `apart` standard deviations from each other; verdicts are cut half-way."""
    for share in POSITIVE:
        for apart in SEPARATIONS:

            def sample(rng: np.random.Generator, share=share, apart=apart) -> Interval | None:
                labels = np.where(normal_rows(rng, questions, likeness) < ndtri(share), 1.0, 0.0)
                scores = normal_rows(rng, questions, likeness) + apart * labels
                if is_area:
                    return estimate_auroc(labels, scores, questions).interval
                return estimate_balanced_accuracy(labels, np.where(scores > apart / 2, 1.0, 0.0), questions).interval

            yield share, float(ndtr(apart / math.sqrt(2) if is_area else apart / 2)), sample


def correlation_samples(name: str, questions: Whole, likeness: float) -> Iterator[tuple[float, float, Sample]]:
    """Continuous scores, and five grades of both raters."""
    for limits in (None, GRADES[0.5]):
        for alike in ALIKE:

            def sample(rng: np.random.Generator, limits=limits, alike=alike) -> Interval | None:
                people = normal_rows(rng, questions, likeness)
                judge = alike * people + math.sqrt(1 - alike**2) * normal_rows(rng, questions, likeness)
                if limits is not None:
                    people, judge = grades_of(people, limits), grades_of(judge, limits)
                return estimate_correlation(CORRELATIONS[name], people, judge, questions).interval

            yield math.nan, true_correlation(name, limits, alike), sample


def true_correlation(name: str, limits: tuple[float, ...] | None, alike: float) -> float:
    """A correlation of draws without end: known for normal draws, and a sum over the pairs of grades."""
    if limits is None:
        return {"Pearson": alike, "Spearman": 6 / math.pi * math.asin(alike / 2), "Kendall": 2 / math.pi * math.asin(alike)}[
            name
        ]
    shares = joint_shares(limits, alike)
    of_grade = shares.sum(axis=1)
    if name == "Kendall":
        above = np.array([[shares[i + 1 :, j + 1 :].sum() for j in range(len(shares))] for i in range(len(shares))])
        across = np.array([[shares[i + 1 :, :j].sum() for j in range(len(shares))] for i in range(len(shares))])
        return float(2 * np.sum(shares * (above - across)) / (1 - np.sum(of_grade**2)))
    places = np.arange(len(shares)) if name == "Pearson" else np.cumsum(of_grade) - of_grade / 2
    from_mean = places - of_grade @ places
    return float(from_mean @ shares @ from_mean / (of_grade @ from_mean**2))


def several_samples(statistic: str, questions: Whole, likeness: float) -> Iterator[tuple[float, float, Sample]]:
    """AC1 of two raters, and alpha of three of whom each skipped a fifth of the answers."""
    for share in POSITIVE:
        limits = (1 - share,)
        for kappa in KAPPAS:
            correlation = correlation_for(limits, kappa, False)

            def sample(rng: np.random.Generator, limits=limits, correlation=correlation) -> Interval | None:
                common = normal_rows(rng, questions, likeness)
                raters = [
                    math.sqrt(correlation) * common + math.sqrt(1 - correlation) * normal_rows(rng, questions, likeness)
                    for _ in range(2 if statistic == "AC1" else 3)
                ]
                ratings = np.stack([grades_of(rater, limits) for rater in raters], axis=1)
                if statistic == "AC1":
                    return estimate_ac(ratings, np.arange(2.0), questions).interval
                ratings[rng.random(ratings.shape) < 0.2] = math.nan
                return estimate_alpha(ratings, questions).interval

            by_chance = 2 * share * (1 - share)
            disagree = by_chance * (1 - kappa)
            yield share, 1 - disagree / (1 - by_chance) if statistic == "AC1" else kappa, sample


def samples(statistic: str, questions: Whole, likeness: float) -> Iterator[tuple[float, float, Sample]]:
    """All cells of one statistic: share of positive labels, true value, and one interval of new rows."""
    if statistic in CORRELATIONS:
        return correlation_samples(statistic, questions, likeness)
    if statistic in STATISTICS[-2:]:
        return several_samples(statistic, questions, likeness)
    if statistic.endswith("of kappas"):
        return difference_samples(questions, likeness)
    if statistic.endswith("kappa"):
        return kappa_samples(questions, likeness, is_quadratic=statistic.startswith("quadratic"))
    return detection_samples(questions, likeness, is_area=statistic == "AUROC")


def cells(statistic: str, size: tuple[int, int], repetitions: int, seed: int) -> Iterator[Cell]:
    """All cells of one row of the table; their draws depend on the seed and the cell alone."""
    rows, per_question = size
    questions = np.repeat(np.arange(rows // per_question), per_question)
    likeness = 0.5 if per_question > 1 else 0.0
    for number, (positive, truth, sample) in enumerate(samples(statistic, questions, likeness)):
        rng = np.random.default_rng([seed, STATISTICS.index(statistic), rows, per_question, number])
        intervals = [sample(rng) for _ in range(repetitions)]
        defined = [interval for interval in intervals if interval is not None]
        if len(defined) < repetitions / 10:
            continue
        covered = [interval.low - 1e-9 <= truth <= interval.high + 1e-9 for interval in defined]
        width = np.mean([interval.high - interval.low for interval in defined])
        yield Cell(
            statistic, rows, per_question, positive, truth, float(np.mean(covered)), float(width),
            1 - len(defined) / repetitions,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    print_table(STATISTICS[:FIRST_TABLE], SIZES, args.repetitions, args.seed)
    print_table(STATISTICS[FIRST_TABLE:], FEWER_SIZES, min(args.repetitions, 200), args.seed)


def print_table(names: tuple[str, ...], sizes: tuple[tuple[int, int], ...], repetitions: int, seed: int) -> None:
    """Least and mean coverage over the cells of each statistic and size."""
    print(f"\n| rows (per question) | {' | '.join(names)} |")
    print(f"|---|{'---|' * len(names)}")
    for size in sizes:
        figures = []
        for name in names:
            # values that all differ take Kendall's jackknife a tenth of a second and more per sample
            covered = [c.covered for c in cells(name, size, min(repetitions, 60) if name == "Kendall" else repetitions, seed)]
            figures.append(f"{min(covered):.2f} / {np.mean(covered):.2f}")
        print(f"| {size[0]}{f' ({size[1]})' if size[1] > 1 else ''} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
