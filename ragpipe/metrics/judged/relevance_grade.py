"""How relevant each retrieved passage is to the question, 0 to 3, as TREC assessors grade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from ragpipe.core.sample import Case, Chunk
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import PassageGrade, PassageGrades
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, verdicts_in_batches

TOP = 3


class RelevanceGradeMetric(JudgeMetric):
    """Mean grade of the passages, 0 to 3: 3 dedicated to the question with the exact answer, 2 some answer, 1 related,
    0 not.

    `<name>_share`: passages with a grade of at least `relevant_from` (2) / all. `batch` passages per call; with
    `batch: 1` each is graded alone, as UMBRELA does. The details hold the grade of each passage, which can serve as a
    label (`gains`) of a later run. The judge sees neither reference nor answer. No contexts: 0,
    `no_context_retrieved`, without a call. Needs no reference. Source: UMBRELA (arXiv 2406.06519).
    """

    reads = frozenset({"contexts"})
    answer_types = {"grade": (PassageGrades,)}
    grade: Prompt
    batch: int = Field(default=10, ge=1, description="Passages per judge call, 1 or more.")
    relevant_from: int = Field(
        default=2,
        ge=1,
        le=TOP,
        description=(
            "Grade, 1 to 3, from which a passage counts in `relevance_grade_share`. Changing it asks no new question."
        ),
    )

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, 0, TOP), ScoreSpec(f"{self.name}_share"))

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        grades = [row["grade"] for row in details.get("chunks", ())]
        if not grades:
            return None
        if score == self.name:
            return f"({' + '.join(str(grade) for grade in grades)}) / {len(grades)} passages"
        return f"{details['relevant']} graded {details['relevant_from']} or more / {len(grades)} passages"

    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        async def ask(part: list[Chunk], again: bool) -> list[PassageGrade]:
            values = self.prompt_values(self.grade, case, again=again, contexts=part, question=case.question)
            return (await judge(self.grade, PassageGrades, **values)).verdicts

        grades = await verdicts_in_batches(case.contexts, self.batch, ask)
        rows = [
            {"chunk": chunk.id, "rank": chunk.rank, "grade": verdict.grade, "reason": verdict.reason}
            for chunk, verdict in zip(case.contexts, grades, strict=True)
        ]
        relevant = sum(verdict.grade >= self.relevant_from for verdict in grades)
        mean = sum(verdict.grade for verdict in grades) / len(grades) if grades else 0.0
        share = relevant / len(grades) if grades else 0.0
        details = {"chunks": rows, "relevant": relevant, "relevant_from": self.relevant_from, "flags": []}
        reason = f"{relevant} of {len(rows)} passages are graded {self.relevant_from} or more"
        if not rows:
            reason = "no_context_retrieved"
        return (
            Score(mean, self.name, reason=reason, details=details),
            Score(share, f"{self.name}_share", reason=reason, details=details),
        )
