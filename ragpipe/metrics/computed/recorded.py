"""Verdicts of people or other judges in the data set, as scores beside our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from ragpipe.core.sample import UNREADABLE, Case, is_unreadable, several
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.settings import Settings
from ragpipe.metrics.base import Computed

Combine = Literal["mean", "median", "majority", "min", "max"]
Finite = Annotated[float, Field(allow_inf_nan=False)]

TOLERANCE = 1e-6  # of a verdict beyond its scale: a share that another tool computed in single precision

_RULES: dict[str, Callable[[list[float]], float]] = {"mean": fmean, "median": median, "min": min, "max": max}


class RecordedScore(Settings):
    """One score: which recorded value it is, its scale, and how several verdicts are combined."""

    model_config = ConfigDict(serialize_by_alias=True)

    source: str | None = Field(
        default=None,
        alias="from",
        min_length=1,
        description=("Name of the recorded value in the data, or `name.part` for a part of it. null: the name of the score."),
    )
    low: Finite | None = Field(
        default=0.0, description="Lowest value of the scale. null, together with `high`: a count without a scale."
    )
    high: Finite | None = Field(
        default=1.0, description="Highest value of the scale. null, together with `low`: a count without a scale."
    )
    higher_is_better: bool = Field(default=True, description="Whether a high value is a good one.")
    binary: bool = Field(default=False, description="Whether the score is 0 or 1 only. Needs the scale 0 to 1.")
    diagnostic: bool = Field(
        default=True, description="Whether the score only explains others and is not shown among the main results."
    )
    combine: Combine = Field(default="mean", description="How several recorded verdicts on one answer become one value.")
    if_empty: Finite | None = Field(
        default=None, description="Value of an empty list of verdicts, on the scale. null: such a case is skipped."
    )

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, values: Any) -> Any:
        names = [field.alias or name for name, field in cls.model_fields.items()]
        for key in values if isinstance(values, dict) else ():
            if key not in names:
                raise ValueError(f"keys of {', '.join(names)}; there is no {key!r}")
        return values

    @model_validator(mode="after")
    def _check_scale(self) -> RecordedScore:
        if (self.low is None) != (self.high is None):
            raise ValueError("`low` and `high` both, or both null for a count")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"`low` below `high`, found {self.low:g} and {self.high:g}")
        if self.binary and (self.low, self.high) != (0, 1):
            raise ValueError("a binary score from 0 to 1")
        if self.if_empty is not None and self.off_scale(self.if_empty):
            raise ValueError(f"`if_empty` on the scale, found {self.if_empty:g}")
        return self

    def off_scale(self, value: float) -> bool:
        """Whether the value is outside the scale by more than a rounding."""
        value = self.on_scale(value)
        return self.low is not None and self.high is not None and not self.low <= value <= self.high

    def on_scale(self, value: float) -> float:
        """The value, moved to the end of the scale where it is outside by no more than a rounding (`TOLERANCE`)."""
        if self.low is None or self.high is None:
            return value
        nearest = min(max(value, self.low), self.high)
        return nearest if abs(value - nearest) <= TOLERANCE else value


class RecordedMetric(Computed):
    """Verdicts in the data set (`recorded` of an output): labels by people, scores of another judge.

    Each entry of `take` is a score of its name: `from` the recorded value (default: the same name; `name.part` is one of
    several: an annotator's, or by its place in a list from 1), `low` and `high` its scale (both null: a count),
    `higher_is_better`, `binary` (only 0 and 1), `diagnostic` (true: shown, weighs nothing), `combine` for a value of
    several verdicts (mean, median, min, max, or majority: what more than half of them say), `if_empty` the value of an
    empty list (null: skipped `no_verdicts`).

    No verdict is skipped `not_recorded`; among several, null ones are left out. No majority is skipped `no_majority`. A
    verdict that is unreadable or off its scale makes the score an error: it never counts as 0 and is never left out of a
    mean. A value up to 1e-6 outside the scale is a rounding and counts as the end of the scale.
    """

    reads_cells = True

    take: dict[str, RecordedScore] = Field(
        default_factory=dict, description="The recorded values to use as scores, by score name. Default: none."
    )

    def scores(self) -> tuple[ScoreSpec, ...]:
        return tuple(
            ScoreSpec(name, t.low, t.high, t.higher_is_better, t.binary, t.diagnostic) for name, t in self.take.items()
        )

    def skip_reason(self, case: Case) -> str | None:
        recorded = case.output.recorded
        names = (spec.source or name for name, spec in self.take.items())
        return None if any(recorded_value(recorded, name) is not None for name in names) else "not_recorded"

    def compute(self, cases: Sequence[Case]) -> Sequence[Sequence[Score]]:
        return [[_score(name, spec, case.output.recorded) for name, spec in self.take.items()] for case in cases]


def _score(name: str, spec: RecordedScore, recorded: Mapping[str, Any]) -> Score:
    value = recorded_value(recorded, spec.source or name)
    parts = several(value)
    details = {} if parts is None else {"verdicts": value}
    if parts == {}:
        if spec.if_empty is not None:
            return Score(spec.if_empty, name, reason="no verdicts: `if_empty`", details=details)
        return Score(name=name, status="skipped", reason="no_verdicts", details=details)
    verdicts = {part: verdict for part, verdict in ({"": value} if parts is None else parts).items() if verdict is not None}
    if not verdicts:
        return Score(name=name, status="skipped", reason="not_recorded", details=details)
    faults = (_fault(part, verdict, spec) for part, verdict in verdicts.items())
    if fault := next(filter(None, faults), None):
        return Score(name=name, status="error", reason=fault, details={"verdicts": value})
    return _combined_score(name, spec, list(verdicts.values()), value, details)


def _combined_score(name: str, spec: RecordedScore, verdicts: list[Any], recorded: Any, details: dict[str, Any]) -> Score:
    value = _combine([spec.on_scale(float(verdict)) for verdict in verdicts], spec.combine)
    if value is None:
        return Score(name=name, status="skipped", reason="no_majority", details=details)
    if spec.binary and value not in (0, 1):
        reason = f"not_binary: {value!r} is neither 0 nor 1"
        return Score(name=name, status="error", reason=reason, details={"verdicts": recorded})
    return Score(value, name, details=details)


def recorded_value(recorded: Mapping[str, Any], name: str) -> Any:
    """The recorded value of this name; of several verdicts the one named after a dot. Names may hold dots themselves."""
    if name in recorded:
        return recorded[name]
    for dot in (place for place, sign in enumerate(name) if sign == "."):
        parts = several(recorded.get(name[:dot])) or {}
        if name[dot + 1 :] in parts:
            return parts[name[dot + 1 :]]
    return None


def _fault(part: str, verdict: Any, spec: RecordedScore) -> str | None:
    """Why a verdict gives no value, None when it does. Reports count faults by the text before the colon."""
    whose = f" ({part})" if part else ""
    if is_unreadable(verdict):
        return f"unreadable: {verdict[UNREADABLE][:100]!r}{whose}"
    if spec.off_scale(verdict):
        return f"off_scale: {verdict!r} is not within {spec.low:g} to {spec.high:g}{whose}"
    return None


def _combine(values: list[float], rule: Combine) -> float | None:
    if rule == "majority":
        value, votes = Counter(values).most_common(1)[0]
        return value if 2 * votes > len(values) else None
    return _RULES[rule](values)
