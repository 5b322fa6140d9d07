"""The `jury` section: named judges, and how their scores become one."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from ragpipe.core.sample import CaseKey
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.settings import NotInIdentity, Settings
from ragpipe.core.source_hashes import SourceHashes
from ragpipe.judge.question import AnyJudge
from ragpipe.judge.settings import BudgetSettings, JudgeSettings

if TYPE_CHECKING:
    from ragpipe.judge.session import JudgeSession

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
    then: str = Field(description="The member that judges the cases of which the first is unsure; its score counts there.")
    near: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="The value, as a share of the score's range, near which the first member is unsure. Often the threshold.",
    )
    within: float = Field(
        default=0.25, ge=0, le=1, description="How near, as a share of the score's range. 0: a value equal to `near` alone."
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
        default=2, ge=1, le=20, description="Members that must give a value; with fewer the score is an error (no_majority)."
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

    def sources(self) -> SourceHashes:
        parts = [member.sources() for member in self.members.values()]
        hashes = {name: digest for part in parts for name, digest in part.sources.items()}
        return SourceHashes(hashes, tuple(note for part in parts for note in part.notes))

    def members_of(self, metric: str) -> Sequence[str]:
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


NO_MAJORITY = "no_majority"
SELF_INCONSISTENT = "self_inconsistent"


def rule_of(spec: ScoreSpec, rule: Aggregation | None) -> Aggregation:
    """The rule for a score: the one that was chosen, else majority for scores of 0 and 1, mean for others.

    Means of graded members have the smallest error where the members' errors are not shared, medians lose; a worst score is biased
    downwards on purpose (docs/judges.md).
    """
    return rule or ("majority" if spec.binary or spec.in_class else "mean")


def one_value(values: Sequence[float], rule: Aggregation, *, higher_is_better: bool = True) -> float | None:
    """The one value of several, at least one. `min` is the worst of them. None where no value has a majority: where the most
    frequent one is not the only one.
    """
    if rule == "majority":
        (value, count), *others = Counter(values).most_common(2)
        return None if others and others[0][1] == count else value
    if rule == "mean":
        return fmean(values)
    if rule == "median":
        return float(median(values))
    return min(values) if higher_is_better else max(values)


def agreement_of(values: Sequence[float], spec: ScoreSpec) -> float | None:
    """How far values agree, 0 to 1: one minus the mean distance of all pairs, as a share of the range; for 0 and 1, and for a score
    without a range, the share of equal pairs. None for fewer than two."""
    pairs = list(combinations(values, 2))
    if not pairs:
        return None
    if spec.low is None or spec.high is None or spec.high == spec.low:
        return fmean(a == b for a, b in pairs)
    return 1 - fmean(abs(a - b) for a, b in pairs) / (spec.high - spec.low)


def combine(
    spec: ScoreSpec, opinions: Mapping[str, Sequence[Score]], *, rule: Aggregation | None, min_members: int, threshold: float
) -> Score:
    """One score of the scores of the same case by several members: repeats of a member become its one value, then the values
    of all one, by `rule` (None: by the kind of the score). Where all skip for the same reason, so does the jury. With fewer
    values than `min_members`, or than there are members, and where verdicts are tied, the score is an error (`no_majority`).
    `details["jury"]` has the rule, what each member says, and how far they agree; a member that agrees with itself below
    `threshold` is flagged. Where a member has the very value of the jury, its own details are beside it."""
    rule = rule_of(spec, rule)
    members = {name: _opinion(spec, scores, rule) for name, scores in opinions.items()}
    values = {name: score.value for name, score in members.items() if score.value is not None}
    jury: dict[str, Any] = {
        "rule": rule,
        "members": {
            name: {"status": score.status, "reason": score.reason} if score.value is None else {"value": score.value}
            for name, score in members.items()
        },
        **_agreements(spec, list(values.values()), opinions, threshold),
    }
    words = {name: score.status if score.value is None else f"{score.value:g}" for name, score in members.items()}
    opinions_text = ", ".join(f"{name} {word}" for name, word in words.items())
    reasons = {score.reason for score in members.values() if score.status == "skipped"}
    if not values and len(reasons) == 1 and all(score.status == "skipped" for score in members.values()):
        return Score(None, spec.name, "skipped", reasons.pop(), {"jury": jury})
    needed = min(min_members, len(members))
    if len(values) < needed:
        return _no_majority(spec, jury, f"{len(values)} of {needed} needed members gave a value ({opinions_text})")
    value = one_value(list(values.values()), rule, higher_is_better=spec.higher_is_better)
    if value is None:
        return _no_majority(spec, jury, f"a tie ({opinions_text})")
    speaker = next((members[name] for name, its in values.items() if its == value), None)
    details = {**speaker.details, "jury": jury} if speaker else {"jury": jury}
    if len(members) == 1 and speaker:
        return Score(value, spec.name, "ok", speaker.reason, details)
    return Score(value, spec.name, "ok", f"{rule} of {opinions_text}", details)


def _agreements(
    spec: ScoreSpec, values: Sequence[float], opinions: Mapping[str, Sequence[Score]], threshold: float
) -> dict[str, Any]:
    agreements: dict[str, Any] = {}
    if (agreement := agreement_of(values, spec)) is not None:
        agreements["agreement"] = round(agreement, 6)
    repeated = {name: [score.value for score in scores if score.value is not None] for name, scores in opinions.items()}
    consistency = {name: share for name, its in repeated.items() if (share := agreement_of(its, spec)) is not None}
    if consistency:
        agreements["self_consistency"] = {name: round(share, 6) for name, share in consistency.items()}
        if min(consistency.values()) < threshold:
            agreements["flags"] = [SELF_INCONSISTENT]
    return agreements


def _opinion(spec: ScoreSpec, scores: Sequence[Score], rule: Aggregation) -> Score:
    """The one score of a member, of its repeats; where none gave a value, the first of them."""
    values = [score.value for score in scores if score.value is not None]
    if len(scores) == 1 or not values:
        return scores[0]
    value = one_value(values, rule, higher_is_better=spec.higher_is_better)
    if value is None:
        return Score(None, spec.name, "error", f"{NO_MAJORITY}: its repeats are tied", {"kind": NO_MAJORITY})
    speaker = next((score for score in scores if score.value == value), None)
    return speaker or Score(value, spec.name, "ok", f"{rule} of {len(values)} repeats")


def _no_majority(spec: ScoreSpec, jury: dict[str, Any], why: str) -> Score:
    return Score(None, spec.name, "error", f"{NO_MAJORITY}: {why}", {"kind": NO_MAJORITY, "jury": jury})


@dataclass(frozen=True)
class Jury:
    """The settings of a jury, and the session of each member by name."""

    settings: JurySettings
    sessions: Mapping[str, JudgeSession]

    def members_of(self, metric: str) -> dict[str, JudgeSession]:
        return {name: self.sessions[name] for name in self.settings.members_of(metric)}


def is_unsure(cascade: CascadeSettings, spec: ScoreSpec, score: Score) -> bool:
    """Whether the first member of a cascade is unsure of a score: it lies near the chosen value, or is an error. A score without a
    range is never near anything."""
    if score.status == "error":
        return True
    if score.value is None or spec.low is None or spec.high is None:
        return False
    share = (score.value - spec.low) / (spec.high - spec.low)
    return abs(share - cascade.near) <= cascade.within + 1e-9


def is_drawn(cascade: CascadeSettings, case: CaseKey, metric: str) -> bool:
    """Whether both members judge a case of which the first is sure: drawn by what names the case, so that every start draws the
    same."""
    text = f"{case.sample_id}\n{case.method}\n{case.repeat}\n{metric}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) < cascade.random_share * 2**64
