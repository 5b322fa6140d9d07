"""Two independent grades in one call: is the answer true to the contexts, and does it explain why they fit the need?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec, whole_grades
from ragpipe.judge.answers import AxisGrade, TwoAxes
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.base import Prefix
from ragpipe.metrics.shared.context_metric import NOTHING_RETRIEVED, ContextMetric
from ragpipe.metrics.shared.judge_metric import answer_flags, one_line, without_a_word

FAITHFULNESS = {5: "Perfect", 4: "Mostly True", 3: "Mixed", 2: "Mostly False", 1: "Completely False"}
COMPLETENESS = {5: "Excellent Bridging", 4: "Good Explanation", 3: "Descriptive Only", 2: "Weak", 1: "Fail"}


class AnswerSynthesisMetric(ContextMetric):
    """`answer_faithfulness` and `answer_completeness`, 1 to 5 each, and their mean `synthesis_overall`.

    Faithfulness: how much of what matters in the answer the contexts support (5 everything, 4 all but details, 3 at least
    half, 2 less, 1 nothing). Completeness: whether the answer says why its content fits (5 a reason for everything, 4 for
    most, or general ones, 3 described without reasons, 2 hardly described, 1 names alone); how much it covers plays no
    part. Version 1 of the template has the words of the source.

    One call grades both axes independently: an answer can be persuasive and invented, or true and useless. The details
    hold the rubric's label. The judge does not see an answer without a word: it explains nothing (completeness 1) and
    claims nothing (faithfulness skipped). `prefix` is put before the three names.

    Nothing retrieved: faithfulness is 1 without a call, because nothing supports what the answer states; completeness
    and the mean are skipped (`no_context_retrieved`). An answer that only declines, by `patterns`, is skipped
    (`no_claims`), and so is one without a word.
    """

    version = 2
    needs = frozenset()
    reads = frozenset({"contexts", "answer"})

    answer_types = {"grade": (TwoAxes,)}
    grade: Prompt
    prefix: Prefix = ""

    def scores(self) -> tuple[ScoreSpec, ...]:
        axes = ("answer_faithfulness", "answer_completeness")
        graded = (ScoreSpec(self.prefix + name, 1, 5, grades=whole_grades(1, 5)) for name in axes)
        return (*graded, ScoreSpec(f"{self.prefix}synthesis_overall", 1, 5))

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        true, complete, overall = (spec.name for spec in self.scores())
        return f"the mean of {true} and {complete}" if score == overall and not details.get("flags") else None

    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        true, complete, overall = (spec.name for spec in self.scores())
        if not case.contexts:
            return await self._without_contexts(case)
        if why := without_a_word(case.answer):
            label = {"label": COMPLETENESS[1], "flags": [why]}
            return (
                Score(name=true, status="skipped", reason=why),
                Score(1.0, complete, reason=why, details=label),
                Score(1.0, overall, reason=why, details={"flags": [why]}),
            )
        values = self.prompt_values(self.grade, case, contexts=case.contexts, question=case.question, answer=case.answer)
        reply = await judge(self.grade, TwoAxes, **values)
        flags = answer_flags(case.answer)
        return (
            _axis(true, reply.faithfulness, FAITHFULNESS, flags),
            _axis(complete, reply.completeness, COMPLETENESS, flags),
            Score((reply.faithfulness.score + reply.completeness.score) / 2, overall, details={"flags": flags}),
        )

    async def _without_contexts(self, case: Case) -> Sequence[Score]:
        """Nothing was retrieved: what the answer states is made up, and there is nothing whose fit it could explain."""
        names = [spec.name for spec in self.scores()]
        why = without_a_word(case.answer) or await self.no_claims(case)
        if why:
            return [Score(name=name, status="skipped", reason=why) for name in names]
        details = {"label": FAITHFULNESS[1], "flags": [*answer_flags(case.answer), NOTHING_RETRIEVED]}
        made_up = Score(1.0, names[0], reason=NOTHING_RETRIEVED, details=details)
        return [made_up, *(Score(name=name, status="skipped", reason=NOTHING_RETRIEVED) for name in names[1:])]


def _axis(name: str, grade: AxisGrade, labels: dict[int, str], flags: list[str]) -> Score:
    details = {"label": labels[round(grade.score)], "flags": flags}  # a weighted grade has the label of the nearest
    return Score(grade.score, name, reason=one_line(grade.reason) or None, details=details)
