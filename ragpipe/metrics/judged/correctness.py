"""How relevant and correct the answer is, compared with a reference answer: 1 to 5 in one call."""

from __future__ import annotations

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec, whole_grades
from ragpipe.judge.answers import Grade15
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line, without_a_word
from ragpipe.metrics.shared.multi_reference import ReferenceMetric, by_reference


class CorrectnessMetric(ReferenceMetric, JudgeMetric):
    """1 to 5 by how much of what matters is right, halves and tenths allowed: 1 nothing, 2 less than half, 3 at least
    half, 4 all but details, 5 right and complete. What is missing is not right.

    Version 1 of the template has the scale in the words of its source: 1 irrelevant, 2 mistakes, 3 incomplete, 4 mostly
    correct. Its points overlap (`prompts: {grade: v1}`).

    Contexts play no part. An answer without a word is 1 and costs no call: not answering is the finding. Needs a
    reference. Source: LlamaIndex's correctness evaluator.
    """

    gives = ScoreSpec("", 1, 5, grades=whole_grades(1, 5))
    version = 2
    needs = frozenset({"reference"})
    reads = frozenset({"answer"})

    answer_types = {"grade": (Grade15,)}
    grade: Prompt

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Score:
        if why := without_a_word(case.answer):
            return Score(1.0, reason=why, details={"feedback": "", "flags": [why]})
        values = {"question": case.question, "reference": case.reference, "answer": case.answer}
        reply = await judge(self.grade, Grade15, **self.prompt_values(self.grade, case, **values))
        details = {"feedback": reply.reason, "flags": answer_flags(case.answer)}
        return Score(reply.score, reason=one_line(reply.reason) or None, details=details)
