"""The settings of one gate of `scoring.gates`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ragpipe.core.settings import Settings
from ragpipe.score.dimensions import check_fields, field_labels

Bound = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Label = str | bool | int | float
Tier = Literal["critical", "quality", "diagnostic"]
Part = Literal["data", "judge", "embedder", "prompts", "parser", "metrics", "scoring"]
"""What a run and its baseline must share, unless the gate accepts that it differs."""

OPERATIONS = {
    "latency_ms": "ms",
    "tokens_total": "tokens",
    "cost_usd": "USD",
    "error_rate": "",
    "timeout_rate": "",
    "empty_rate": "",
}
"""Figures of the system under test that a gate may be on in place of a score, each with its unit; lower is better. A rate is a share of
the cases."""
MAX_DROP, MAX_RISE = 0.05, 0.02
"""The drop of a score, and the rise of a failure mode's rate, that a gate against a baseline allows where it names none."""
MIN_WIN_RATE = 0.45
"""The smallest win rate that a gate on a preference allows where it names none."""
MODE_PREFIX = "failure_mode:"
PREFERENCE, ASKED_IN = "preference", ":"
"""The score of a preference run; and what stands between the run that `preference_against` means and the one in which a judge was asked."""
_NOT_OF_A_PREFERENCE = ("score", "failure_mode", "of", "min", "max", "against", "max_drop", "max_rise", "accept", "by")
NO_EARLIER_RUN = "no_earlier_run"
"""What `against: latest` becomes in the first run of a name, where the gate is `without_cases: not_applicable`."""


