"""Which of the retrieved chunks are useful for the question: the question of `context_precision`, asked once for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ragpipe.judging.any_judge import Judge
from ragpipe.metrics.base import PlannedCall
from ragpipe.metrics.shared.batched_verdicts import verdicts_for
from ragpipe.metrics.shared.judge_metric import JudgeMetric
from ragpipe.metrics.shared.multi_reference import ReferenceMetric
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.relevance_answers import ChunkGrade, ChunkGrades
from ragpipe.schema.sample import Case, Chunk


class UsefulnessMetric(ReferenceMetric, JudgeMetric):
    """One call over all chunks gives each a verdict, useful or not, and a relevance from 0 to 100.

    The judge sees the reference answer where the case has one, as in `context_precision`, whose template this is:
    with the same version and examples the question is the same and is asked once for all metrics that ask it.
    """

    answer_types: ClassVar[Mapping[str, tuple[type[Answer], ...]]] = {"grade": (ChunkGrades,)}
    grade: Prompt

    def grade_values(self, case: Case, chunks: Sequence[Chunk], again: bool = False) -> dict[str, Any]:
        parts: dict[str, Any] = {"again": True} if again else {}
        if case.reference:
            parts["reference"] = case.reference
        return self.prompt_values(self.grade, case, parts, contexts=chunks, question=case.question)

    def planned_grades(self, case: Case) -> PlannedCall:
        return PlannedCall(self.grade, ChunkGrades, self.grade_values(case, case.contexts))

    async def grades(self, case: Case, judge: Judge) -> list[ChunkGrade]:
        """One grade for each chunk, in order."""

        async def ask(chunks: list[Chunk], again: bool) -> list[ChunkGrade]:
            return (await judge(self.grade, ChunkGrades, **self.grade_values(case, chunks, again))).verdicts

        return await verdicts_for(case.contexts, ask) if case.contexts else []
