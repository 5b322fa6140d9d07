"""How often the decisions of ragpipe are wrong, by the functions that a run uses: the tables of docs/statistics.md.

    python benchmarks/decisions.py [--repetitions 2000] [--seed 5] [--parts same candidates]

In each repetition the values of a base and a candidate are drawn anew and one decision is made. Values are cut from correlated
normal draws (a Gaussian copula), so that true means are exact; a share of the questions may be answered word for word as before. What a
gate does to a rate is summed exactly over the binomial distribution. Takes about ten minutes; a part of it is a slow test. The part
`recorded` reads LLMBar in the folder that RAGPIPE_DATA names, `weights` makes the table of docs/extras/weights.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import measured
import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from ragpipe.core.score import ScoreSpec
from ragpipe.extras.weights.rank_stability import rank_stability
from ragpipe.extras.weights.ratings import fit_weights
from ragpipe.score.gate_rules import decide_gate, decide_gates, define
from ragpipe.score.gate_settings import Gate
from ragpipe.stats.corrected_mean import corrected_mean
from ragpipe.stats.difference_verdict import benjamini_hochberg, decide_difference, decide_drop, decide_together
from ragpipe.stats.differences import PairedDifference, paired_difference
from ragpipe.stats.intervals import Interval, estimate_mean, estimate_rate
from ragpipe.stats.noise_floor import flip_rate, noise_floor
from ragpipe.stats.preference import decide_preference

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """What is compared: kind of values, the base's true mean, the correlation behind both values of a row, and the share of
    questions whose values did not change at all."""

    values: str
    mean: float
    likeness: float = 0.5
    unchanged: float = 0.0

    def __str__(self) -> str:
        same = f", {self.unchanged:.0%} same" if self.unchanged else ""
        return f"{self.values} {self.mean:g}, {self.likeness:g}{same}"


RATE, SHARES, GRADES = Kind("0/1", 0.85), Kind("shares", 0.85), Kind("grades", 0.7)
RATE_SAME, SHARES_SAME = Kind("0/1", 0.85, 0.84, 0.6), Kind("shares", 0.85, 0.84, 0.6)
GATED = (RATE, SHARES, RATE_SAME, SHARES_SAME, GRADES)
QUESTIONS = (
    (10, False),
    (20, False),
    (30, False),
    (40, False),
    (100, False),
    (300, False),
    (20, True),
    (40, True),
    (100, True),
)
"""Questions, and whether they have 1 to 6 rows each (else one)."""
NULLS = tuple(
    Kind(values, mean, likeness, unchanged)
    for values, mean in (("0/1", 0.85), ("0/1", 0.95), ("shares", 0.85), ("grades", 0.7))
    for likeness, unchanged in ((0.2, 0.0), (0.5, 0.0), (0.84, 0.6), (0.5, 0.9))
)


# --- drawing


def sizes_of(questions: int, repeated: bool) -> Whole:
    """Rows of each question: one, or 1 to 6."""
    if not repeated:
        return np.ones(questions, dtype=np.int64)
    return np.random.default_rng(questions).integers(1, 7, questions).astype(np.int64)


def draw_pairs(rng: np.random.Generator, repetitions: int, sizes: Whole, kind: Kind, change: float) -> tuple[Floats, Floats]:
    """Values of base and candidate: a repetition per row, the rows of a comparison across. The candidate's true mean is
    `change` higher, all of it in the questions that change."""
    codes = np.repeat(np.arange(len(sizes)), sizes)

    def normal() -> Floats:
        shared = rng.standard_normal((repetitions, len(sizes)))[:, codes]
        return math.sqrt(0.5) * shared + math.sqrt(0.5) * rng.standard_normal((repetitions, len(codes)))

    common = normal()
    of_both = [math.sqrt(kind.likeness) * common + math.sqrt(1 - kind.likeness) * normal() for _ in range(2)]
    base = cut(of_both[0], kind.values, kind.mean)
    candidate = cut(of_both[1], kind.values, kind.mean + change / (1 - kind.unchanged))
    if kind.unchanged:
        is_same = (rng.random((repetitions, len(sizes))) < kind.unchanged)[:, codes]
        candidate = np.where(is_same, base, candidate)
    return base, candidate


def cut(normal: Floats, values: str, mean: float) -> Floats:
    """Standard normal draws as values on 0 to 1 with this mean."""
    levels, shares = distribution(values, round(mean, 9))
    limits = ndtri(np.clip(np.cumsum(shares)[:-1], 1e-15, 1 - 1e-15))
    return np.asarray(levels)[np.searchsorted(limits, normal)]


@lru_cache
def distribution(values: str, mean: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The values that occur and their probabilities: 0/1, shares of five claims, or five grades of a normal quality."""
    if values == "0/1":
        return (0.0, 1.0), (1 - mean, mean)
    if values == "shares":
        return tuple(np.arange(6) / 5), tuple(stats.betabinom.pmf(np.arange(6), 5, 3 * mean, 3 * (1 - mean)))
    limits = np.array([-1.2, -0.4, 0.4, 1.2])
    centre = brentq(lambda c: float(np.sum(ndtr(c - limits))) / 4 - mean, -8, 8)
    return tuple(np.arange(5) / 4), tuple(np.diff(np.concatenate([[0], ndtr(limits - centre), [1]])))


