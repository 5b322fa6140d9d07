"""Do the retrieved contexts give what the question needs? 0 to 1, in one call with a verdict for each chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragpipe.core.sample import Case, Chunk
from ragpipe.core.score import Score
from ragpipe.judge.answers import ChunkVerdict
from ragpipe.judge.answers import ContextRelevance as Grade
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, one_line, verdicts_for


class ContextRelevanceMetric(JudgeMetric):
    """How far the contexts together give what the question needs: 1 everything, 0 nothing. The judge's overall grade.

    The same call gives each chunk a verdict, relevant or not; the details hold them, with relevant / total. A grade
    that contradicts them (0 with a relevant chunk, above 0 without one) is flagged `grade_contradicts_verdicts`. Where
    a verdict is missing or repeated, the judge is asked about all chunks again, and the grade is that of the reply
    that judged all of them. The answer plays no part. No contexts: 0, `no_context_retrieved`, without a call: finding
    nothing is the finding. Needs no reference.
    """

    reads = frozenset({"contexts"})
    answer_types = {"grade": (Grade,)}
    grade: Prompt

    async def measure(self, case: Case, judge: Judge) -> Score:
        if not case.contexts:
            return Score(0.0, reason="no_context_retrieved", details=_details([], []))
        replies: list[Grade] = []

        async def ask(chunks: list[Chunk], again: bool) -> list[ChunkVerdict]:
            values = self.prompt_values(self.grade, case, again=again, contexts=chunks, question=case.question)
            replies.append(await judge(self.grade, Grade, **values))
            return replies[-1].verdicts

        verdicts = await verdicts_for(case.contexts, ask, ask_all_again=True)
        reply = replies[-1]
        details = _details(case.contexts, verdicts)
        if (reply.score > 0) != (details["relevant"] > 0):
            details["flags"].append("grade_contradicts_verdicts")
        return Score(reply.score, reason=one_line(reply.reason) or None, details=details)


def _details(chunks: Sequence[Chunk], verdicts: Sequence[ChunkVerdict]) -> dict[str, Any]:
    rows = [
        {"chunk": chunk.id, "rank": chunk.rank, "relevant": verdict.relevant, "reason": verdict.reason}
        for chunk, verdict in zip(chunks, verdicts, strict=True)
    ]
    return {"chunks": rows, "relevant": sum(v.relevant for v in verdicts), "total": len(rows), "flags": []}
