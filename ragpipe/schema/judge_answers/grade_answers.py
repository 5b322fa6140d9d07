"""Grades of an answer as a whole: YES or NO, classes, points, rubrics, several criteria or axes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, create_model

from ragpipe.schema.judge_answers.answer_type import Answer, Integer, Number, Percent
from ragpipe.schema.text_forms import OPPOSITE, other_grades, read_grade, read_verdict


class YesNo(Answer):
    """YES or NO by the *first word* of the reply, as `read_verdict` says; anything else is NEITHER.

    A search for "yes" would read "NO. I first thought YES" as YES.
    """

    form: ClassVar[Literal["json", "text"]] = "text"
    verdict: Literal["YES", "NO", "NEITHER"]
    text: str = ""

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(verdict=read_verdict(text) or "NEITHER", text=text)

    @classmethod
    def from_object(cls, value: Mapping[str, Any], prose: str) -> Self | None:
        """By those texts of the object that are YES or NO and nothing else; the prose must not say the opposite."""
        texts = (item for item in value.values() if isinstance(item, str))
        words = {text.strip(" \n.!*").upper() for text in texts} & OPPOSITE.keys()
        if not words:
            return None
        verdicts = words | ({read_verdict(prose)} - {None})
        verdict = verdicts.pop() if len(verdicts) == 1 else "NEITHER"
        return cls.model_validate({"verdict": verdict, "text": str(value.get("reason") or prose.strip())})

    @property
    def yes(self) -> bool:
        return self.verdict == "YES"


class AnswerClass(Answer):
    """Whether an answer says what the reference says."""

    reason: str = ""
    verdict: Literal["CORRECT", "WRONG"]


class Grade15(Answer):
    """A grade from 1 to 5, halves and tenths allowed, with the reasons for it.

    The plain-text form has the number alone on the first line (`4.5`, `Score: 4.5`, `**4**`, `4/5`, `4 out of 5`) and the
    feedback after it. `4,5`, a number out of range and two different numbers are refused.
    """

    reason: str = ""
    score: Annotated[Number, Field(ge=1, le=5)]

    @classmethod
    def from_text(cls, text: str) -> Self:
        head, _, rest = text.strip().partition("\n")
        score = read_grade(head)
        if score is None:
            raise ValueError(f"expected a number from 1 to 5 alone on the first line, found {head[:80]!r}")
        if grades := other_grades(rest, score):
            raise ValueError(f"two different scores, {score:g} and {grades[0]:g}")
        return cls(score=score, reason=rest.strip())


class Grade05(Answer):
    """A whole grade from 0 to 5 with the reasons for it."""

    reason: str = ""
    score: Annotated[Integer, Field(ge=0, le=5)]


class Groundedness(Answer):
    """How well the contexts bear the answer, 0 to 5, with the claims on either side."""

    supported_claims: list[str]
    unsupported_claims: list[str]
    major_claims_cited: Annotated[bool, Field(strict=True)] | None = None
    reason: str = ""
    score: Annotated[Integer, Field(ge=0, le=5)]


class AxisGrade(Answer):
    """A whole grade from 1 to 5 on one axis."""

    reason: str = ""
    score: Annotated[Integer, Field(ge=1, le=5)]


class TwoAxes(Answer):
    """Two independent grades from one reply: grounded in the context, and explains why the content fits the need."""

    faithfulness: AxisGrade
    completeness: AxisGrade


class Criterion(Answer):
    """A grade from 0 to 100 on one criterion, with the reasoning before it."""

    reasoning: str = ""
    score: Percent


class FactualAccuracy(Answer):
    """Three criteria of an answer compared with a reference, and how sure the judge is, 0 to 100. The metric adds them up."""

    correctness: Criterion
    completeness: Criterion
    consistency: Criterion
    reason: str = ""
    confidence: Percent


class ThreeCriteria(Answer):
    """Three criteria of an answer compared with a reference, and one sentence on all of them. The metric adds them up."""

    correctness: Criterion
    completeness: Criterion
    consistency: Criterion
    reason: str = ""


class RubricGrade(Answer):
    """A grade on the scale of a rubric, with the findings before it. `rubric_grade` gives the type with the scale's bounds."""

    reason: str = ""
    score: Number


@lru_cache(maxsize=64, typed=True)  # 1 and 1.0 are equal, and are written differently into a schema and so into a key
def rubric_grade(low: float, high: float, integers_only: bool) -> type[RubricGrade]:
    """The type of a grade from `low` to `high`, whole numbers only or any number."""
    number: Any = Annotated[Integer if integers_only else Number, Field(ge=low, le=high)]
    return create_model("RubricGrade", __base__=RubricGrade, __module__=__name__, score=(number, ...))