# --- paired differences, verdicts and drops


@dataclass(frozen=True)
class Comparisons:
    """Shares of the repetitions of one cell. `alarms`: the interval excludes 0 and may decide; `covered`: it holds the true
    change; `overlap`: the intervals of both means do not overlap; `states` are verdicts, `drops` those of drops by `max_drop`."""

    n: int
    alarms: float
    covered: float
    overlap: float
    spread: float
    states: dict[str, float]
    drops: dict[float, dict[str, float]]


def compare(
    cell: tuple[int, bool], kind: Kind, change: float, repetitions: int, seed: int, effect: float = 0.05
) -> Comparisons:
    """One cell: questions, kind of values and true change."""
    sizes = sizes_of(*cell)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng([seed, *cell, *map(ord, str(kind)), int(-1000 * change)])
    base, candidate = draw_pairs(rng, repetitions, sizes, kind, change)
    counted: Counter[str] = Counter()
    states: Counter[str] = Counter()
    drops: dict[float, Counter[str]] = {0.02: Counter(), 0.05: Counter()}
    for old, new in zip(base, candidate, strict=True):
        verdict = decide_difference(old, new, codes, low=0.0, high=1.0, smallest_effect=effect)
        interval = verdict.paired.interval
        assert interval is not None
        counted["alarms"] += alarm(verdict.paired)
        counted["covered"] += interval.low - 1e-9 <= change <= interval.high + 1e-9
        counted["overlap"] += apart(old, new, codes)
        states[verdict.state] += 1
        for max_drop, verdicts in drops.items():
            verdicts[decide_drop(verdict.paired, max_drop, span=1.0).state] += 1
    return Comparisons(
        len(codes),
        *(counted[name] / repetitions for name in ("alarms", "covered", "overlap")),
        float(np.mean(np.std(candidate - base, axis=1))),
        {name: count / repetitions for name, count in states.items()},
        {max_drop: {name: n / repetitions for name, n in verdicts.items()} for max_drop, verdicts in drops.items()},
    )


def alarm(paired: PairedDifference) -> bool:
    """Whether a difference is found."""
    interval = paired.interval
    return interval is not None and paired.can_decide and not interval.low <= 0 <= interval.high


def apart(old: Floats, new: Floats, codes: Whole) -> bool:
    """Whether the single intervals of both means do not overlap: what was compared before."""
    first, second = (estimate_mean(values, codes, low=0.0, high=1.0).interval for values in (old, new))
    assert first is not None
    assert second is not None
    return second.low > first.high or second.high < first.low


def verdicts_of_normal(n: int, change: float, repetitions: int, seed: int, effect: float = 0.05) -> dict[str, float]:
    """Verdicts on normal differences with a standard deviation of .3, as a share of the repetitions."""
    rng = np.random.default_rng([seed, n, int(1000 * change)])
    states = Counter(
        decide_difference(np.zeros(n), change + 0.3 * rng.standard_normal(n), smallest_effect=effect).state
        for _ in range(repetitions)
    )
    return {name: count / repetitions for name, count in states.items()}


