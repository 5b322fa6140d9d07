"""What each score made of each mutant, held against what is expected of it, and the figures of a self-test: `selftest.json`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from ragpipe.config.settings import RunConfig
from ragpipe.extras.checks.changed_cases import ChangedCase, OutputKey, Pair
from ragpipe.extras.checks.check_run import cluster_numbers, interval_json, values_by_output
from ragpipe.extras.checks.mutations import MUTATIONS
from ragpipe.metrics.base import computed_scores
from ragpipe.schema.settings import Settings
from ragpipe.stats.intervals import estimate_rate
from ragpipe.stats.noise_floor import noise_floor
from ragpipe.stats.paired_difference import paired_difference
from ragpipe.stats.student_t import normal_quantile
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json

Direction = Literal["worse", "better", "same"]
Values = Mapping[OutputKey, Sequence[float]]
"""The values of one score: for each output one per iteration that gave one."""
Status = Literal["as_expected", "missed", "at_end", "no_value"]
_HAIR = 1e-9  # of the range: a smaller change is rounding
MUTANTS = pa.schema(
    [
        pa.field(name, kind, metadata={"description": text})
        for name, kind, text in (
            ("sample_id", pa.string(), "id of the sample"),
            ("method", pa.string(), "method of the original output"),
            ("repeat", pa.int64(), "number of the output, from 1"),
            ("mutation", pa.string(), "how it was changed"),
            ("mutant_method", pa.string(), "method of the mutant: <method>~<mutation>"),
            ("before", pa.string(), "what the original says at the changed place"),
            ("after", pa.string(), "what the mutant says there"),
            ("in_reference", pa.bool_(), "whether what was changed stands in a reference answer"),
        )
    ]
)


class Expectation(Settings):
    """What scores must do when a case is changed in one way. Each entry is a name of a score, or a pattern such as `recall@*`.

    Worse and better are meant by the direction of the score: a lower one is better where the score says so.
    """

    worse: list[str] = Field(default_factory=list, description="Scores that must become worse. Default: none.")
    worse_in_reference: list[str] = Field(
        default_factory=list,
        description="Scores that must become worse where what was changed stands in a reference answer. Default: none.",
    )
    better: list[str] = Field(default_factory=list, description="Scores that must become better. Default: none.")
    same: list[str] = Field(default_factory=list, description="Scores that must not change. Default: none.")


def expected_direction(score: str, expectation: Expectation | None, *, in_reference: bool) -> Direction | None:
    """What a score must do about a mutant; None where nothing is expected. `in_reference`: see `Edit`."""
    if expectation is None:
        return None
    worse = [*expectation.worse, *(expectation.worse_in_reference if in_reference else ())]
    directions: Mapping[Direction, Iterable[str]] = {
        "worse": worse,
        "better": expectation.better,
        "same": expectation.same,
    }
    matches = (way for way, names in directions.items() if any(fnmatchcase(score, name) for name in names))
    return next(matches, None)


@dataclass(frozen=True, slots=True)
class MutantOutcome:
    """What one score made of one mutant.

    `status`: `as_expected`, `missed`, `at_end` where the original is at the end of the scale already and cannot become worse
    (or better), `no_value` where the original or the mutant has none. `change` is mutant less original in units of the scale's
    range, above 0 where the mutant is better.
    """

    score: str
    mutant: Pair
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
    mutants: Sequence[Pair],
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
        expected = expected_direction(score, expectations.get(mutant.name), in_reference=mutant.in_reference)
        if expected is None:
            continue
        before, after = _mean(values.get(mutant.base)), _mean(values.get(mutant.changed))
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


def score_rows(outcomes: Iterable[MutantOutcome]) -> list[dict[str, Any]]:
    """One row for each mutation, score and expected direction, in the order of the outcomes.

    `n` mutants count: those with both values, and with room to move. `as_expected` of them did what is expected; `share` is
    that rate, with its Wilson interval by question. `mean_change` is in units of the range, above 0 where mutants are better,
    with its clustered interval. For a score that must not change `state` says `stays`, or `moves` where that interval excludes
    0 over at least 6 questions that changed.
    """
    groups: dict[tuple[str, str, str], list[MutantOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.mutant.name, outcome.score, outcome.expected), []).append(outcome)
    return [_row(*key, group) for key, group in groups.items()]


def _row(mutation: str, score: str, expected: str, outcomes: Sequence[MutantOutcome]) -> dict[str, Any]:
    judged = [outcome for outcome in outcomes if outcome.is_judged]
    counts = {
        name: sum(outcome.status == name for outcome in outcomes) for name in ("as_expected", "at_end", "no_value")
    }
    row = {"mutation": mutation, "score": score, "expected": expected, "n": len(judged), **counts}
    if not judged:
        return {**row, "questions": 0, "share": None, "interval": None, "mean_change": None, "state": None}
    questions = _questions(judged)
    rate = estimate_rate(_hits(judged), questions)
    changes = np.array([outcome.change for outcome in judged], dtype=np.float64)
    paired = paired_difference(np.zeros(len(changes)), changes, questions)
    moves = paired.can_decide and paired.interval is not None and not paired.interval.low <= 0 <= paired.interval.high
    return {
        **row,
        "questions": rate.clusters,
        "share": rate.mean,
        "interval": interval_json(rate.interval),
        "mean_change": paired.difference,
        "state": ("moves" if moves else "stays") if expected == "same" else None,
    }


def rows_by_any_score(outcomes: Iterable[MutantOutcome]) -> list[dict[str, Any]]:
    """One row for each mutation: the share of mutants that at least one score caught, of those that some score could catch."""
    tellers = [outcome for outcome in outcomes if outcome.expected != "same" and outcome.is_judged]
    rows = []
    for mutation in dict.fromkeys(outcome.mutant.name for outcome in tellers):
        best: dict[tuple[str, str, int], MutantOutcome] = {}
        for outcome in tellers:
            if outcome.mutant.name == mutation and (
                outcome.mutant.changed not in best or outcome.status == "as_expected"
            ):
                best[outcome.mutant.changed] = outcome
        judged = list(best.values())
        rate = estimate_rate(_hits(judged), _questions(judged))
        counts = {"n": len(judged), "questions": rate.clusters, "as_expected": int(np.sum(_hits(judged)))}
        rows.append({"mutation": mutation, **counts, "share": rate.mean, "interval": interval_json(rate.interval)})
    return rows


def _hits(outcomes: Sequence[MutantOutcome]) -> NDArray[np.float64]:
    return np.array([outcome.status == "as_expected" for outcome in outcomes], dtype=np.float64)


def _questions(outcomes: Sequence[MutantOutcome]) -> NDArray[np.int64]:
    """A number for each outcome's question."""
    return cluster_numbers(outcome.mutant.base[0] for outcome in outcomes)


