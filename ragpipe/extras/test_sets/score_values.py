"""The values of a score by which cases are drawn: recorded in the log, or measured by a run over it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ragpipe.labelling.population import Population
from ragpipe.schema.sample import several


class ScoreRange(NamedTuple):
    """The lowest and the highest value of the outputs of a record; both NaN without any."""

    low: float
    high: float


NO_SCORE = ScoreRange(math.nan, math.nan)


class ScoreReader(Protocol):
    """Reads the values of a score of one record."""

    def range_of(self, sample_id: str, outputs: Sequence[Mapping[str, Any]]) -> ScoreRange:
        """The range over the outputs."""
        ...


class RecordedValues:
    """The verdicts under `recorded` by this name. Several verdicts of one output count by their mean; between judges, the range
    is that from the lowest to the highest verdict of the output on which they differ most."""

    def __init__(self, name: str, *, between_judges: bool):
        self._name, self._between_judges = name, between_judges

    def range_of(self, sample_id: str, outputs: Sequence[Mapping[str, Any]]) -> ScoreRange:
        """The range over the outputs that have a verdict that is a number."""
        verdicts = [numbers for output in outputs if (numbers := verdict_numbers(output, self._name))]
        if not verdicts:
            return NO_SCORE
        if self._between_judges:
            ranges = [ScoreRange(min(numbers), max(numbers)) for numbers in verdicts]
            return max(ranges, key=lambda values: values.high - values.low)
        means = [sum(numbers) / len(numbers) for numbers in verdicts]
        return ScoreRange(min(means), max(means))


class RunValues:
    """The values that a run gave, by id and method of its cases; the mean over repeats and iterations."""

    def __init__(self, population: Population):
        values: dict[str, dict[str, list[float]]] = {}
        for (sample_id, method, _), value in zip(population.keys, population.values, strict=True):
            values.setdefault(sample_id, {}).setdefault(method, []).append(value)
        self._ranges = {sample_id: _range_over(by_method) for sample_id, by_method in values.items()}

    def range_of(self, sample_id: str, outputs: Sequence[Mapping[str, Any]]) -> ScoreRange:
        """The range over the methods of the run; `outputs` are not looked at."""
        return self._ranges.get(sample_id, NO_SCORE)


def _range_over(by_method: Mapping[str, Sequence[float]]) -> ScoreRange:
    means = [sum(values) / len(values) for values in by_method.values()]
    return ScoreRange(min(means), max(means))


def verdict_numbers(output: Mapping[str, Any], name: str) -> list[float]:
    """The verdicts of an output by this name that are numbers; true and false are 1 and 0."""
    recorded = output.get("recorded")
    value = recorded.get(name) if isinstance(recorded, Mapping) else None
    verdicts = several(value)
    candidates = [value] if verdicts is None else list(verdicts.values())
    return [float(verdict) for verdict in candidates if isinstance(verdict, int | float)]