def detected(n: int, kind: Kind, repetitions: int, seed: int) -> float:
    """Share of samples that find a change as large as the mean `detectable` of such samples."""
    rng = np.random.default_rng([seed, n, 80])
    sizes = sizes_of(n, False)
    base, candidate = draw_pairs(rng, 100, sizes, kind, -0.05)
    found = [paired_difference(old, new, low=0.0, high=1.0).detectable for old, new in zip(base, candidate, strict=True)]
    change = -float(np.mean([value for value in found if value is not None]))
    pairs = zip(*draw_pairs(rng, repetitions, sizes, kind, change), strict=True)
    return float(np.mean([alarm(paired_difference(old, new, low=0.0, high=1.0)) for old, new in pairs]))


# --- gates


def gate_verdicts(n: int, minimum: float) -> list[str]:
    """What a gate by interval says of 0 to n passed cases, by the functions of a run."""
    gate = Gate(score="faithfulness", of="pass_rate", min=minimum)
    definition = define(
        "gate", gate, ScoreSpec("faithfulness"), judged=True, rests_on=(), coverage_floor=0.95, inconclusive="warn",
        untrusted=False,
    )  # fmt: skip
    said = []
    for hits in range(n + 1):
        rate = estimate_rate(np.repeat([1.0, 0.0], [hits, n - hits]))
        assert rate.interval is not None
        said.append(decide_gate(definition, [_measured(n, rate.value, rate.interval)])["verdict"])
    return said


def _measured(n: int, value: float | None, interval: Interval) -> dict[str, Any]:
    bounds = {"low": interval.low, "high": interval.high, "method": interval.method}
    counts = dict.fromkeys(("n_skipped", "n_error", "n_system_error", "n_not_recorded", "n_missing"), 0)
    return {"value": value, "interval": bounds, "n_cases": n, "n_ok": n, **counts, "absent": None}


def gate_rates(n: int, minimum: float, truth: float) -> tuple[float, float, float]:
    """Exact probabilities that a gate fails and passes, and that one by point blocks."""
    chances = stats.binom.pmf(np.arange(n + 1), n, truth)
    said = np.array(gate_verdicts(n, minimum))
    below = np.arange(n + 1) / n < minimum - 1e-12
    return tuple(float(np.sum(chances[chosen])) for chosen in (said == "failed", said == "passed", below))  # type: ignore[return-value]


def false_blocks(gates: int, repetitions: int, seed: int, n: int = 100) -> tuple[float, float]:
    """Of identical systems the share of runs in which one of several independent gates fails: as a run decides them together, and
    each by itself."""
    rng = np.random.default_rng([seed, gates, n])
    gate = Gate(score="faithfulness", against="baseline", max_drop=0.0)
    definition = define(
        "gate", gate, ScoreSpec("faithfulness"), judged=True, rests_on=(), coverage_floor=0.95, inconclusive="warn",
        untrusted=False,
    )  # fmt: skip
    any_adjusted = any_single = 0
    for _ in range(repetitions):
        measured = [_dropped(paired_difference(np.zeros(n), 0.3 * rng.standard_normal(n))) for _ in range(gates)]
        decided = decide_gates([({**definition, "name": str(place)}, [each]) for place, each in enumerate(measured)])
        any_single += any(each["paired"]["state"] == "failed" for each in measured)
        any_adjusted += any(each["verdict"] == "failed" for each in decided)
    return any_adjusted / repetitions, any_single / repetitions


def _dropped(paired: PairedDifference) -> dict[str, Any]:
    """What a gate against a baseline measures that allows no drop."""
    drop = decide_drop(paired, 0.0)
    assert paired.interval is not None
    sides = {
        "base": 0.0,
        "candidate": paired.difference,
        "n": paired.n,
        "only_base": 0,
        "state": drop.state,
        "reason": drop.reason,
    }
    return {**_measured(paired.n, paired.difference, paired.interval), "p_value": drop.p_value, "paired": sides}


def false_scores(scores: int, repetitions: int, seed: int, n: int = 60) -> tuple[float, float]:
    """Of identical systems the share of comparisons that call one of several scores better or worse: adjusted, and each alone."""
    rng = np.random.default_rng([seed, scores, n, 1])
    any_adjusted = any_single = 0
    for _ in range(repetitions):
        verdicts = [decide_difference(np.zeros(n), 0.3 * rng.standard_normal(n), smallest_effect=0.01) for _ in range(scores)]
        any_single += any(verdict.state in ("better", "worse") for verdict in verdicts)
        any_adjusted += any(verdict.state in ("better", "worse") for verdict in decide_together(verdicts))
    return any_adjusted / repetitions, any_single / repetitions