def mutants_table(mutants: Sequence[ChangedCase]) -> pa.Table:
    """One row per mutant: where it comes from, and the two texts that differ."""
    return pa.Table.from_pylist([_origin(mutant) for mutant in mutants], schema=MUTANTS)


def _origin(mutant: ChangedCase) -> dict[str, Any]:
    assert mutant.edit is not None
    return {
        **dict(zip(("sample_id", "method", "repeat"), mutant.pair.base, strict=True)),
        "mutation": mutant.pair.name,
        "mutant_method": mutant.pair.changed[1],
        "before": mutant.edit.before,
        "after": mutant.edit.after,
        "in_reference": mutant.edit.in_reference,
    }


def selftest_figures(
    folder: RunFolder,
    config: RunConfig,
    mutants: Sequence[ChangedCase],
    expectations: Mapping[str, Expectation],
    *,
    tolerance: float,
) -> dict[str, Any]:
    """The figures of `selftest.json`.

    Args:
        folder: the run over originals and mutants, scored.
        config: its configuration.
        mutants: the mutants.
        expectations: what is expected, by mutation.
        tolerance: see `case_floor`.

    Raises DataError for a table of the run that cannot be read.
    """
    outcomes: list[MutantOutcome] = []
    floors: dict[str, CaseFloor] = {}
    for name, declared in read_json(folder.final.metrics)["declared"].items():
        if declared["low"] is None or declared["high"] is None:
            continue
        values = values_by_output(folder, name)
        floors[name] = case_floor(values, span=declared["high"] - declared["low"], tolerance=tolerance)
        outcomes += score_outcomes(name, values, [m.pair for m in mutants], declared, expectations, floors[name])
    order = {mutation.name: place for place, mutation in enumerate(MUTATIONS)}
    outcomes.sort(key=lambda outcome: order[outcome.mutant.name])
    tried = {outcome.score for outcome in outcomes}
    return {
        "mutations": _mutation_rows(mutants),
        "computed_scores": sorted(tried & computed_scores(config.metrics.values())),
        "noise_floor": {name: {"limit": f.limit, "source": f.source} for name, f in floors.items() if name in tried},
        "caught_by_any": rows_by_any_score(outcomes),
        "scores": score_rows(outcomes),
        "missed": _missed_rows(outcomes, {mutant.pair.changed: mutant for mutant in mutants}),
    }


def _mutation_rows(mutants: Sequence[ChangedCase]) -> list[dict[str, Any]]:
    """What each mutation does, and how many mutants of how many questions there are; also where it applied to no case."""
    samples = {m.name: [mutant.pair.base[0] for mutant in mutants if mutant.pair.name == m.name] for m in MUTATIONS}
    return [
        {"name": m.name, "what": m.what, "mutants": len(samples[m.name]), "questions": len(set(samples[m.name]))}
        for m in MUTATIONS
    ]


def _missed_rows(outcomes: Sequence[MutantOutcome], mutants: Mapping[OutputKey, ChangedCase]) -> list[dict[str, Any]]:
    """One entry per mutant that some score missed, with the scores that did; scores that were to stay and moved are among them."""
    rows: dict[OutputKey, dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.status != "missed":
            continue
        key = outcome.mutant.changed
        row = rows.get(key)
        if row is None:
            row = rows[key] = {k: v for k, v in _origin(mutants[key]).items() if k != "in_reference"} | {"scores": {}}
        row["scores"][outcome.score] = {
            "expected": outcome.expected,
            "value": outcome.value,
            "mutant_value": outcome.mutant_value,
        }
    return list(rows.values())
