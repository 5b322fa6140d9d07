"""Is it the right answer to the question, judged by the contexts? 0 to 5, in one call."""

from __future__ import annotations

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec, whole_grades
from ragpipe.judge.answers import Grade05
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line, without_a_word

TOP = 5


class ContextualCorrectnessMetric(JudgeMetric):
    """0 to 5, whole, by how much of what the contexts give in answer is right: 5 all, 4 all but details, 3 at least half
    of what matters, 2 less, 1 only minor points, 0 nothing, or no answer. Version 1 of the template ends in 2 only minor
    points, 1 wrong, 0 no answer.

    It is between `groundedness` (is what it says supported?) and `correctness` (does it say what the reference says?):
    a supported statement that is not the answer is not correct. Where the contexts do not contain the answer, saying
    so is a 5. An answer without a word is 0 and costs no call. Needs contexts, no reference.
    """

    gives = ScoreSpec("", 0, TOP, grades=whole_grades(0, TOP))
    needs = frozenset({"contexts"})
    reads = frozenset({"answer"})

    answer_types = {"grade": (Grade05,)}
    grade: Prompt

    async def measure(self, case: Case, judge: Judge) -> Score:
        if why := without_a_word(case.answer):
            return Score(0, reason=why, details={"feedback": "", "flags": [why]})
        values = self.prompt_values(self.grade, case, contexts=case.contexts, question=case.question, answer=case.answer)
        reply = await judge(self.grade, Grade05, **values)
        details = {"feedback": reply.reason, "flags": answer_flags(case.answer)}
        return Score(reply.score, reason=one_line(reply.reason) or None, details=details)