def candidates(count: int, n: int, kind: Kind, change: float, repetitions: int, seed: int) -> tuple[float, float, float, float]:
    """Of comparisons of so many candidates with one base, of which the first alone differs, by `change`: the share that calls one of
    the equal ones better or worse, decided together and each alone; and the share that finds the first, likewise."""
    rng = np.random.default_rng([seed, count, n, *map(ord, kind.values), int(1000 * change)])
    called = np.zeros((2, count), dtype=np.int64)
    wrong = np.zeros(2, dtype=np.int64)
    for _ in range(repetitions):
        common = math.sqrt(kind.likeness) * rng.standard_normal(n)
        base, *sides = (
            cut(common + math.sqrt(1 - kind.likeness) * rng.standard_normal(n), kind.values, kind.mean + shift)
            for shift in (0.0, change, *[0.0] * (count - 1))
        )
        alone = [decide_difference(base, side, low=0.0, high=1.0, smallest_effect=0.05) for side in sides]
        found = np.array([[v.state in ("better", "worse") for v in vs] for vs in (decide_together(alone), alone)])
        called += found
        wrong += found[:, 1 if change else 0 :].any(axis=1)
    shares = (*wrong, *called[:, 0])
    return tuple(float(number) / repetitions for number in shares)  # type: ignore[return-value]


STEPS = (
    ("1", 1.0, 0.0),
    ("1/2", 0.5, 0.0),
    ("1/5", 0.2, 0.0),
    ("1/10", 0.1, 0.0),
    ("1, both ways", 1.0, 0.05),
    ("1/5, both ways", 0.2, 0.1),
)


def same_of_steps(size: float, back: float, n: int, change: float, repetitions: int, seed: int) -> float:
    """How often a comparison says `same` where answers change by `size` alone: a share `back` falls, and as many rise but for a
    true difference of `change`. The smallest effect is .05."""
    rng = np.random.default_rng([seed, n, int(100 * size), int(100 * back), int(1000 * change)])
    drawn = rng.random((repetitions, n))
    rises, falls = drawn < back + change / size, drawn > 1 - back
    base = np.where(falls, size, 0.0)
    candidate = np.where(rises, size, 0.0)
    pairs = zip(base, candidate, strict=True)
    said = [decide_difference(old, new, low=0.0, high=1.0, smallest_effect=0.05).state for old, new in pairs]
    return said.count("same") / repetitions


def false_slices(correlation: float, changed: float, repetitions: int, seed: int, slices: int = 30) -> float:
    """Mean share of false ones among the slices with a q-value of at most .05, whose z values correlate; `changed` of them differ."""
    rng = np.random.default_rng([seed, int(10 * correlation), int(10 * changed)])
    differs = np.arange(slices) < changed * slices
    shares = []
    for _ in range(repetitions):
        z = math.sqrt(correlation) * rng.standard_normal() + math.sqrt(1 - correlation) * rng.standard_normal(slices)
        q_values = benjamini_hochberg((2 * ndtr(-np.abs(z + 3 * differs))).tolist())
        rejected = np.array([q is not None and q <= 0.05 for q in q_values])
        shares.append(float(np.sum(rejected & ~differs)) / max(1, int(np.sum(rejected))))
    return float(np.mean(shares))


# --- looks and repeats


def differences(rng: np.random.Generator, n: int, kind: str, change: float) -> Floats:
    """Differences of one comparison: normal (standard deviation .3), 0/1 of which a fifth changed, or small steps of which 70 % are 0."""
    if kind == "normal":
        return np.asarray(0.3 * rng.standard_normal(n) + change)
    drawn = rng.random(n)
    if kind == "0/1":
        return np.where(drawn < 0.1 + change / 2, 1.0, np.where(drawn < 0.2, -1.0, 0.0))
    sign = np.where(rng.random(n) < 0.5 * (1 + change / 0.09), 1, -1)
    return np.where(drawn < 0.3, sign * rng.choice([0.2, 0.4], n), 0.0)


