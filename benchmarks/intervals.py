"""How often the intervals of ragpipe hold the true value, by the functions that a run uses: the tables of docs/statistics.md.

    python benchmarks/intervals.py [--parts means agreement corrected] [--share 1.0] [--seed 11] [--small]

In each repetition of a cell all rows are drawn anew and one interval is made. True values are exact: values are cut from correlated
normal draws (a Gaussian copula).

- means: of a mean or a rate. A cell is a number of rows and questions, a likeness of the rows of one question, a kind of values and
  a true mean.
- agreement: of kappa, AUROC, correlations and others. A cell is a statistic, a number of rows with one row per question or three, a
  share of positive labels and a true value.
- corrected: of a corrected mean, and how wide it is. A cell is a kind of labels, a judge, a true mean, a number of labels among
  1,000 cases and one row per question or four of a likeness of .5.

Ten to twenty minutes each; `--share 0.1` draws a tenth. A part of each is a slow test.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import measured
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
from ragpipe.stats.corrected_mean import CorrectedMean, corrected_mean
from ragpipe.stats.detection import estimate_auroc, estimate_balanced_accuracy
from ragpipe.stats.intervals import Interval, estimate_mean
from ragpipe.stats.several_raters import estimate_ac, estimate_alpha

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def normal_rows(rng: np.random.Generator, questions: Whole, likeness: float) -> Floats:
    """Standard normal draws; those of one question correlate by the likeness."""
    if not likeness:
        return rng.standard_normal(len(questions))
    shared = rng.standard_normal(int(questions[-1]) + 1)[questions]
    return math.sqrt(likeness) * shared + math.sqrt(1 - likeness) * rng.standard_normal(len(questions))


def holds(interval: Interval | None, truth: float) -> bool:
    """Whether there is an interval and it holds the true value."""
    return interval is not None and interval.low - 1e-9 <= truth <= interval.high + 1e-9


# --- means and rates

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
    """Coverage of one cell by the rule and by t; `width` is the rule's, as a share of the scale."""

    rows: int
    questions: int
    likeness: float
    kind: str
    mean: float
    rule: float
    width: float
    t: float


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


def question_sizes(n: int) -> Whole:
    """1 to 6 rows a question until there are `n`; the last question takes what is left."""
    rng = np.random.default_rng(n)
    sizes: list[int] = []
    while sum(sizes) < n:
        sizes.append(int(rng.integers(1, 7)))
    sizes[-1] -= sum(sizes) - n
    return np.array(sizes)


def draw(rng: np.random.Generator, repetitions: int, questions: Whole, likeness: float, kind: str, mean: float) -> Floats:
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


def measure(drawn: Floats, questions: Whole, likeness: float, kind: str, mean: float) -> Cell:
    """How often the intervals of these repetitions hold the true mean. No interval is a miss."""
    by_rule, by_t, width = 0, 0, 0.0
    for values in drawn:
        rule = estimate_mean(values, questions, low=0.0, high=1.0).interval
        assert rule is not None
        width += rule.high - rule.low
        by_rule += holds(rule, mean)
        by_t += holds(estimate_mean(values, questions).interval, mean)
    n = len(drawn)
    return Cell(drawn.shape[1], int(questions[-1]) + 1, likeness, kind, mean, by_rule / n, width / n, by_t / n)


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


def of_means(repetitions: int, seed: int) -> Iterator[str]:
    """Least and mean coverage over the cells of each row, and of rows that are nearly all equal."""
    yield "| rows (questions), likeness | the rule | t, none = miss | width of the rule |\n|---|---|---|---|"
    for n, likeness in ROWS:
        row = list(cells((n, likeness), repetitions, seed))
        both = (f"{min(shares):.2f} / {np.mean(shares):.2f}" for shares in ([c.rule for c in row], [c.t for c in row]))
        name = f"{n}" if not likeness else f"{n} ({row[0].questions}), {likeness:g}"
        yield f"| {name} | {' | '.join(both)} | {np.mean([c.width for c in row]):.3f} |"
    yield "\n| nearly equal rows | all equal, and missed | coverage | widest step |\n|---|---|---|---|"
    for n in (10, 20, 60, 100, 300, 1000):
        missed, least, mean, step = nearly_equal(n, 50 * repetitions, seed)
        yield f"| {n} | {missed:.3f} | {least:.2f} / {mean:.2f} | {step:.2f} |"


# --- agreement

