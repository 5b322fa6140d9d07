"""From values to scores, passes and the overall score, a column of cases at a time. NaN means no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ragpipe.core.errors import RagpipeError
from ragpipe.core.score import ScoreSpec
from ragpipe.core.settings import Settings
from ragpipe.stats.intervals import Estimate, estimate_mean, estimate_rate

Floats = NDArray[np.float64]
Verdicts = NDArray[np.int8]

UNJUDGED = -1
MISSING, OK, SKIPPED, ERROR = -1, 0, 1, 2
STATUSES = ("ok", "skipped", "error")
# A weighted mean can end some 1e-16 under the threshold that it equals on paper; that is no failure.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Column:
    """One score over consecutive cases. NaN and -1 mean none; `status` is an index of STATUSES."""

    values: Floats
    scores: Floats
    passed: Verdicts
    status: NDArray[np.int8]
    reasons: pa.Array


def check_declared_scale(value: float, spec: ScoreSpec) -> None:
    """Raises RagpipeError for a value outside its declared scale, by more than a rounding: a fault of its metric."""
    if spec.low is None or spec.high is None or spec.low - TOLERANCE <= value <= spec.high + TOLERANCE:
        return
    scale = f"{spec.low:g} to {spec.high:g}"
    raise RagpipeError(f"score {spec.name!r}: {value:g} is outside the scale that its metric declares, {scale}")


def normalised(values: Floats, spec: ScoreSpec) -> Floats:
    """(value - low) / (high - low), turned round when lower is better; all NaN for counts.

    A value outside its declared scale is a fault of its metric and raises RagpipeError: it is never clamped (rounding
    apart: an nDCG of 1 + 1e-16 is 1).
    """
    if spec.low is None or spec.high is None:
        return np.full(len(values), np.nan)
    with np.errstate(invalid="ignore"):
        outside = (values < spec.low - TOLERANCE) | (values > spec.high + TOLERANCE)
    if np.any(outside):
        check_declared_scale(float(values[outside][0]), spec)
    scaled = np.clip((values - spec.low) / (spec.high - spec.low), 0.0, 1.0)
    return scaled if spec.higher_is_better else 1.0 - scaled


def pass_fail(values: Floats, spec: ScoreSpec, threshold: float | None) -> Verdicts:
    """1 passed, 0 failed, -1 not judged (no value or no threshold); the threshold itself passes."""
    verdicts = np.full(len(values), UNJUDGED, dtype=np.int8)
    if threshold is None:
        return verdicts
    measured = ~np.isnan(values)
    good = values >= threshold - TOLERANCE if spec.higher_is_better else values <= threshold + TOLERANCE
    verdicts[measured] = good[measured]
    return verdicts


def weighted_mean(scores: Mapping[str, Floats], weights: Mapping[str, float], n: int) -> Floats:
    """Weighted mean of the scores that each case has; NaN where it has none with a weight.

    Weights are renormalised case by case over what is present: an absent score is neither 0 nor 1.
    """
    total, total_weight = np.zeros(n), np.zeros(n)
    for name, weight in weights.items():  # in the order of the weights, so that the sums have one order
        if weight > 0 and name in scores:
            measured = ~np.isnan(scores[name])
            total[measured] += weight * scores[name][measured]
            total_weight[measured] += weight
    with np.errstate(invalid="ignore"):
        means = total / total_weight
    means[total_weight == 0] = np.nan
    return np.minimum(means, 1.0)  # rounding may leave it a hair above


def estimate_of(values: NDArray[np.float64], samples: NDArray[np.int64], scale: Mapping[str, Any], level: float) -> Estimate:
    """The mean of some values, clustered by question, on the scale that is declared of the score (`declared`)."""
    if scale["binary"]:
        return estimate_rate(values, samples, level=level)
    return estimate_mean(values, samples, level=level, low=scale["low"], high=scale["high"])


def figures_of(mean: Estimate, rate: Estimate) -> dict[str, Any]:
    """`mean` and `interval`; and where anything is judged `pass_rate` and `pass_interval`."""
    figures = {"mean": mean.value, **interval_of("interval", mean)}
    return figures if rate.value is None else {**figures, "pass_rate": rate.value, **interval_of("pass_interval", rate)}


def interval_of(name: str, estimate: Estimate) -> dict[str, Any]:
    """The interval, `too_few` with fewer than 5 questions; or null with the reason beside it."""
    if estimate.interval is None:
        return {name: None, f"{name}_reason": estimate.reason}
    bounds = estimate.interval
    few = {"too_few": True} if bounds.too_few else {}
    return {name: {"low": bounds.low, "high": bounds.high, "method": bounds.method, **few}}


Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]

OVERALL = ScoreSpec("overall_score")


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
    stages = {spec.name: spec.stage for spec in specs}
    found = []
    for name, composite in composites.items():
        measured = {part: stages[part] for part in composite.parts if part in stages}
        if len(measured) >= min(2, len(composite.parts)):
            spec, of_parts = composite.spec(name), set(measured.values())
            found.append(replace(spec, stage=of_parts.pop()) if len(of_parts) == 1 else spec)
    return found


def mean_column(
    parts: Mapping[str, Column], weights: Mapping[str, float], spec: ScoreSpec, threshold: float | None, n: int
) -> Column:
    """The weighted mean of several scores over `n` cases, on the scale of `spec`; a part without a weight does not count. A case
    passes from `threshold` on; None for no verdict.

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
        reasons[place] = "no_parts"
    for place in np.flatnonzero(status == ERROR).tolist():
        failed = [name for name, column in parts.items() if column.status[place] == ERROR]
        reasons[place] = f"part_error: {', '.join(failed)}"
    return pa.array(reasons, type=pa.string())