def repeated_judging(
    n: int, repeats: int, items: float, judge: float, repetitions: int, seed: int
) -> tuple[float, float, float]:
    """How often two runs over the same answers differ by less than the floor of the first, and the mean estimates of both
    standard deviations."""
    rng = np.random.default_rng([seed, n, repeats, int(100 * judge)])
    within, judges, cases = 0, 0.0, 0.0
    for _ in range(repetitions):
        truth = items * rng.standard_normal((n, 1))
        first, second = (truth + judge * rng.standard_normal((n, repeats)) for _ in range(2))
        means = first.mean(axis=1)
        floor = noise_floor(means, ((first - means[:, None]) ** 2).sum(axis=1), np.full(n, repeats))
        assert floor.floor is not None
        within += abs(float(first.mean() - second.mean())) <= floor.floor
        judges += floor.judge_variance or 0.0
        cases += floor.item_variance or 0.0
    return within / repetitions, math.sqrt(judges / repetitions), math.sqrt(cases / repetitions)


def flipping(n: int, repeats: int, repetitions: int, seed: int) -> tuple[float, float, float]:
    """Mean flip rate, the true one, and the share of cases that ever flipped: a judge who is sure of four in five cases."""
    rng = np.random.default_rng([seed, n, repeats])
    sure = np.where(rng.random((repetitions, n)) < 0.8, 0.99, 0.01)
    chance = np.where(rng.random((repetitions, n)) < 0.8, sure, rng.random((repetitions, n)))
    passed = rng.binomial(repeats, chance)
    rates = [flip_rate(row, np.full(n, repeats)) or 0.0 for row in passed]
    ever = float(np.mean((passed > 0) & (passed < repeats)))
    return float(np.mean(rates)), float(np.mean(2 * chance * (1 - chance))), ever


# --- preference between two answers


@dataclass(frozen=True)
class Chosen:
    """A judge asked in both orders. `rate`: how often people prefer the candidate where the answers differ, those with a share of
    `same`; `right`: how often the judge sees it as they do; `by_order`: how often it goes by the order alone, which is a tie."""

    rate: float
    same: float = 0.0
    right: float = 0.85
    by_order: float = 0.2

    @property
    def judged(self) -> float:
        """The judge's expected win rate."""
        won = self.rate * self.right + (1 - self.rate) * (1 - self.right)
        return 0.5 * self.same + (1 - self.same) * (0.5 * self.by_order + (1 - self.by_order) * won)

    @property
    def people(self) -> float:
        """That of people."""
        return 0.5 * self.same + (1 - self.same) * self.rate


CHOSEN = tuple(
    Chosen(rate, same, 0.85, by_order) for rate in (0.6, 0.75, 0.9) for same, by_order in ((0.0, 0.0), (0.0, 0.3), (0.5, 0.2))
)
EQUAL = tuple(Chosen(0.5, same, 0.85, by_order) for same, by_order in ((0.0, 0.0), (0.0, 0.3), (0.3, 0.2), (0.7, 0.2)))


def draw_choices(rng: np.random.Generator, codes: Whole, kind: Chosen) -> tuple[Floats, Floats]:
    """What people and the judge prefer of each pair: 1, .5 or 0. Pairs of a question are alike by their difficulty and preference."""
    shared, own = rng.standard_normal(codes.max() + 1)[codes], rng.standard_normal(len(codes))
    people = (ndtr(math.sqrt(0.5) * shared + math.sqrt(0.5) * own) < kind.rate).astype(float)
    judge = np.where(rng.random(len(codes)) < kind.right, people, 1 - people)
    judge = np.where(rng.random(len(codes)) < kind.by_order, 0.5, judge)
    same = rng.random(len(codes)) < kind.same
    return np.where(same, 0.5, people), np.where(same, 0.5, judge)


def preferences(cell: tuple[int, bool], kind: Chosen, labels: int, repetitions: int, seed: int) -> tuple[float, float, float]:
    """How often the interval of the win rate holds the judge's true one, that of the corrected one (of so many `labels`) people's, and
    how often a winner is called."""
    codes = np.repeat(np.arange(cell[0]), sizes_of(*cell))
    rng = np.random.default_rng([seed, *cell, labels, *(int(1000 * value) for value in vars(kind).values())])
    covered = corrected = called = 0
    for _ in range(repetitions):
        people, judge = draw_choices(rng, codes, kind)
        verdict = decide_preference(judge, codes)
        interval = verdict.rate.interval
        assert interval is not None
        covered += interval.low <= kind.judged <= interval.high
        called += verdict.state in ("better", "worse")
        if labels:
            given = np.full(len(codes), np.nan)
            chosen = rng.permutation(len(codes))[:labels]
            given[chosen] = people[chosen]
            bounds = corrected_mean(judge, given, codes, low=0.0, high=1.0).interval
            corrected += bounds is not None and bounds.low <= kind.people <= bounds.high
    return covered / repetitions, corrected / repetitions, called / repetitions


