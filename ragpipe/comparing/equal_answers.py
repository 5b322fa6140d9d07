"""Two runs with the same answers: where their judgements differ, the judge moved and not the system."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.comparing.pairing import Pairs, same_answers
from ragpipe.comparing.side import Side
from ragpipe.stats.paired_difference import FEWEST_CHANGED, paired_difference

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class EqualAnswers:
    """The pairs of two runs that were judged alike, and which of them have the same question, answer and chunks."""

    def __init__(self, base: Side, candidate: Side, pairs: Pairs):
        self._sides = base, candidate
        self._pairs = pairs

    def of(self, name: str) -> Flags | None:
        """The pairs with the same answer in which a judge alone can have changed a score; None for one that no judge decides.

        Of a composite these are the pairs whose other parts, those that no judge decides, are equal too. It is none where the two
        are weighted otherwise.
        """
        base, candidate = self._sides
        if base.folder == candidate.folder:
            return None
        if name in self._judged:
            return self._same
        parts = [side.metrics["composite_parts"].get(name, {}).get("measured", []) for side in self._sides]
        weights = [[side.metrics["scoring"].get(key) for key in ("weights", "composites")] for side in self._sides]
        if not self._judged.intersection(parts[0]) or parts[0] != parts[1] or weights[0] != weights[1]:
            return None
        same = self._same.copy()
        for part in parts[0]:
            if part not in self._judged:
                before, after = base.values(part)[0], candidate.values(part)[0]
                same &= _equal(before[self._pairs.base], after[self._pairs.candidate])
        return same

    @cached_property
    def _same(self) -> Flags:
        return same_answers(*self._sides, self._pairs)

    @cached_property
    def _judged(self) -> set[str]:
        side = self._sides[1]
        metrics: Mapping[str, Any] = side.manifest["identity"]["metrics"]
        return {name for name, score in side.declared.items() if metrics.get(score["metric"], {}).get("prompts")}


def _equal(before: Floats, after: Floats) -> Flags:
    equal: Flags = (before == after) | (np.isnan(before) & np.isnan(after))
    return equal


def judge_moved(base: Floats, candidate: Floats, questions: NDArray[np.int64], level: float) -> bool:
    """Whether equal answers got other values by more than a judge's noise: at least 6 questions changed, and a mean difference of 0 is
    excluded. All three arrays are of the pairs with the same answer."""
    paired = paired_difference(base, candidate, questions, level=level)
    p_value = 1.0 if paired.p_value is None else paired.p_value
    return paired.changed >= FEWEST_CHANGED and p_value <= 1 - level
