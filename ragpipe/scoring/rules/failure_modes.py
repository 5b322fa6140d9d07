"""Failure modes: in which ways cases went wrong, by the rules of `scoring.failure_modes`, and how often.

A case can have several. A mode whose rule asks for scores that the run does not have is not applicable: it is listed as
such and has no count, which is not the same as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.scoring.growing_columns import GrowingArray
from ragpipe.scoring.rules.conditions import Rule, Truth
from ragpipe.scoring.rules.rule_inputs import Facts

Places = NDArray[np.int64]


def find_modes(rules: Mapping[str, Rule | None], facts: Facts) -> dict[str, Truth]:
    """The truth of each applicable rule for each case of a block; from then on they are in `facts.modes`."""
    for name, rule in rules.items():
        truth = None if rule is None else rule.holds(facts)
        if truth is not None:
            facts.modes[name] = truth
    return facts.modes


class TruthLedger:
    """The truths of some rules over all cases so far: a byte for each rule and case."""

    def __init__(self, names: Iterable[str]):
        self.names = list(names)
        self._columns: dict[str, GrowingArray[np.int8]] = {}
        self.truths: dict[str, Truth] = {}

    def add(self, truths: Mapping[str, Truth]) -> None:
        for name, truth in truths.items():
            self._columns.setdefault(name, GrowingArray(np.int8)).add(truth)

    def close(self) -> None:
        """To be called after the last block; `truths` holds the applicable rules from now on, in the order of the names."""
        self.truths = {name: self._columns[name].array() for name in self.names if name in self._columns}

    @property
    def not_applicable(self) -> list[str]:
        """The rules that asked for scores the run does not have."""
        return [name for name in self.names if name not in self.truths]


def mode_counts(truths: Mapping[str, Truth], failed: NDArray[np.bool_], places: Places) -> dict[str, Any]:
    """How often each mode occurs among the cases at `places`, with the denominators.

    `n_with_failure_mode` are the cases with at least one mode, `n_failure_modes` the modes of all cases together,
    `n_failed_without_mode` the cases that failed a score but match no failure mode. Of each mode `n` cases have it, `n_judged` is for
    how many its rule could be decided.
    """
    chosen = {name: truth[places] for name, truth in truths.items()}
    any_mode = np.zeros(len(places), dtype=np.bool_)
    for truth in chosen.values():
        any_mode |= truth == 1
    counts = {name: int(np.count_nonzero(truth == 1)) for name, truth in chosen.items()}
    return {
        "n_with_failure_mode": int(np.count_nonzero(any_mode)),
        "n_failure_modes": sum(counts.values()),
        "n_failed_without_mode": int(np.count_nonzero(failed[places] & ~any_mode)),
        "failure_modes": {
            name: {"n": n, "n_judged": int(np.count_nonzero(chosen[name] >= 0))} for name, n in counts.items()
        },
    }


def listed(truths: Mapping[str, Truth], names: Sequence[str], n: int) -> pa.Array:
    """For each of `n` cases the rules that are true, in the order of `names`."""
    active = [name for name in names if name in truths]
    if not active:
        return pa.array([[]] * n, type=pa.list_(pa.string()))
    holds = np.stack([truths[name] == 1 for name in active], axis=1)
    offsets = np.concatenate([[0], np.cumsum(holds.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(active).take(pa.array(np.nonzero(holds)[1])))


def share(part: int, total: int) -> float | None:
    """Part of whole, 0 to 1; None when there is no whole."""
    return part / total if total else None
