"""Correctness, completeness and consistency compared with a reference, as one weighted mean with a letter grade."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, field_validator

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import FactualAccuracy, ThreeCriteria
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import (
    JudgeMetric,
    Weights,
    answer_flags,
    explain_weighted_mean,
    one_line,
    without_a_word,
)
from ragpipe.metrics.shared.multi_reference import ReferenceMetric, by_reference

Part = Literal["correctness", "completeness", "consistency"]
PARTS: tuple[Part, ...] = ("correctness", "completeness", "consistency")
TOP = 100


class FactualAccuracyMetric(ReferenceMetric, JudgeMetric):
    """0.5 correctness + 0.3 completeness + 0.2 consistency, 0 to 100 each. `weights` changes the weighted mean
    (divided by the sum of the weights) and `grades` the letters, both without a new question. The mean is calculated
    here, never by the model.

    One call; the judge reasons about each criterion before it grades it. Facts on which the reference is silent count
    neither way. The criteria are diagnostic scores `<name>_<criterion>`. The details hold the reasoning, the letter (A
    from 80 on, B 60, C 40, D 20, else E), and with version 1 of the template the judge's confidence (0 to 100).
    An answer without a word is 0 and costs no call: not answering is the finding. Contexts play no part. With
    `references: all` each reference has its own letter. Needs a reference. Source: G-Eval (arXiv 2303.16634).
    """

    version = 2
    needs = frozenset({"reference"})
    reads = frozenset({"answer"})
    answer_types = {"grade": (FactualAccuracy, ThreeCriteria)}

    grade: Prompt
    weights: Weights[Part] = Field(
        default={"correctness": 0.5, "completeness": 0.3, "consistency": 0.2},
        description=(
            "Weights of the three parts of the score. They are divided by their sum; changing them asks no new question."
        ),
    )
    grades: dict[str, float] = Field(
        default={"A": 80, "B": 60, "C": 40, "D": 20, "E": 0},
        description="Letter grades from best to worst, each with its lowest value (0 to 100); the last one is 0.",
    )

    @field_validator("grades")
    @classmethod
    def _check_grades(cls, value: dict[str, float]) -> dict[str, float]:
        bounds = list(value.values())
        if not bounds or bounds[-1] != 0 or not all(TOP >= a > b for a, b in pairwise(bounds)):
            raise ValueError(f"grades are named from the best down, each with its lowest value, the last 0; found {value}")
        return value

    def scores(self) -> tuple[ScoreSpec, ...]:
        parts = (ScoreSpec(f"{self.name}_{part}", 0, TOP, diagnostic=True) for part in PARTS)
        return (ScoreSpec(self.name, 0, TOP, grades=tuple(self.grades.items())), *parts)

    def letter(self, value: float) -> str:
        """The first grade whose lowest value is reached."""
        return next(letter for letter, lowest in self.grades.items() if value >= lowest)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        if score != self.name or "criteria" not in details:
            return None
        criteria = details["criteria"]
        mean = explain_weighted_mean((weight, f"{criteria[part]['score']:g}", part) for part, weight in self.weights.items())
        return f"{mean}; {details['grade']}"

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        if why := without_a_word(case.answer):
            details: dict[str, Any] = {"grade": self.letter(0), "flags": [why]}
            first, *others = self.scores()
            return [Score(0.0, first.name, reason=why, details=details), *(Score(0.0, o.name, reason=why) for o in others)]
        values = {"question": case.question, "reference": case.reference, "answer": case.answer}
        reply: Any = await judge(self.grade, self.answer_type("grade"), **self.prompt_values(self.grade, case, **values))
        criteria = {part: getattr(reply, part) for part in PARTS}
        value = self.weighted_mean({part: criteria[part].score for part in PARTS})
        details = {
            "grade": self.letter(value),
            **reply.model_dump(include={"confidence"}),
            "feedback": reply.reason,
            "criteria": {part: {"score": grade.score, "reasoning": grade.reasoning} for part, grade in criteria.items()},
            "flags": answer_flags(case.answer),
        }
        reason = one_line(reply.reason)
        parts = (
            Score(grade.score, f"{self.name}_{part}", reason=one_line(grade.reasoning) or None)
            for part, grade in criteria.items()
        )
        return [Score(value, self.name, reason=f"{details['grade']}: {reason}".rstrip(": "), details=details), *parts]

    def weighted_mean(self, scores: Mapping[Part, float]) -> float:
        """The weighted mean of the criteria. Rounded to 1e-9, so that 80 in all three is exactly 80, and an A."""
        total = math.fsum(self.weights.values())
        return round(math.fsum(weight * scores[part] for part, weight in self.weights.items()) / total, 9)
