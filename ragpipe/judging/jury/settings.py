"""The `jury` section: named judges, and how their scores become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from ragpipe.judging.any_judge import AnyJudge
from ragpipe.judging.settings import BudgetSettings, JudgeSettings
from ragpipe.schema.settings import NotInIdentity, Settings

Aggregation = Literal["majority", "mean", "median", "min"]


class MetricJudging(Settings):
    """What one metric does otherwise than the others: `judge` and `aggregation` of its section."""

    judge: str | None = Field(default=None, description="The member that alone judges this metric. null: all members.")
    aggregation: Aggregation | None = Field(
        default=None, description="How the members' scores of this metric become one. null: as `jury.aggregation` says."
    )


class CascadeSettings(Settings):
    """A cheap member for every case, and a dear one where the first is unsure."""

    first: str = Field(description="The member that judges every case.")
    then: str = Field(
        description="The member that judges the cases of which the first is unsure; its score counts there."
    )
    near: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="The value, as a share of the score's range, near which the first member is unsure. Often the threshold.",
    )
    within: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="How near, as a share of the score's range. 0: a value equal to `near` alone.",
    )
    random_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the other cases that both judge, drawn by case: on them the bias of the cascade is measured.",
    )

    @model_validator(mode="after")
    def _two_members(self) -> CascadeSettings:
        if self.first == self.then:
            raise ValueError("two members: `first` and `then` are the same")
        return self


class JurySettings(AnyJudge):
    """The judge of a run with several: the `jury` section, checked. Its members are judges as `judge` describes one."""

    section: ClassVar[str] = "jury"

    kind: Annotated[Literal["jury"], NotInIdentity] = Field(default="jury", description="Several judges.")
    members: dict[str, SerializeAsAny[AnyJudge]] = Field(
        description="The judges by name: `+judge@jury.members.NAME=OPTION jury.members.NAME.model=...`."
    )
    aggregation: Aggregation | None = Field(
        default=None,
        description=(
            "How the members' scores become one: majority, mean, median, or min (the worst of them). null: majority for scores of 0 "
            "and 1, mean for others."
        ),
    )
    min_members: int = Field(
        default=2,
        ge=1,
        le=20,
        description="Members that must give a value; with fewer the score is an error (no_majority).",
    )
    repeats: int = Field(
        default=1, ge=1, le=50, description="How often each member is asked each question. Every repeat is paid for."
    )
    agreement_threshold: Annotated[float, NotInIdentity] = Field(
        default=0.8,
        ge=0,
        le=1,
        description="Agreement of a member with itself over its repeats below which a score is flagged (self_inconsistent).",
    )
    cascade: CascadeSettings | None = Field(
        default=None, description="Ask a dear member only where a cheap one is unsure. null: ask all members."
    )
    budget: Annotated[BudgetSettings, NotInIdentity] = Field(
        default_factory=BudgetSettings, description="What all members together may cost, as `judge.budget`."
    )
    by_metric: dict[str, MetricJudging] = Field(
        default_factory=dict,
        description="What single metrics do otherwise: `metrics.<name>.judge` and `metrics.<name>.aggregation`.",
    )

    @field_validator("members", mode="before")
    @classmethod
    def _read_before(cls, members: Any, info: ValidationInfo) -> Any:
        """Members that were read with the settings of their kinds, where the context holds them."""
        return (info.context or {}).get("members", members)

    @property
    def label(self) -> str:
        """Short printable name."""
        name = f"jury({', '.join(self.members)})" if len(self.members) > 1 else next(iter(self.members.values())).label
        return f"{name} x {self.repeats}" if self.repeats > 1 else name

    def identity_of_judge(self) -> dict[str, Any]:
        """What the scores depend on beside the questions: the members and how their scores become one."""
        members = {name: {"kind": member.kind, **member.identity_of_judge()} for name, member in self.members.items()}
        return {"kind": self.kind, **self.identity(), "members": members}

    def members_of(self, metric: str) -> Sequence[str]:
        """The members that judge a metric."""
        chosen = self.by_metric.get(metric)
        if chosen is not None and chosen.judge is not None:
            return (chosen.judge,)
        return tuple(self.members)

    def cascade_of(self, metric: str) -> CascadeSettings | None:
        """The cascade of a metric; None where one member alone judges it, or there is none."""
        return self.cascade if len(self.members_of(metric)) > 1 else None

    def aggregation_of(self, metric: str) -> Aggregation | None:
        """How the scores of a metric become one; None: by the kind of the score."""
        chosen = self.by_metric.get(metric)
        return chosen.aggregation if chosen is not None and chosen.aggregation else self.aggregation

    @property
    def asked_servers(self) -> dict[str, JudgeSettings]:
        """The members that are language models."""
        return {name: member for name, member in self.members.items() if isinstance(member, JudgeSettings)}

    @property
    def run_deadline_s(self) -> float | None:
        """The shortest of the members' deadlines, for all of them together."""
        return self._shortest("run_deadline_s")

    def _shortest(self, name: str) -> float | None:
        deadlines = (getattr(member, name) for member in self.asked_servers.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)
