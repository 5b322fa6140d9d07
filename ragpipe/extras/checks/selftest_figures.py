"""The figures of a self-test: the share of mutants that each score caught, and how far invariances hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.extras.checks.mutant_outcomes import MutantOutcome
from ragpipe.stats.intervals import Estimate, estimate_rate
from ragpipe.stats.paired_difference import paired_difference


def score_rows(outcomes: Iterable[MutantOutcome]) -> list[dict[str, Any]]:
    """One row for each mutation, score and expected direction, in the order of the outcomes.

    `n` mutants count: those with both values, and with room to move. `as_expected` of them did what is expected; `share` is
    that rate, with its Wilson interval by question. `mean_change` is in units of the range, above 0 where mutants are better,
    with its clustered interval. For a score that must not change `state` says `stays`, or `moves` where that interval excludes
    0 over at least 6 questions that changed.
    """
    groups: dict[tuple[str, str, str], list[MutantOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.mutant.mutation, outcome.score, outcome.expected), []).append(outcome)
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
        "interval": _interval_json(rate),
        "mean_change": paired.difference,
        "state": ("moves" if moves else "stays") if expected == "same" else None,
    }


def rows_by_any_score(outcomes: Iterable[MutantOutcome]) -> list[dict[str, Any]]:
    """One row for each mutation: the share of mutants that at least one score caught, of those that some score could catch."""
    tellers = [outcome for outcome in outcomes if outcome.expected != "same" and outcome.is_judged]
    rows = []
    for mutation in dict.fromkeys(outcome.mutant.mutation for outcome in tellers):
        best: dict[tuple[str, str, int], MutantOutcome] = {}
        for outcome in tellers:
            if outcome.mutant.mutation == mutation and (
                outcome.mutant.mutant not in best or outcome.status == "as_expected"
            ):
                best[outcome.mutant.mutant] = outcome
        judged = list(best.values())
        rate = estimate_rate(_hits(judged), _questions(judged))
        counts = {"n": len(judged), "questions": rate.clusters, "as_expected": int(np.sum(_hits(judged)))}
        rows.append({"mutation": mutation, **counts, "share": rate.mean, "interval": _interval_json(rate)})
    return rows


def _hits(outcomes: Sequence[MutantOutcome]) -> NDArray[np.float64]:
    return np.array([outcome.status == "as_expected" for outcome in outcomes], dtype=np.float64)


def _questions(outcomes: Sequence[MutantOutcome]) -> NDArray[np.int64]:
    """A number for each outcome's question."""
    samples = [outcome.mutant.original[0] for outcome in outcomes]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(samples))}
    return np.array([numbers[name] for name in samples], dtype=np.int64)


def _interval_json(estimate: Estimate) -> dict[str, Any] | None:
    interval = estimate.interval
    if interval is None:
        return None
    return {"level": interval.level, "low": interval.low, "high": interval.high, "too_few": interval.too_few}
