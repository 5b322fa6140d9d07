"""Score: what a metric says about a case, and ScoreSpec: what a metric declares about its scores before it runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ragpipe.core.settings import Settings

Status = Literal["ok", "skipped", "error"]
Stage = Literal["end_to_end", "retrieval", "generation"]
"""What a score is about: the answer against what was asked for, what was retrieved, or the answer against what was retrieved."""
NO_FACTUAL_CLAIMS = "no_factual_claims"
"""The reason of a score of an answer that states nothing, as a refusal does; it is skipped, or has a value all the same."""


@dataclass(frozen=True, slots=True)
class ScoreSpec:
    """Declaration of one score of a metric.

    `low` and `high` bound the native scale; both None for a count or an unbounded quantity, which is never normalised.
    `binary` says that only 0 and 1 occur (its mean is a rate). `diagnostic` scores are shown but weigh nothing.
    `grades` are those that a judge gives, the best first, each with its lowest value; empty for a share of verdicts, a
    computed score and a scale without steps. `in_class` says that it is 1 where a case is of one class of several: the
    name of the classification and of the class. `choice` says that its values are a win, a tie and a loss: raters agree who chose
    alike. `method` is how it is made where a metric has several ways whose values do not
    compare: a threshold may be of one of them. `metric` is the name of the metric that gives it and `stage` what that is about, set
    where it is configured.
    """

    name: str
    low: float | None = 0.0
    high: float | None = 1.0
    higher_is_better: bool = True
    binary: bool = False
    diagnostic: bool = False
    grades: tuple[tuple[str, float], ...] = ()
    in_class: tuple[str, str] | None = None
    choice: bool = False
    method: str = ""
    metric: str = ""
    stage: Stage = "end_to_end"

    def holds(self, value: float) -> bool:
        """Whether a value lies on the native scale, its ends included; a side without an end holds all."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def passing_from(self, threshold: float | None) -> float | None:
        """The value from which a case passes: the threshold; of a 0/1 score without one its better end."""
        if threshold is None and self.binary:
            return self.high if self.higher_is_better else self.low
        return threshold


def whole_grades(low: float, high: float) -> tuple[tuple[str, float], ...]:
    """The steps of a scale of whole numbers as grades, the best first."""
    return tuple((str(step), float(step)) for step in range(int(high), int(low) - 1, -1))


@dataclass(frozen=True, slots=True)
class Score:
    """One named result of a metric for one case.

    `value` is in the native scale, None unless `status` is `ok`. `reason` is one line: why it was skipped,
    what failed, or the judge's feedback. `details` is plain JSON (claims, verdicts, flags). `name` None means the
    metric's own name. Whether it is good is not said here: scoring adds `score` (0..1) and `passed`.
    """

    value: float | None = None
    name: str | None = None
    status: Status = "ok"
    reason: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status == "ok":
            if isinstance(self.value, bool) or not isinstance(self.value, int | float):
                raise TypeError(f"an ok score needs a number, found {self.value!r}")
            if self.value != self.value or self.value in (float("inf"), float("-inf")):
                raise ValueError(f"a score cannot be {self.value}: give it status `error` or `skipped` with a reason")
        elif self.value is not None:
            raise ValueError(f"a score with status {self.status!r} has no value, found {self.value!r}")