class Gate(Settings):
    """A limit on one score, or on how often a failure mode occurs, over all cases or those of `where`; or the largest drop of
    a score, or rise of a failure mode's rate, `against` another run, over the cases that both have; or how often a judge must prefer the
    answers of this run to those of another (`preference_against`), as far as it was asked (`task=compare compare.preference=true`).

    `score` may be one of `OPERATIONS`, which has `max` alone: the mean, `p50` or `p95` of an amount by answer, or a rate.
    `of` is what `min` and `max` limit: the share of cases that passed (`pass_rate`, by default for 0/1 scores)
    or the mean of `score`, 0 (worst) to 1 (best) whatever the native scale (`mean`, otherwise; a count's mean is that of
    its values). Beside `failure_mode` there is `max` alone: the largest share of cases that may have it. `where` maps a field to a value or
    several: a case is meant when every field has one of its values. `tier`: `critical` blocks (exit code 3), `quality`
    warns, `diagnostic` is only shown. `by: interval` (the default) passes or fails only when the whole interval does, `by:
    point` goes by the value alone; a limit at the end of the scale is by point, for no interval stays within it.
    `coverage_floor`: under this share of judgements that came out the gate fails; null = `scoring.coverage_floor`.
    `without_cases`: what the gate is where its metric is not in the run, applies to no case, or `latest` is no run yet.
    """

    score: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "Score that the gate is on; or a figure of the system: latency_ms, tokens_total, cost_usd, error_rate, "
            "timeout_rate, empty_rate. null: it is on `failure_mode`."
        ),
    )
    failure_mode: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Failure mode that the gate is on. null: it is on `score`."
    )
    of: Literal["mean", "pass_rate", "p50", "p95"] | None = Field(
        default=None,
        description=(
            "Figure that is compared with the limits. mean: of the cases' scores, 0 (worst) to 1 (best); "
            "pass_rate: share of passed cases. null: pass_rate for 0/1 scores, else mean. p50, p95: percentile of an "
            "amount of the system."
        ),
    )
    min: Bound | None = Field(default=None, description="Smallest value that passes. null: no lower limit.")
    max: Bound | None = Field(
        default=None,
        description="Largest value that passes; of a failure mode the largest share of cases, 0 to 1, that may have it. null: no upper limit.",
    )
    against: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "Run that the score may not drop against, or the failure mode not rise: `latest`, a run id, a name or a folder; the "
            "run records the id that was meant. null: the limits are `min` and `max`."
        ),
    )
    preference_against: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "Run whose answers a judge was asked to compare with these: `latest`, a run id, a name or a folder. null: the gate is on "
            "`score` or `failure_mode`."
        ),
    )
    min_win_rate: Share | None = Field(
        default=None,
        description="Smallest share of these pairs, a tie as half, in which this run's answer is preferred. null: 0.45. Only with `preference_against`.",
    )
    max_drop: Share | None = Field(
        default=None,
        description="Largest drop against that run that passes, 0 to 1 of the scale. null: 0.05. Only with `score` and `against`.",
    )
    max_rise: Share | None = Field(
        default=None,
        description="Largest rise of the failure mode's share against that run that passes, 0 to 1. null: 0.02. Only with `against`.",
    )
    accept: list[Part] = Field(
        default_factory=list,
        description=(
            "What may differ from that run: data, judge, embedder, prompts, parser, metrics, scoring. Default: nothing. "
            "Only with `against`."
        ),
    )
    where: dict[str, Label | Annotated[list[Label], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Values of fields that a case must have to count, one value or a list per field. Default: all cases.",
    )
    tier: Tier = Field(
        default="critical",
        description="What a failed gate does. critical: exit code 3; quality: a warning; diagnostic: it is only shown.",
    )
    by: Literal["interval", "point"] | None = Field(
        default=None,
        description=(
            "interval: the gate passes or fails only when the whole confidence interval does. point: the value "
            "alone decides. null: interval, except for a limit at the end of the scale."
        ),
    )
    coverage_floor: Share | None = Field(
        default=None, description="Coverage, 0 to 1, below which the gate fails. null: `scoring.coverage_floor`."
    )
    without_cases: Literal["fail", "not_applicable"] = Field(
        default="fail",
        description="What the gate is when its metric is not in the run, applies to no case, or `latest` is no run yet.",
    )

    _known_fields = field_validator("where")(check_fields)

    @model_validator(mode="after")
    def _one_limit(self) -> Gate:
        if self.preference_against is not None:
            if beside := [name for name in _NOT_OF_A_PREFERENCE if getattr(self, name) not in (None, [])]:
                raise ValueError(f"`min_win_rate` alone beside `preference_against`, found `{beside[0]}`")
            return self
        if self.min_win_rate is not None:
            raise ValueError("`preference_against` beside `min_win_rate`: the run whose answers are compared with these")
        if (self.score is None) == (self.failure_mode is None):
            raise ValueError("either `score` or `failure_mode`, and not both")
        if self.score in OPERATIONS:
            return self._operation()
        if self.of in ("p50", "p95"):
            raise ValueError(
                "`of: p50` or `p95` beside latency_ms, tokens_total or cost_usd: scores have `mean` and `pass_rate`"
            )
        if self.against is not None:
            return self._change()
        beside = [name for name in ("max_drop", "max_rise", "accept") if getattr(self, name) not in (None, [])]
        if beside:
            raise ValueError(f"`against` beside `{beside[0]}`: the run that it is compared with")
        if self.failure_mode is not None:
            if self.of is not None or self.min is not None:
                raise ValueError("only `max` beside `failure_mode`: `of` and `min` are for scores")
            if self.max is None or not 0 <= self.max <= 1:
                raise ValueError("`max`: the largest share of cases that may have the failure mode, 0 to 1")
            return self
        if self.min is None and self.max is None:
            raise ValueError("a limit: `min`, `max` or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"`min` up to `max`, found {self.min:g} and {self.max:g}")
        return self

    def _operation(self) -> Gate:
        """Itself, a gate on a figure of the system. Raises ValueError for what only gates on scores have."""
        if self.max is None or self.min is not None or self.against is not None:
            raise ValueError(f"`max` alone beside `{self.score}`: lower is better, and it is held against no other run")
        if self.is_rate and (self.of is not None or not 0 <= self.max <= 1):
            raise ValueError(f"`max` of 0 to 1, and no `of`, beside `{self.score}`: it is a share of the cases")
        if self.of == "pass_rate":
            raise ValueError(f"`of: mean`, `p50` or `p95` beside `{self.score}`: no answer passes or fails by it")
        if self.of in ("p50", "p95") and self.by == "interval":
            raise ValueError(f"`by: point` beside `of: {self.of}`: a percentile has no interval here")
        return self

    @property
    def is_rate(self) -> bool:
        """Whether it is on a share of cases for which the system failed or gave nothing."""
        return self.score in OPERATIONS and not OPERATIONS[str(self.score)]

    def _change(self) -> Gate:
        """Itself, a gate against a baseline. Raises ValueError for what only other gates have."""
        allowed, other = ("max_drop", "max_rise") if self.failure_mode is None else ("max_rise", "max_drop")
        if getattr(self, other) is not None:
            kinds = {"max_drop": "a score drops", "max_rise": "a failure mode rises"}
            raise ValueError(f"`{allowed}` beside `against`, found `{other}`: {kinds[allowed]}, {kinds[other]}")
        if self.failure_mode is not None and self.of is not None:
            raise ValueError("no `of` beside `failure_mode`: it is for scores")
        if beside := [name for name in ("min", "max") if getattr(self, name) is not None]:
            raise ValueError(f"`{allowed}` alone beside `against`, found `{beside[0]}`: give the fixed limit a gate of its own")
        if self.by == "point":
            raise ValueError("`by: interval` beside `against`: of two equal runs one is always the lower")
        return self

    @property
    def measure(self) -> str:
        """What it is on as `baseline.parquet` names it: a score, or `failure_mode:` and the name of a failure mode."""
        if self.preference_against is not None:
            return PREFERENCE
        return self.score if self.score is not None else f"{MODE_PREFIX}{self.failure_mode}"

    @property
    def named_run(self) -> str | None:
        """The run that it names: `against` or `preference_against`."""
        return self.against if self.preference_against is None else self.preference_against.partition(ASKED_IN)[0]

    @property
    def baseline(self) -> str | None:
        """The run whose values it needs: the one that it is compared with, of a preference that in which a judge was asked. None for a
        fixed limit, and where there is none."""
        if self.preference_against is not None:
            return self.preference_against.partition(ASKED_IN)[2] or None
        return None if self.against == NO_EARLIER_RUN else self.against

    @property
    def allowed(self) -> dict[str, float]:
        """The largest change against the baseline that passes, by its key: `max_drop`, or `max_rise` of a failure mode."""
        if self.failure_mode is not None:
            return {"max_rise": MAX_RISE if self.max_rise is None else self.max_rise}
        return {"max_drop": MAX_DROP if self.max_drop is None else self.max_drop}

    def identity(self) -> dict[str, Any]:
        """What was given: a key that is added to gates later changes no run that does not use it."""
        return {name: value for name, value in super().identity().items() if value not in (None, {}, [])}

    @property
    def win_rate(self) -> float:
        """The smallest win rate that passes."""
        return MIN_WIN_RATE if self.min_win_rate is None else self.min_win_rate

    def at_the_end(self, *, scaled: bool) -> bool:
        """Whether a limit is one that no interval stays within: at least 1 or at most 0 of what is `scaled` to 0..1."""
        return (scaled or self.failure_mode is not None) and (self.min == 1 or self.max == 0)

    def labels(self) -> dict[str, list[str]]:
        """`where` with every value as the label that breakdowns show: `answerable: false` is `false`."""
        return {field: field_labels(values) for field, values in self.where.items()}
