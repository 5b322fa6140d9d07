"""How many of the retrieved chunks are useful for the question, and how early do they come? One call over all chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.sample import Case, Chunk
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import ChunkGrade, ChunkVerdict
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.context_metric import UsefulnessMetric
from ragpipe.metrics.shared.multi_reference import by_reference

TOP = 100


class ContextPrecisionMetric(UsefulnessMetric):
    """Relevant chunks among the retrieved ones, 0 to 100. `method` chooses which of two aggregations is the score.

    `mean`: relevant chunks / chunks. `ranked`: the sum over the ranks k of rel_k x (relevant among the first k / k),
    divided by the number of relevant chunks (0 without one): relevant chunks count more the earlier they come. Both
    are always stored as diagnostic scores, `<name>_mean` and `<name>_ranked`, and changing `method` asks no new
    question. The judge sees the reference answer where the case has one, and gives each chunk a relevance from 0 to
    100 besides its verdict; that number is only in the details. No contexts: 0, `no_context_retrieved`, without a
    call. Source: RAGAS context precision.
    """

    version = 2
    reads = frozenset({"contexts"})
    method: Literal["mean", "ranked"] = Field(
        default="mean",
        description=(
            "Which mean is the main score. mean: share of useful chunks; ranked: mean precision at the ranks of "
            "the useful chunks. Both are always stored."
        ),
    )

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (
            ScoreSpec(self.name, 0, TOP),
            *(ScoreSpec(f"{self.name}_{method}", 0, TOP, diagnostic=True) for method in ("mean", "ranked")),
        )

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        relevant = [chunk["relevant"] for chunk in details.get("chunks", ())]
        if not relevant:
            return None
        if details["method"] == "mean":
            return f"{TOP} x {sum(relevant)} relevant / {len(relevant)} chunks"
        terms = [f"{sum(relevant[:k])}/{k}" for k, is_relevant in enumerate(relevant, 1) if is_relevant]
        return f"{TOP} x ({' + '.join(terms) or '0'}) / {len(terms)}: the precision at the rank of each relevant chunk"

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        grades = await self.grades(case, judge)
        relevant = [grade.relevant for grade in grades]
        values = {"mean": TOP * sum(relevant) / len(relevant) if relevant else 0.0, "ranked": ranked_precision(relevant)}
        reason = f"{sum(relevant)} of {len(relevant)} chunks are relevant" if grades else "no_context_retrieved"
        details = {
            "chunks": [_row(chunk, grade) for chunk, grade in zip(case.contexts, grades, strict=True)],
            "relevant": sum(relevant),
            "total": len(relevant),
            "method": self.method,
            "flags": [],
        }
        return (
            Score(values[self.method], self.name, reason=reason, details=details),
            *(Score(value, f"{self.name}_{method}", reason=reason) for method, value in values.items()),
        )


def ranked_precision(relevant: Sequence[bool]) -> float:
    """Mean of the precision at the rank of each relevant chunk x 100; 0 without a relevant chunk."""
    count, total = 0, 0.0
    for rank, is_relevant in enumerate(relevant, 1):
        if is_relevant:
            count += 1
            total += count / rank
    return TOP * total / count if count else 0.0


def _row(chunk: Chunk, grade: ChunkGrade | ChunkVerdict) -> dict[str, Any]:
    relevance = {"relevance": grade.relevance} if isinstance(grade, ChunkGrade) else {}
    return {"chunk": chunk.id, "rank": chunk.rank, "relevant": grade.relevant, **relevance, "reason": grade.reason}
