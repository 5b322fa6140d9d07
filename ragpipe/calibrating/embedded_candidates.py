"""The embedded judge with other settings, over the labelled cases: what each would have said. Asks nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.judging.heuristic.heuristic_judge import HeuristicJudge
from ragpipe.judging.heuristic.settings import HeuristicSettings, OverlapWeights
from ragpipe.judging.vector_replies import Floats as Vector
from ragpipe.judging.vector_replies import TokenMatch
from ragpipe.metrics.base import Metric, run_skip_reason
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.sample import Case

A = TypeVar("A", bound=Answer)
Floats = NDArray[np.float64]
OVERLAPS = ("recall", "window", "bigrams", "lcs")
THRESHOLDS = tuple(round(0.15 + 0.05 * step, 2) for step in range(11))
"""0.15 to 0.65."""


def candidates_of(settings: HeuristicSettings) -> list[HeuristicSettings]:
    """The settings to try, those in use first: every threshold with all four overlaps, with one of them, and with any three."""
    tried = [settings]
    for size in (4, 1, 3):
        for names in combinations(OVERLAPS, size):
            weights = None if size == 4 else OverlapWeights(**{name: float(name in names) for name in OVERLAPS})
            tried += [settings.model_copy(update={"overlap_weights": weights, "threshold": t}) for t in THRESHOLDS]
    return list(dict.fromkeys(tried))


def values_of(metric: Metric, score: str, cases: Sequence[Case], candidates: Sequence[HeuristicSettings]) -> Floats:
    """The value of a score of each case (a row) by each candidate (a column); NaN where there is none."""
    return asyncio.run(_values(metric, score, cases, [_EmbeddedJudge(settings) for settings in candidates]))


async def _values(metric: Metric, score: str, cases: Sequence[Case], judges: Sequence[_EmbeddedJudge]) -> Floats:
    values = np.full((len(cases), len(judges)), np.nan)
    for row, case in enumerate(cases):
        if run_skip_reason(metric, case, embedder=False) is None:
            for column, judge in enumerate(judges):
                values[row, column] = await _value(metric, score, case, judge)
    return values


async def _value(metric: Metric, score: str, case: Case, judge: _EmbeddedJudge) -> float:
    try:
        measured = await metric.measure(case, judge)
    except (Skipped, JudgeError):
        return np.nan
    results = [measured] if not isinstance(measured, Sequence) else measured
    values = [result.value for result in results if (result.name or metric.name) == score]
    return np.nan if not values or values[0] is None else values[0]


class _EmbeddedJudge:
    """The embedded judge as a metric sees it."""

    def __init__(self, settings: HeuristicSettings):
        self._judge = HeuristicJudge(settings)

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A:
        return self._judge.answer(prompt, answer, values)

    async def embed(self, texts: Sequence[str], /) -> list[Vector]:
        raise Skipped("no_embedder")

    def was_truncated(self, text: str, /) -> bool:
        return False

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        raise Skipped("no_embedder")