AGREEMENT_SIZES = ((30, 1), (60, 1), (100, 1), (300, 1), (30, 3), (99, 3), (300, 3))
"""Rows, and rows per question; three rows of a question have a likeness of .5."""
FEWER_AGREEMENT = ((30, 1), (100, 1), (99, 3))
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
class AgreementCell:
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


def agreement_cells(statistic: str, size: tuple[int, int], repetitions: int, seed: int) -> Iterator[AgreementCell]:
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
        covered = [holds(interval, truth) for interval in defined]
        width = np.mean([interval.high - interval.low for interval in defined])
        yield AgreementCell(
            statistic, rows, per_question, positive, truth, float(np.mean(covered)), float(width),
            1 - len(defined) / repetitions,
        )  # fmt: skip


def of_agreement(repetitions: int, seed: int) -> Iterator[str]:
    """Least and mean coverage over the cells of each statistic and size."""
    tables = (
        (STATISTICS[:FIRST_TABLE], AGREEMENT_SIZES, repetitions),
        (STATISTICS[FIRST_TABLE:], FEWER_AGREEMENT, min(repetitions, 200)),
    )
    for names, sizes, count in tables:
        yield f"\n| rows (per question) | {' | '.join(names)} |\n|---|{'---|' * len(names)}"
        for size in sizes:
            figures = []
            for name in names:
                # values that all differ take Kendall's jackknife a tenth of a second and more per sample
                covered = [c.covered for c in agreement_cells(name, size, min(count, 60) if name == "Kendall" else count, seed)]
                figures.append(f"{min(covered):.2f} / {np.mean(covered):.2f}")
            yield f"| {size[0]}{f' ({size[1]})' if size[1] > 1 else ''} | {' | '.join(figures)} |"


# --- corrected means

CASES = 1000
ALIKE_ROWS = 0.5
"""Of four rows of a question: of their labels, and of the judge's errors."""
JUDGES = {
    "guesses": (0.5, 0.5), "lenient": (0.95, 0.70), "one-sided": (1.0, 0.8), "good": (0.92, 0.90),
    "nearly perfect": (0.99, 0.985), "perfect": (1.0, 1.0),
}  # fmt: skip
"""Sensitivity and specificity of judges of 0/1."""
SHARES = {"guesses": 1.0, "lenient": 0.5, "good": 0.2, "nearly perfect": 0.03}
"""In how many cases judges of shares of five claims guess; their guesses are too high."""
TRUE_MEANS = (0.75, 0.95)
LABELS = (30, 60, 100, 300)
LABEL_SIZES = [(labels, rows) for rows in (1, 4) for labels in LABELS]
SETTLED_CORRECTED = {30: (0.92, 0.98), 60: (0.94, 0.97), 100: (0.93, 0.97), 300: (0.93, 0.95)}
"""Least and mean coverage of the simulation by which the estimator was chosen, before it was built in."""


@dataclass(frozen=True)
class CorrectedCell:
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
    likeness = ALIKE_ROWS if rows > 1 else 0.0
    quality, noise = normal_rows(rng, questions, likeness), normal_rows(rng, questions, likeness)
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


def corrected_cells(size: tuple[int, int], repetitions: int, seed: int, *, sampling: str = "random") -> Iterator[CorrectedCell]:
    """All cells with so many labels and rows per question; their draws depend on the seed and the cell alone."""
    labels, rows = size
    kinds = [*(("0/1", judge) for judge in JUDGES), *(("share of 5", judge) for judge in SHARES)]
    if sampling != "random":
        kinds = [("score", "AUROC .9")]
    for number, (kind, judge) in enumerate(kinds):
        for truth in TRUE_MEANS:
            rng = np.random.default_rng([seed, labels, rows, number, int(truth * 100), len(sampling)])
            results = []
            for _ in range(repetitions):
                people = populate(rng, kind, judge, truth, rows)
                drawn, strata = labelled(rng, people, labels, sampling)
                result = corrected_mean(people.scores, drawn, people.questions, strata=strata, low=0, high=1)
                results.append((result, labels_alone(drawn, people.questions, strata)))
            yield corrected(kind, judge, truth, size, sampling, results)


def labels_alone(drawn: Floats, questions: Whole, strata: Whole | None) -> Interval | None:
    """The interval of the mean of the labels, as if there were no judge; with strata that of a judge who always says the same."""
    if strata is not None and len(np.unique(strata)) > 1:
        return corrected_mean(np.zeros(len(drawn)), drawn, questions, strata=strata, low=0, high=1).interval
    known = ~np.isnan(drawn)
    return estimate_mean(drawn[known], questions[known], low=0, high=1).interval


