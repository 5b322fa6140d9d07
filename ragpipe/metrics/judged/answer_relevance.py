"""Does the answer answer what was asked? 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import AnswerRelevance, DirectRelevance, GeneratedQuestions
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.judge.vectors import cosine
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line, without_a_word


class AnswerRelevanceMetric(JudgeMetric):
    """1: answers the question directly and completely; 0: does not answer it.

    `method: direct`: the judge's overall grade, in one call that sees question and answer only. Whether the answer is
    true plays no part. The details hold the other findings of the reply: addresses the question, on topic, and with
    version 1 of the template completeness from 0 to 1. An answer that only declines is 0, whether declining is right or wrong. A grade above 0
    for an answer that does not address the question is flagged `grade_contradicts_findings`.

    `method: questions`: the judge writes `n` questions that the answer would answer, without seeing the real one. The
    value is the mean cosine of their vectors with its vector; a negative cosine counts as 0. It needs an embedder.
    Where the judge writes no question (an answer that declines), `direct` is used and flagged
    `no_questions_generated`. Values of the two methods are on one scale but not comparable: a cosine of 0.6 can be a
    good one, and the shipped threshold is for `direct`. Source: RAGAS (arXiv 2309.15217).

    An answer without a word is 0 in both and costs no call: not answering is the finding. Needs no reference.
    """

    reads = frozenset({"answer"})
    answer_types = {"direct": (AnswerRelevance, DirectRelevance), "questions": (GeneratedQuestions,)}

    direct: Prompt
    questions: Prompt | None = None
    method: Literal["direct", "questions"] = Field(
        default="direct",
        description=(
            "direct: the judge grades question and answer. questions: the judge writes questions that the answer "
            "would answer, whose vectors are compared with the real question's (needs an embedder)."
        ),
    )
    n: int = Field(default=3, ge=1, le=10, description="Number of questions to write with `method: questions`, 1 to 10.")

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, method=self.method),)

    @classmethod
    def unused_steps(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        return frozenset() if parameters.get("method") == "questions" else frozenset({"questions"})

    @property
    def needs_embedder(self) -> bool:
        return self.method == "questions"

    def values(self, case: Case) -> dict[str, Any]:
        return self.prompt_values(self.direct, case, question=case.question, answer=case.answer)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        rows = details.get("questions")
        if not rows:
            return None
        terms = " + ".join(f"{max(0.0, row['cosine']):.4f}" for row in rows)
        return f"({terms}) / {len(rows)} = {value:.4f}"

    async def measure(self, case: Case, judge: Judge) -> Score:
        if why := without_a_word(case.answer):
            return Score(0.0, reason=why, details={"flags": [why]})
        if self.questions is None:
            return await self._graded(case, judge, [])
        values = self.prompt_values(self.questions, case, answer=case.answer, n=self.n)
        reply = await judge(self.questions, GeneratedQuestions, **values)
        written = [one_line(text) for text in reply.questions if any(c.isalnum() for c in text)][: self.n]
        if not written:
            return await self._graded(case, judge, ["no_questions_generated"])
        return await self._compared(written, case, judge)

    async def _compared(self, written: list[str], case: Case, judge: Judge) -> Score:
        real, *vectors = await judge.embed([case.question, *written])
        cosines = [cosine(real, vector) for vector in vectors]
        rows = [{"question": text, "cosine": similarity} for text, similarity in zip(written, cosines, strict=True)]
        value = math.fsum(max(0.0, similarity) for similarity in cosines) / len(cosines)
        flags = [*answer_flags(case.answer), *(["fewer_questions"] if len(rows) < self.n else [])]
        reason = f"mean cosine of {len(rows)} questions that the answer would answer"
        return Score(value, reason=reason, details={"questions": rows, "flags": flags})

    async def _graded(self, case: Case, judge: Judge, flags: list[str]) -> Score:
        reply: Any = await judge(self.direct, self.answer_type("direct"), **self.values(case))
        details: dict[str, Any] = reply.model_dump(include={"addresses_question", "on_topic", "completeness", "reason"})
        details["flags"] = [*answer_flags(case.answer), *flags]
        if reply.score > 0 and not reply.addresses_question:
            details["flags"].append("grade_contradicts_findings")
        return Score(reply.score, reason=one_line(reply.reason) or None, details=details)
