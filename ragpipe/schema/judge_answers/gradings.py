"""The answers that a judge can give about accuracy, classes, noise, sufficiency, nuggets, relevance, rubrics and tone.

See `answers.py` for how they are read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from ragpipe.schema.judge_answers.answers import Answer, Flag, Integer, Number, Quote

Percent = Annotated[Number, Field(ge=0, le=100)]


class Criterion(Answer):
    """A grade from 0 to 100 on one criterion, with the reasoning before it."""

    reasoning: str = ""
    score: Percent


class FactualAccuracy(Answer):
    """Three criteria of an answer held against a reference, and how sure the judge is, 0 to 100. No sum: that is ours."""

    correctness: Criterion
    completeness: Criterion
    consistency: Criterion
    reason: str = ""
    confidence: Percent


class AnswerClass(Answer):
    """Whether an answer says what the reference says."""

    reason: str = ""
    verdict: Literal["CORRECT", "WRONG"]


class ClaimCheck(Answer):
    """Whether claim number `index` (from 1) is right by the reference answer."""

    index: Integer
    reason: str = ""
    correct: Flag


class ClaimChecks(Answer):
    """One verdict per claim asked about; completeness is checked by the metric, never padded."""

    verdicts: list[ClaimCheck]


class ClaimOrigin(Answer):
    """The numbers (from 1) of the contexts that state claim number `index` (from 1); empty when none does."""

    index: Integer
    reason: str = ""
    contexts: list[Integer]


class ClaimOrigins(Answer):
    """One finding per claim asked about; completeness is checked by the metric, never padded."""

    verdicts: list[ClaimOrigin]


class Sufficiency(Answer):
    """Whether the contexts suffice to answer the question, and what is missing where they do not."""

    missing: list[str]
    reason: str = ""
    verdict: Literal["sufficient", "partial", "insufficient"]


class Nugget(Answer):
    """An atomic fact that a good answer holds: `vital` (it must) or `okay` (it may)."""

    nugget: str
    importance: Literal["vital", "okay"]


class Nuggets(Answer):
    """The nuggets of a text, the most important first; empty when it has none."""

    nuggets: list[Nugget]


class NuggetSupport(Answer):
    """How far an answer holds nugget number `index` (from 1)."""

    index: Integer
    reason: str = ""
    support: Literal["support", "partial_support", "not_support"]


class NuggetSupports(Answer):
    """One finding per nugget asked about; completeness is checked by the metric, never padded."""

    verdicts: list[NuggetSupport]


class PassageGrade(Answer):
    """How relevant passage number `index` (from 1) is to the question, 0 to 3."""

    index: Integer
    reason: str = ""
    grade: Annotated[Integer, Field(ge=0, le=3)]


class PassageGrades(Answer):
    """One grade per passage asked about; completeness is checked by the metric, never padded."""

    verdicts: list[PassageGrade]


class RubricGrade(Answer):
    """A grade on the scale of a rubric, with the findings before it. `rubric_grade` gives the type with the scale's bounds."""

    reason: str = ""
    score: Number


class Tone(Answer):
    """Whether an answer keeps a tone, with the passage that breaks it ('' when none does)."""

    evidence: Quote = ""
    reason: str = ""
    kept: Flag


@lru_cache(maxsize=64, typed=True)  # 1 and 1.0 are equal, and are written differently into a schema and so into a key
def rubric_grade(low: float, high: float, whole: bool) -> type[RubricGrade]:
    """The type of a grade from `low` to `high`, whole numbers only or any number."""
    number: Any = Annotated[Integer if whole else Number, Field(ge=low, le=high)]
    return create_model("RubricGrade", __base__=RubricGrade, __module__=__name__, score=(number, ...))
