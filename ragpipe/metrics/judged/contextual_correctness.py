"""Is it the right answer to the question, judged by the contexts? 0 to 5, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ragpipe.judging.any_judge import Judge
from ragpipe.metrics.base import Need, PlannedCall
from ragpipe.metrics.shared.injection_flags import answer_flags, one_line
from ragpipe.metrics.shared.judge_metric import JudgeMetric, without_a_word
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.grade_answers import Grade05
from ragpipe.schema.sample import Case, OutputPart
from ragpipe.schema.score import Score, ScoreSpec, whole_grades

TOP = 5


class ContextualCorrectnessMetric(JudgeMetric):
    """0 to 5, whole, by how much of what the contexts give in answer is right: 5 all, 4 all but details, 3 at least half
    of what matters, 2 less, 1 only minor points, 0 nothing, or no answer. Version 1 of the template ends in 2 only minor
    points, 1 wrong, 0 no answer.

    It is between `groundedness` (is what it says supported?) and `correctness` (does it say what the reference says?):
    a supported statement that is not the answer is not correct. Where the contexts do not contain the answer, saying
    so is a 5. An answer without a word is 0 and costs no call. Needs contexts, no reference.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"contexts"})
    reads: ClassVar[frozenset[OutputPart]] = frozenset({"answer"})

    answer_types: ClassVar[Mapping[str, tuple[type[Answer], ...]]] = {"grade": (Grade05,)}
    grade: Prompt

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, 0, TOP, grades=whole_grades(0, TOP)),)

    def values(self, case: Case) -> dict[str, Any]:
        return self.prompt_values(self.grade, case, contexts=case.contexts, question=case.question, answer=case.answer)

    def planned_calls(self, case: Case) -> Iterable[PlannedCall]:
        if not without_a_word(case.answer):
            yield PlannedCall(self.grade, Grade05, self.values(case))

    async def measure(self, case: Case, judge: Judge) -> Score:
        if why := without_a_word(case.answer):
            return Score(0, reason=why, details={"feedback": "", "flags": [why]})
        reply = await judge(self.grade, Grade05, **self.values(case))
        details = {"feedback": reply.reason, "flags": answer_flags(case.answer)}
        return Score(reply.score, reason=one_line(reply.reason) or None, details=details)
