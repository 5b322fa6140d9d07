"""A metric without code: criteria, scale and anchors in YAML."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec, whole_grades
from ragpipe.judge.answers import RubricGrade, rubric_grade
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.base import Need
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line
from ragpipe.metrics.shared.multi_reference import ReferenceMetric, by_reference

CasePart = Literal["answer", "contexts", "reference"]
CLARITY = (
    "Clarity: can the person who asked understand and use the answer at once? It comes to the point first, keeps to it, uses "
    "plain words, explains terms that the question does not use, and has an order that can be followed."
)
"""The criteria of conf/metrics/rubric.yaml."""
MOST_STEPS = 10
"""A scale with more steps has no grades that are counted one by one."""
CLARITY_ANCHORS = {
    "1": "cannot be understood, or buries what was asked for",
    "3": "can be used after a second reading; wordy, or in a poor order",
    "5": "clear at the first reading, nothing to leave out",
}


class RubricMetric(ReferenceMetric, JudgeMetric):
    """A grade from `scale[0]` (worst) to `scale[1]` (best) by the `criteria` of the YAML, in one call.

    `shows` names what the judge sees besides the question (answer, contexts, reference); a case without one of them is
    skipped. `anchors` say what single grades mean; null: none, except for the shipped criteria on their scale, which
    have their own. `whole: false` allows halves and tenths. The criteria are fenced: the judge reads them as the
    rubric, not as instructions. `scoring.thresholds.<name>` sets the value from which a case passes. A run can have
    several rubrics under different names.
    """

    version = 2

    grade: Prompt
    criteria: str = Field(min_length=1, description="What is graded, in words. The judge sees it as it is written.")
    scale: list[float] = Field(default=[1.0, 5.0], description="Lowest (worst) and highest (best) grade.")
    whole: bool = Field(default=True, description="Whether only whole grades are allowed.")
    anchors: dict[str, str] | None = Field(
        default=None,
        description=(
            "Meaning of single grades, by grade. null: none, except for the shipped criteria on their scale, "
            "which have their own."
        ),
    )
    shows: list[CasePart] = Field(
        default=["answer"],
        min_length=1,
        description="What the judge sees beside the question. A case without one of them is skipped.",
    )

    @field_validator("scale")
    @classmethod
    def _check_scale(cls, value: list[float]) -> list[float]:
        if len(value) != 2 or not -1e6 <= value[0] < value[1] <= 1e6:
            raise ValueError(f"the lowest and the highest grade, found {value}")
        return value

    @field_validator("anchors", mode="before")
    @classmethod
    def _stringify_keys(cls, value: Any) -> Any:
        """A YAML key may be a number; a finished run stores it as text."""
        return {str(key): text for key, text in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _check_anchors(self) -> RubricMetric:
        low, high = self.scale
        if wrong := [key for key in self.meanings if not re.fullmatch(r"-?\d+(\.\d+)?", key)]:
            raise ValueError(f"anchors are named by numbers, found {wrong}")
        if outside := [key for key in self.meanings if not low <= float(key) <= high]:
            raise ValueError(f"anchors outside the scale {low:g} to {high:g}: {outside}")
        if self.whole and low % 1 + high % 1:
            raise ValueError(f"a scale of whole numbers, or whole: false; found {self.scale}")
        return self

    @property
    def meanings(self) -> dict[str, str]:
        """What single numbers mean."""
        if self.anchors is None and self.scale == [1, 5] and " ".join(self.criteria.split()) == CLARITY:
            return CLARITY_ANCHORS
        return self.anchors or {}

    def scores(self) -> tuple[ScoreSpec, ...]:
        low, high = self.scale
        stepped = low % 1 == high % 1 == 0 and high - low <= MOST_STEPS
        return (ScoreSpec(self.name, low, high, grades=whole_grades(low, high) if stepped else ()),)

    @property
    def uses_references(self) -> bool:
        return "reference" in self.shows

    @property
    def required(self) -> frozenset[Need]:
        return frozenset(self.shows)

    def values(self, case: Case) -> dict[str, Any]:
        parts: dict[str, Any] = {"low": _number(self.scale[0]), "high": _number(self.scale[1]), "whole": self.whole}
        if self.meanings:
            anchors = sorted((float(key), text) for key, text in self.meanings.items())
            parts["anchors"] = [{"value": _number(number), "text": text} for number, text in anchors]
        case_parts = {"answer": case.answer, "contexts": case.contexts, "reference": case.reference}
        parts |= {name: case_parts[name] for name in self.shows}
        return self.prompt_values(self.grade, case, parts, question=case.question, criteria=self.criteria)

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Score:
        reply = await judge(self.grade, self.answer_type("grade"), **self.values(case))
        details = {"feedback": reply.reason, "flags": answer_flags(case.answer)}
        return Score(reply.score, reason=one_line(reply.reason) or None, details=details)

    def answer_type(self, step: str) -> type[RubricGrade]:
        """A grade on the scale of the rubric."""
        return rubric_grade(_number(self.scale[0]), _number(self.scale[1]), self.whole)


def _number(value: float) -> int | float:
    """A whole number without its `.0`, as a person would write it."""
    return value if value % 1 else int(value)