def corrected(
    kind: str,
    judge: str,
    truth: float,
    size: tuple[int, int],
    sampling: str,
    results: list[tuple[CorrectedMean, Interval | None]],
) -> CorrectedCell:
    """The shares of intervals that hold the truth, and their mean widths; a refusal counts as no interval and not as a miss."""
    defined = [(result, alone) for result, alone in results if result.interval is not None]
    corrected, own = [result.interval for result, _ in defined], [result.judge.interval for result, _ in defined]
    alone = [interval for _, interval in defined]
    return CorrectedCell(
        kind, judge, truth, *size, sampling, holding(corrected, truth), width(corrected), holding(alone, truth), width(alone),
        holding(own, truth),
    )  # fmt: skip


def holding(intervals: Iterable[Interval | None], truth: float) -> float:
    return float(np.mean([holds(interval, truth) for interval in intervals]))


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


def scored_at_random(labels: int, truth: float, repetitions: int, seed: int) -> tuple[float, float]:
    """Coverage and width with a continuous score and random labels."""
    rng = np.random.default_rng([seed, 4, labels, int(truth * 100)])
    intervals = []
    for _ in range(repetitions):
        people = populate(rng, "score", "", truth, 1)
        drawn, _ = labelled(rng, people, labels, "random")
        intervals.append(corrected_mean(people.scores, drawn, low=0, high=1).interval)
    return holding(intervals, truth), width(intervals)


def of_corrected(repetitions: int, seed: int) -> Iterator[str]:
    """Coverage by number of labels, widths for 0/1, labels near the threshold, and of just these cases."""
    yield "| labels (rows per question) | corrected | labels alone | the judge alone |\n|---|---|---|---|"
    every: list[CorrectedCell] = []
    for size in LABEL_SIZES:
        row = list(corrected_cells(size, repetitions, seed))
        every += row
        figures = ([c.covered for c in row], [c.alone_covered for c in row], [c.judge_covered for c in row])
        shown = " | ".join(f"{min(values):.2f} / {np.mean(values):.2f}" for values in figures)
        yield f"| {size[0]}{f' ({size[1]})' if size[1] > 1 else ''} | {shown} |"
    for truth in TRUE_MEANS:
        yield f"\n| judge, truth {truth} | {' | '.join(f'{labels} labels' for labels in LABELS)} |\n|---|{'---|' * len(LABELS)}"
        of_truth = [c for c in every if (c.kind, c.per_question, c.truth) == ("0/1", 1, truth)]
        alone = [c.alone_width for c in of_truth if c.judge == "good"]
        for name, widths in {"labels alone": alone, **{j: [c.width for c in of_truth if c.judge == j] for j in JUDGES}}.items():
            yield f"| {name} | {' | '.join(f'{value:.3f}' for value in widths)} |"
    yield "\n| labels, judge of AUROC .9 | random: coverage, width | near the threshold |\n|---|---|---|"
    for labels in (60, 100, 300):
        for cell in corrected_cells((labels, 1), repetitions, seed, sampling="near"):
            covered, wide = scored_at_random(labels, cell.truth, repetitions, seed)
            yield f"| {labels}, truth {cell.truth} | {covered:.2f}, {wide:.3f} | {cell.covered:.2f}, {cell.width:.3f} |"
    for labels in (30, 60, 150):
        shares = of_only_these(labels, repetitions, seed)
        yield f"only these 300 cases, {labels} labels: {min(shares):.2f} / {np.mean(shares):.2f}"


PARTS: dict[str, tuple[Callable[[int, int], Iterator[str]], int]] = {
    "means": (of_means, 4000), "agreement": (of_agreement, 400), "corrected": (of_corrected, 400),
}  # fmt: skip
"""Each table and its repetitions."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--share", type=float, default=1.0, help="of the repetitions")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--small", action="store_true", help="the smallest size: does it work?")
    args = parser.parse_args()
    if args.small:
        found = min(cell.rule for cell in cells((100, 0.0), 200, args.seed))
        return measured.say("intervals of 100 rows: least coverage", found, "of .95")
    for name in args.parts:
        table, repetitions = PARTS[name]
        for line in table(max(20, round(repetitions * args.share)), args.seed):
            print(line, flush=True)


if __name__ == "__main__":
    main()
