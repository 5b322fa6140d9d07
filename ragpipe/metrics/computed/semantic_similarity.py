"""How close the meanings of answer and reference are, by the vectors of an embedder. 0 to 100."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.question import Judge
from ragpipe.judge.vectors import cosine
from ragpipe.metrics.shared.multi_reference import ReferenceMetric, by_reference


class SemanticSimilarityMetric(ReferenceMetric):
    """100 x the cosine of the vectors of answer and reference, two decimals; a negative cosine is 0.

    The same text is 100; an answer without a character or a vector of length 0 is 0. A text of which the embedder read
    only the beginning (`embedder.max_tokens`) is flagged `answer_cut` or `reference_cut`, where the embedder knows it;
    providers do not say. Texts on one subject are close to each other whatever they say about it: a wrong number or a
    negation hardly changes the value. Needs a reference and an embedder; without one it is skipped (`no_embedder`).
    The signature names the embedder; judge_inputs.parquet holds the vectors.
    """

    gives = ScoreSpec("", 0, 100)
    version = 2
    needs = frozenset({"reference"})
    best_of_each = True
    reads = frozenset({"answer"})

    @property
    def needs_embedder(self) -> bool:
        return True

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        similarity = details.get("cosine")
        return None if similarity is None else f"100 x max(0, {similarity:.6f}) = {value:g}"

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Score:
        if not case.answer.strip():
            return Score(0.0, reason="no_answer")
        texts = {"answer": case.answer, "reference": case.reference or ""}
        answer, reference = await judge.embed(list(texts.values()))
        similarity = cosine(answer, reference)
        reason = None if answer.any() and reference.any() else "zero_vector"
        flags = [f"{name}_cut" for name, text in texts.items() if judge.was_truncated(text)]
        return Score(round(100 * max(0.0, similarity), 2), reason=reason, details={"cosine": similarity, "flags": flags})
