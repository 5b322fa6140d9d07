"""Composites: scores that are weighted means of other scores, such as `ragas_score`, and the overall score of a case."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from ragpipe.schema.score import ScoreSpec
from ragpipe.schema.settings import Settings
from ragpipe.scoring.normalisation import ERROR, MISSING, OK, SKIPPED, Column, normalised, pass_fail, weighted_mean

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]

OVERALL = ScoreSpec("overall_score")
NO_PARTS = "no_parts"
PART_ERROR = "part_error"


class Composite(Settings):
    """A score made of other scores: the mean of their `score` (0 worst, 1 best), by `weights`, on `scale`.

    A part that a case does not have (skipped, or no metric of the run gives it) is left out and the weights of the
    others are scaled up for that case. A part that failed is not left out: it makes the composite an `error`.
    """

    weights: dict[str, Weight] = Field(
        min_length=1, description="Weights of the parts, by score name. They are divided by their sum."
    )
    scale: list[float] = Field(
        default=[0.0, 1.0], min_length=2, max_length=2, description="Lowest and highest value: [0, 1] or [0, 100]."
    )

    @field_validator("weights")
    @classmethod
    def _some_weight(cls, weights: dict[str, float]) -> dict[str, float]:
        if not sum(weights.values()) > 0:
            raise ValueError("at least one part with a weight over 0")
        return weights

    @field_validator("scale")
    @classmethod
    def _known_scale(cls, scale: list[float]) -> list[float]:
        if scale not in ([0, 1], [0, 100]):
            raise ValueError("[0, 1] or [0, 100]")
        return scale

    @property
    def parts(self) -> list[str]:
        """Names of the scores that count."""
        return [name for name, weight in self.weights.items() if weight > 0]

    def spec(self, name: str) -> ScoreSpec:
        low, high = self.scale
        return ScoreSpec(name, low, high)


def specs_of(composites: Mapping[str, Composite], specs: Sequence[ScoreSpec]) -> list[ScoreSpec]:
    """The composites that this run has: those with two of their parts among `specs`.

    A mean of a single score is that score under a name that promises more; a composite that has only one part is that one.
    """
    names = {spec.name for spec in specs}
    return [
        composite.spec(name)
        for name, composite in composites.items()
        if len(names.intersection(composite.parts)) >= min(2, len(composite.parts))
    ]


def judged_with(composites: Mapping[str, Collection[str]], judged: Collection[str]) -> set[str]:
    """The scores that depend on a judge: those in `judged`, and each composite (name -> parts) with such a part."""
    return {*judged, *(name for name, parts in composites.items() if set(parts) & set(judged))}


def composite_parts(parts_of: Mapping[str, Sequence[str]], names: Collection[str]) -> dict[str, dict[str, list[str]]]:
    """Of each composite (name -> parts) of which a run with the scores `names` has a part: `measured` and `absent` parts.

    One with absent parts is not quite what its name says, and one with a single part of several is not shown at all.
    """
    by_composite = {
        name: {
            "measured": [part for part in parts if part in names],
            "absent": [part for part in parts if part not in names],
        }
        for name, parts in parts_of.items()
    }
    return {name: parts for name, parts in by_composite.items() if parts["measured"]}


def mean_column(
    parts: Mapping[str, Column], weights: Mapping[str, float], spec: ScoreSpec, threshold: float | None, n: int
) -> Column:
    """The weighted mean of several scores, case by case.

    Args:
        parts: the scores by name.
        weights: their weights by name; a part without one, or with zero, does not count.
        spec: the scale of the result.
        threshold: from which value on a case passes; None for no verdict.
        n: the number of cases.

    `ok` where at least one part with a weight has a score and none failed; `error` (`part_error: <names>`) where one
    failed; not measured yet where one is not; else `skipped` (`no_parts`). A failure is never left out in silence:
    without its hardest part a case would look better than it is.
    """
    used = {name: parts[name] for name, weight in weights.items() if weight > 0 and name in parts}
    mean = weighted_mean({name: column.scores for name, column in used.items()}, weights, n)
    status = np.where(np.isnan(mean), SKIPPED, OK).astype(np.int8)
    for code in (MISSING, ERROR):  # the later one wins
        for column in used.values():
            status[column.status == code] = code
    mean[status != OK] = np.nan
    low, high = spec.low or 0.0, spec.high or 1.0
    values = low + mean * (high - low)
    passed = pass_fail(values, spec, threshold)
    return Column(values, normalised(values, spec), passed, status, _reasons(used, status))


def _reasons(parts: Mapping[str, Column], status: np.ndarray) -> pa.Array:
    reasons: list[str | None] = [None] * len(status)
    for place in np.flatnonzero(status == SKIPPED).tolist():
        reasons[place] = NO_PARTS
    for place in np.flatnonzero(status == ERROR).tolist():
        failed = [name for name, column in parts.items() if column.status[place] == ERROR]
        reasons[place] = f"{PART_ERROR}: {', '.join(failed)}"
    return pa.array(reasons, type=pa.string())
