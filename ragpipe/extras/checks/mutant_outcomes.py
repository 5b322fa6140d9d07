"""What each score made of each mutant: caught, missed, or not to be told."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ragpipe.extras.checks.expectations import Direction, Expectation, expected_direction
from ragpipe.stats.noise_floor import noise_floor
from ragpipe.stats.student_t import normal_quantile

OutputKey = tuple[str, str, int]
"""Sample, method and repeat."""
Values = Mapping[OutputKey, Sequence[float]]
"""The values of one score: for each output one per iteration that gave one."""
Status = Literal["as_expected", "missed", "at_end", "no_value"]
_HAIR = 1e-9  # of the range: a smaller change is rounding


@dataclass(frozen=True, slots=True)
class MutantOutput:
    """One mutant as an output of the run, and the original's. `in_reference`: see `Edit`."""

    mutation: str
    original: OutputKey
    mutant: OutputKey
    in_reference: bool = False


@dataclass(frozen=True, slots=True)
class MutantOutcome:
    """What one score made of one mutant.

    `status`: `as_expected`, `missed`, `at_end` where the original is at the end of the scale already and cannot become worse
    (or better), `no_value` where the original or the mutant has none. `change` is mutant less original in units of the scale's
    range, above 0 where the mutant is better.
    """

    score: str
    mutant: MutantOutput
    expected: Direction
    status: Status
    value: float | None = None
    mutant_value: float | None = None
    change: float | None = None

    @property
    def is_judged(self) -> bool:
        """Whether the score could tell, so that the mutant counts."""
        return self.status in ("as_expected", "missed")


@dataclass(frozen=True, slots=True)
class CaseFloor:
    """The change of a case's value that the judge's noise alone makes; a larger one counts as a change.

    `limit` is a share of the scale's range. `source`: `iterations`, or `tolerance` where the run has one iteration.
    """

    limit: float
    source: Literal["iterations", "tolerance"]


def case_floor(values: Values, *, span: float, tolerance: float) -> CaseFloor:
    """The noise floor of the difference of two values of a case, each the mean of its r iterations.

    With s^2 the judge's variance (see `noise_floor`): 1.96 sqrt(2 s^2 / r), divided by the range `span`. With one iteration nothing is
    known of the noise, and `tolerance` stands in for it.
    """
    cases = [np.array(case, dtype=np.float64) for case in values.values() if case]
    means = np.array([float(np.mean(case)) for case in cases])
    squares = np.array([float(np.sum((case - np.mean(case)) ** 2)) for case in cases])
    noise = noise_floor(means, squares, np.array([len(case) for case in cases], dtype=np.int64))
    if noise.judge_variance is None or noise.repeats is None:
        return CaseFloor(tolerance, "tolerance")
    return CaseFloor(normal_quantile(0.95) * math.sqrt(2 * noise.judge_variance / noise.repeats) / span, "iterations")


def score_outcomes(
    score: str,
    values: Values,
    mutants: Sequence[MutantOutput],
    declared: Mapping[str, Any],
    expectations: Mapping[str, Expectation],
    floor: CaseFloor,
) -> Iterator[MutantOutcome]:
    """The outcomes of one score, for every mutant of which something is expected.

    Args:
        score: the name of the score.
        values: its values of originals and mutants.
        mutants: the mutants.
        declared: its scale and direction, as in `metrics.json`.
        expectations: what is expected, by mutation.
        floor: the change that counts as none.
    """
    span = declared["high"] - declared["low"]
    sign = 1.0 if declared["higher_is_better"] else -1.0
    for mutant in mutants:
        expected = expected_direction(score, expectations.get(mutant.mutation), in_reference=mutant.in_reference)
        if expected is None:
            continue
        before, after = _mean(values.get(mutant.original)), _mean(values.get(mutant.mutant))
        if before is None or after is None:
            yield MutantOutcome(score, mutant, expected, "no_value", before, after)
            continue
        change = sign * (after - before) / span
        status = _status(expected, change, max(floor.limit, _HAIR), _room(before, expected, declared) / span)
        yield MutantOutcome(score, mutant, expected, status, before, after, change)


def _mean(values: Sequence[float] | None) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _room(value: float, expected: Direction, declared: Mapping[str, Any]) -> float:
    """How far a value can go in the expected direction; endless where it is to stay."""
    if expected == "same":
        return math.inf
    falls = (expected == "worse") == bool(declared["higher_is_better"])
    return float(value - declared["low"] if falls else declared["high"] - value)


def _status(expected: Direction, change: float, limit: float, room: float) -> Status:
    if room <= limit:
        return "at_end"
    if expected == "same":
        return "as_expected" if abs(change) <= limit else "missed"
    return "as_expected" if (change < -limit if expected == "worse" else change > limit) else "missed"