def recorded_choices(data: Path, judge: str) -> tuple[Floats, Floats, Floats]:
    """LLMBar's recorded pairs by one judge: its preference in both orders for the output that people prefer (1, .5, 0), and the grades that it
    gave that output and the other one when it rated each alone, 0 to 10."""
    folder = data / "llmbar" / "Natural"
    labels = [item["label"] for item in json.loads((folder / "dataset.json").read_text())]

    def last(kind: str) -> list[dict[str, Any]]:
        return [item["results"][-1] for item in json.loads((folder / judge / kind / "result.json").read_text())]

    won = {0: 0.5, 2: 1.0, -2: 0.0}
    choices, grades = [], []
    for label, asked, rated in zip(labels, last("Vanilla"), last("Rating"), strict=True):
        votes = [
            {str(label): 1, str(3 - label): -1}.get(str(asked[f"swap = {turned}"]["winner"]), 0) for turned in (False, True)
        ]
        choices.append(won.get(sum(votes), 0.5))
        grades.append([float(rated[f"score_{output}"][0]) for output in (label, 3 - label)])
    better, other = np.array(grades).T
    return np.array(choices), better, other


def power_on_recorded(data: Path, judge: str, rate: float, n: int, repetitions: int, seed: int) -> tuple[float, float]:
    """How often `n` recorded pairs, drawn so that people prefer the candidate in a share `rate` of them, show that it is better: by the judge's
    preference, and by its grades."""
    chosen, better, other = recorded_choices(data, judge)
    rng = np.random.default_rng([seed, n, int(100 * rate)])
    found = np.zeros(2)
    for _ in range(repetitions):
        pairs, won = rng.integers(0, len(chosen), n), rng.random(n) < rate
        values = np.where(won, chosen[pairs], 1 - chosen[pairs])
        old, new = np.where(won, other[pairs], better[pairs]), np.where(won, better[pairs], other[pairs])
        paired = paired_difference(old, new, low=0.0, high=10.0)
        found += decide_preference(values).state == "better", alarm(paired) and bool(np.mean(new - old) > 0)
    by_preference, by_score = found / repetitions
    return float(by_preference), float(by_score)


# --- weights fitted to ratings


IN_USE = np.array([0.35, 0.25, 0.2, 0.1, 0.1])
PEOPLE = {
    "as in use": IN_USE,
    "slightly other": np.array([0.25, 0.25, 0.2, 0.15, 0.15]),
    "quite other": np.array([0.05, 0.05, 0.1, 0.4, 0.4]),
}
RATINGS = (30, 60, 100, 300)


@dataclass(frozen=True)
class Fitted:
    """Ratings follow a weighting of five correlated scores, plus noise of .9 of its spread. Share of samples in which the fitted weights are advised, and means of the gain out of fold and of the true one."""

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


def fits(ratings: int, repetitions: int, seed: int) -> Iterator[Fitted]:
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
        yield Fitted(ratings, people, advised / repetitions, float(np.mean(gains)), float(np.mean(true_gains)))


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


# --- the tables


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A Markdown table."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(f'{cell:.3f}' if isinstance(cell, float) else str(cell) for cell in row)} |"
    yield ""


def name_of(cell: tuple[int, bool]) -> str:
    """`100`, or `100 (355 rows)` where questions repeat."""
    return f"{cell[0]} ({int(sizes_of(*cell).sum())} rows)" if cell[1] else f"{cell[0]}"


def _of_differences(repetitions: int, seed: int) -> Iterator[str]:
    rows = []
    for cell in QUESTIONS:
        nulls = [compare(cell, kind, 0.0, repetitions, seed) for kind in NULLS]
        moved = [compare(cell, kind, -0.05, repetitions, seed) for kind in (RATE_SAME, SHARES_SAME, RATE, SHARES)]
        alarms, covered = [result.alarms for result in nulls], [result.covered for result in (*nulls, *moved)]
        rows.append((name_of(cell), max(alarms), float(np.mean(alarms)), min(covered), float(np.mean(covered))))
    yield from table(("questions", "false alarms, most", "mean", "coverage, least", "mean"), rows)