@dataclass(frozen=True, slots=True)
class ScoreColumns:
    """The scores of several cases as columns: each has one entry per score, in the order of `names`, case after case.

    An entry means what it means in `Score`; `details` is None where a score has none. 100,000 cases of 26 scores are 2.6
    million objects of `Score`, and five lists here. Raises ValueError and TypeError for what is no score, as `Score` does.
    """

    names: tuple[str, ...]
    values: Sequence[float | None]
    statuses: Sequence[Status]
    reasons: Sequence[str | None]
    details: Sequence[dict[str, Any] | None]

    def __post_init__(self) -> None:
        lengths = {len(self.values), len(self.statuses), len(self.reasons), len(self.details)}
        if len(lengths) > 1 or len(self.values) != len(self.names) * self.cases:
            raise ValueError(f"columns of {sorted(lengths)} entries are not those of {len(self.names)} scores per case")
        if any((value is None) is (status == "ok") for value, status in zip(self.values, self.statuses, strict=True)):
            raise ValueError("a score has a value where its status is `ok`, and nowhere else")
        if not all(map(math.isfinite, (value for value in self.values if value is not None))):
            raise ValueError("a score is a finite number: give it status `error` or `skipped` with a reason")

    @property
    def cases(self) -> int:
        """The number of cases; 0 where there are no scores."""
        return len(self.values) // max(1, len(self.names))

    @classmethod
    def of(cls, names: tuple[str, ...], rows: Iterable[Sequence[Score]]) -> ScoreColumns:
        """The columns of the scores of each case, which are in the order of `names`."""
        scores = [score for row in rows for score in row]
        return cls(
            names,
            [score.value for score in scores],
            [score.status for score in scores],
            [score.reason for score in scores],
            [score.details or None for score in scores],
        )

    def rows(self) -> list[list[Score]]:
        """The scores of each case."""
        columns = (self.values, self.statuses, self.reasons, self.details)
        scores = [
            Score(value, name, status, reason, details or {})
            for name, value, status, reason, details in zip(self.names * self.cases, *columns, strict=True)
        ]
        width = len(self.names)
        return [scores[place * width : (place + 1) * width] for place in range(self.cases)]

    def with_skipped(self, reasons: Sequence[str | None]) -> ScoreColumns:
        """The columns of more cases: those with a reason are skipped for it, the others are these cases in their order."""
        if not any(reasons):
            return self
        width = len(self.names)
        entries = zip(self.values, self.statuses, self.reasons, self.details, strict=True)
        rows: list[tuple[Any, ...]] = []
        for reason in reasons:
            rows += islice(entries, width) if reason is None else [(None, "skipped", reason, None)] * width
        return ScoreColumns(self.names, *map(list, zip(*rows, strict=True)))


MOST_GRADES = 9
"""Each has a key of its own: 1 to 9."""


def _checked(grades: dict[str, float]) -> dict[str, float]:
    if not 2 <= len(grades) <= MOST_GRADES:
        raise ValueError(f"2 to {MOST_GRADES} grades, found {len(grades)}")
    if not all(name.strip() == name and 0 < len(name) <= 40 for name in grades):
        raise ValueError("names of 1 to 40 characters without blanks around them")
    if not all(map(math.isfinite, grades.values())) or len(set(grades.values())) < len(grades):
        raise ValueError("different finite values")
    return grades


Grades = Annotated[dict[str, float], AfterValidator(_checked)]
"""Grades by name, the best first as a rule, each with its value in the native scale of the score."""


class LabelQuestion(Settings):
    """What a person is asked about a case, and the answers to choose from. No number of a run depends on it."""

    question: str = Field(min_length=1, max_length=500, description="What a person is asked who labels a case.")
    grades: Grades | None = Field(
        default=None, description="Grades by name, with their values. null: by the scale of the score."
    )


WarningKind = Literal[
    "scoring", "verdicts", "language", "coverage", "unfinished", "breakdowns", "not_recorded", "system_errors", "shared_questions",
    "overall_score", "grades", "served_models", "jury", "ids", "silent",
]  # fmt: skip
"""What a warning is about: settings of the scoring, cases without a verdict, answers in a language without rules, judgements that
did not come out or are missing, fields without a breakdown, parts of the outputs that are not recorded, failures of the system,
methods that were asked different questions, a missing overall score, grades that hardly vary or are not weighted, the models that
answered, what the members of a jury disagree on, ids that lead nowhere, values
of answers that state nothing."""


def warnings_about(kind: WarningKind, texts: Iterable[str]) -> list[dict[str, str]]:
    """Warnings of one kind, as `metrics.json` has them: `kind` and `text`."""
    return [{"kind": kind, "text": text} for text in texts]


def warning_texts(metrics: Mapping[str, Any]) -> list[str]:
    """The texts of the warnings of `metrics.json`."""
    return [warning["text"] for warning in metrics["warnings"]]


RULES = "rules-v1"
"""The label of the rules judge: the version of its rules."""


def judge_name(label: str) -> str:
    """The label of a judge; that of rules with the words that no model has read anything."""
    return f"{label}, no model" if label == RULES else label
