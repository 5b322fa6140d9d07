"""The share of the useful chunks that the answer draws on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ragpipe.core.sample import Case, Chunk
from ragpipe.core.score import Score
from ragpipe.core.text import normalise, occurs
from ragpipe.judge.answers import SourceUse, SourceUses
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.context_metric import UsefulnessMetric, by_place, numbered
from ragpipe.metrics.shared.judge_metric import answer_flags, verdicts_in_batches
from ragpipe.metrics.shared.multi_reference import by_reference


class ContextUtilizationMetric(UsefulnessMetric):
    """Useful chunks that the answer uses / useful chunks, 0 to 1: does the generator read what was retrieved?

    `grade` is the question of `context_precision`, asked once for both. `use` asks how the answer uses each chunk
    found useful there, `batch` chunks per call; quoted or paraphrased is used. Where several chunks say the same, all
    of them count as used, so that near-duplicates do not lower the value. Skipped where no chunk is useful
    (`no_useful_chunk`): there was nothing to use. Evidence that is not in the answer is flagged `evidence_not_found`
    and changes nothing. Needs answer and contexts.
    """

    version = 2
    needs = frozenset({"answer", "contexts"})
    shared_prompts = {"grade": "context_precision"}

    answer_types = {**UsefulnessMetric.answer_types, "use": (SourceUses,)}
    use: Prompt
    batch: int = Field(default=10, ge=1, description="Chunks per judge call about their use, 1 or more.")

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        return f"{details['used']} used / {details['useful']} useful chunks" if details.get("useful") else None

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Score:
        async def ask(part: list[tuple[int, Chunk]], again: bool) -> list[SourceUse]:
            numbers, chunks = {"numbers": [number for number, _ in part]}, [chunk for _, chunk in part]
            values = self.prompt_values(self.use, case, numbers, again=again, contexts=chunks, answer=case.answer)
            return by_place((await judge(self.use, SourceUses, **values)).verdicts, values.get("numbers"))

        grades = await self.grades(case, judge)
        useful = [item for item, grade in zip(numbered(case.contexts), grades, strict=True) if grade.relevant]
        uses = iter(await verdicts_in_batches(useful, self.batch, ask))  # by position: an id may come twice
        rows = [
            _row(chunk, next(uses) if grade.relevant else None, case)
            for chunk, grade in zip(case.contexts, grades, strict=True)
        ]
        used = sum(row["used"] for row in rows)
        flags = answer_flags(case.answer)
        flags += ["evidence_not_found"] if any(row.get("evidence_found") is False for row in rows) else []
        details = {"chunks": rows, "useful": len(useful), "used": used, "flags": flags}
        if not useful:
            return Score(status="skipped", reason="no_useful_chunk", details=details)
        return Score(used / len(useful), reason=f"{used} of {len(useful)} useful chunks are used", details=details)


def _row(chunk: Chunk, use: SourceUse | None, case: Case) -> dict[str, Any]:
    """`use` is None for a chunk that is not useful: the judge is not asked how the answer uses it."""
    row: dict[str, Any] = {"chunk": chunk.id, "rank": chunk.rank, "useful": use is not None, "used": False}
    if use is not None:
        row |= {"used": use.use != "not_used", "use": use.use, "evidence": use.evidence, "reason": use.reason}
        if use.use != "not_used":
            row["evidence_found"] = occurs(use.evidence, [normalise(case.answer)])
    return row