def _of_power(repetitions: int, seed: int) -> Iterator[str]:
    rows = []
    for kind in (SHARES, Kind("shares", 0.85, 0.84), RATE, Kind("0/1", 0.85, 0.84)):
        both = [compare((100, False), kind, change, repetitions, seed) for change in (-0.05, -0.1)]
        found = [f"{result.overlap:.2f} -> {result.alarms:.2f}" for result in both]
        rows.append((str(kind), *found, detected(100, kind, repetitions, seed)))
    yield from table(("100 cases", "-.05: overlap -> paired", "-.10", "at the detectable difference"), rows)


def _of_verdicts(repetitions: int, seed: int) -> Iterator[str]:
    rows = []
    for n in (30, 100, 300, 1000):
        for truth in (0.0, 0.025, 0.05, 0.1):
            said = verdicts_of_normal(n, truth, repetitions, seed)
            rows.append((n, truth, *(said.get(state, 0.0) for state in ("better", "worse", "same", "inconclusive"))))
    yield from table(("cases", "true difference", "better", "worse", "same", "inconclusive"), rows)


def _of_same(repetitions: int, seed: int) -> Iterator[str]:
    sizes = (30, 60, 100, 200, 300, 1000)
    for change in (0.05, 0.0):
        rows = [
            (name, *(same_of_steps(size, back, n, change, repetitions, seed) for n in sizes))
            for name, size, back in STEPS
            if back or change
        ]
        yield from table((f"changes of, true difference {change:g}", *map(str, sizes)), rows)


def _of_rates(repetitions: int, seed: int) -> Iterator[str]:
    rows = []
    for n in (30, 100, 300):
        exact = {truth: gate_rates(n, 0.85, truth) for truth in (0.75, 0.8, 0.85, 0.88, 0.9, 0.95)}
        blocks = exact[0.88][2]
        fails = " ".join(f"{exact[truth][0]:.2f}" for truth in (0.88, 0.85, 0.8, 0.75))
        passes = " ".join(f"{exact[truth][1]:.2f}" for truth in (0.88, 0.9, 0.95))
        rows.append((n, f"{blocks:.2f} / {2 * blocks * (1 - blocks):.2f}", fails, passes))
    yield from table(("cases", "by point blocks at .88 / flips", "fails at .88 .85 .80 .75", "passes at .88 .90 .95"), rows)


def _of_drops(repetitions: int, seed: int) -> Iterator[str]:
    for max_drop in (0.02, 0.05):
        rows = []
        for kind in GATED:
            cells = [[compare((n, False), kind, -drop, repetitions, seed) for n in (30, 100, 300)] for drop in (0.0, 0.05, 0.1)]
            shown = [" ".join(f"{r.drops[max_drop].get('failed', 0):.2f}" for r in row) for row in cells]
            passes = " ".join(f"{r.drops[max_drop].get('passed', 0):.2f}" for r in cells[0])
            rows.append((str(kind), f"{cells[0][1].spread:.2f}", *shown, passes))
        heads = ("A/A fails, n = 30 100 300", "drop .05", "drop .10", "A/A passes")
        yield from table((f"max_drop {max_drop:g}", "sd of d", *heads), rows)
    rows = []
    for cell in ((30, True), (100, True)):
        most = max(compare(cell, kind, 0.0, repetitions, seed).drops[0.02].get("failed", 0.0) for kind in GATED)
        rows.append((name_of(cell), most))
    yield from table(("questions with 1 to 6 rows", "A/A fails, most"), rows)


def _of_families(repetitions: int, seed: int) -> Iterator[str]:
    rows: list[tuple[object, ...]] = []
    for count in (1, 4, 12):
        gates, scores = false_blocks(count, repetitions // 2, seed), false_scores(count, repetitions // 2, seed)
        rows.append((count, *gates, *scores))
    yield from table(("count", "gates: a false block", "unadjusted", "scores: a false verdict", "unadjusted"), rows)
    rows = [
        (correlation, *(false_slices(correlation, changed, repetitions, seed) for changed in (0.0, 0.2)))
        for correlation in (0.0, 0.5, 0.8)
    ]
    yield from table(("correlation of 30 slices", "false share, none differs", "a fifth differs"), rows)


def _of_candidates(repetitions: int, seed: int) -> Iterator[str]:
    kinds = (RATE, Kind("shares", 0.75), GRADES)
    for n in (40, 100, 300):
        rows = []
        for count in (1, 2, 4, 8, 12):
            null, moved = (
                np.mean([candidates(count, n, kind, change, repetitions // 2, seed) for kind in kinds], axis=0)
                for change in (0.0, 0.1)
            )
            rows.append((count, float(null[0]), float(null[1]), float(moved[2]), float(moved[3])))
        heads = ("a false word", "unadjusted", "a true .1 found", "unadjusted")
        yield from table((f"candidates, {n} cases", *heads), rows)


def _of_repeats(repetitions: int, seed: int) -> Iterator[str]:
    rows = [
        (f"{n} x {repeats}", items, judge, *repeated_judging(n, repeats, items, judge, repetitions, seed))
        for n, repeats in ((30, 2), (30, 3), (100, 2), (100, 3), (300, 2))
        for items, judge in ((0.3, 0.05), (0.3, 0.15), (0.1, 0.15))
    ]
    yield from table(("cases x judgings", "s_i", "s_j", "within the floor", "estimated s_j", "estimated s_i"), rows)
    flips = [(f"100 x {repeats}", *flipping(100, repeats, repetitions, seed)) for repeats in (2, 3, 5)]
    yield from table(("cases x judgings", "flip rate", "true", "ever flipped"), flips)


def _of_preference(repetitions: int, seed: int) -> Iterator[str]:
    for kinds, head in ((CHOSEN, "a winner is called"), (EQUAL, "a false winner")):
        rows = []
        for cell in ((20, False), (40, False), (100, False), (300, False), (40, True), (100, True)):
            found = np.array([preferences(cell, kind, 60 if cell[0] >= 100 else 0, repetitions, seed) for kind in kinds])
            corrected = (found[:, 1].min(), found[:, 1].mean()) if cell[0] >= 100 else ("-", "-")
            rows.append(
                (name_of(cell), found[:, 0].min(), found[:, 0].mean(), *corrected, found[:, 2].mean(), found[:, 2].max())
            )
        yield from table(("questions", "covered, least", "mean", "corrected, least", "mean", f"{head}, mean", "most"), rows)


def _of_recorded(repetitions: int, seed: int) -> Iterator[str]:
    data = Path(os.environ.get("RAGPIPE_DATA", "../shared/data"))
    for judge in ("ChatGPT", "GPT-4"):
        rows = [
            (n, *(figure for rate in (0.6, 0.7, 0.8) for figure in power_on_recorded(data, judge, rate, n, repetitions, seed)))
            for n in (20, 30, 40, 60, 80, 100, 150, 200, 300, 400)
        ]
        heads = (f"{word} {rate:.0%}" for rate in (0.6, 0.7, 0.8) for word in ("preference", "scores"))
        yield from table((f"questions, {judge}", *heads), rows)


def _of_weights(repetitions: int, seed: int) -> Iterator[str]:
    rows = [
        (ratings, cell.people, cell.advised, f"{cell.gain:+.3f}", f"{cell.true_gain:+.3f}")
        for ratings in RATINGS
        for cell in fits(ratings, repetitions // 7, seed)
    ]
    yield from table(("ratings", "people weigh", "advised", "gain out of fold", "true gain"), rows)
    alone, both = close_methods(repetitions // 20, seed)
    yield f"the leader of three close methods is first in {alone:.3f} over weights alone, in {both:.3f} over questions too"


PARTS = {
    "differences": _of_differences,
    "power": _of_power,
    "verdicts": _of_verdicts,
    "same": _of_same,
    "rates": _of_rates,
    "drops": _of_drops,
    "families": _of_families,
    "candidates": _of_candidates,
    "repeats": _of_repeats,
    "preference": _of_preference,
    "weights": _of_weights,
    "recorded": _of_recorded,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true", help="the smallest size: does it work?")
    args = parser.parse_args()
    if args.small:
        return measured.say("false alarms at 40 questions", compare((40, False), RATE, 0.0, 200, args.seed).alarms, "of .05")
    for name in args.parts:
        for line in PARTS[name](args.repetitions, args.seed):
            print(line, flush=True)


if __name__ == "__main__":
    main()
