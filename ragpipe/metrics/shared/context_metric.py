"""Base of metrics that compare the answer with the retrieved contexts, of which there may be none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.languages import NOT_COVERED
from ragpipe.core.patterns import pattern_hashes
from ragpipe.core.policies import Refusals
from ragpipe.core.refusals import read_refusal_async
from ragpipe.core.sample import Case, Chunk
from ragpipe.core.score import Score
from ragpipe.judge.answers import ChunkGrade, ChunkGrades, ChunkVerdict, ChunkVerdicts, SourceUse
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, verdicts_for
from ragpipe.metrics.shared.multi_reference import ReferenceMetric

NOTHING_RETRIEVED = "no_context_retrieved"
NO_CLAIMS = "no_claims"


class RefusalMetric(JudgeMetric):
    """A metric that recognises an answer that only declines, by `patterns`."""

    patterns: Refusals = Field(
        default="refusals.v3",
        description=(
            "Rules that recognise an answer that only declines: the name of a file in conf/patterns, or a whole "
            "mapping of refusal patterns."
        ),
    )

    def files(self) -> Mapping[str, str]:
        return pattern_hashes([self.patterns])


class ContextMetric(RefusalMetric):
    """Where nothing was retrieved, nothing supports what the answer states: the value is the lowest
    (`without_contexts: zero`), or the case is skipped (`skip`). An answer that only declines, by `patterns`, states
    nothing and so has no claims.
    """

    needs = frozenset({"answer"})
    reads = frozenset({"contexts"})

    without_contexts: Literal["zero", "skip"] = Field(
        default="zero",
        description=("Score of an answer for which nothing was retrieved. zero: the lowest value; skip: left out of the mean."),
    )

    def skip_reason(self, case: Case) -> str | None:
        nothing = self.without_contexts == "skip" and not case.contexts
        return super().skip_reason(case) or (NOTHING_RETRIEVED if nothing else None)

    async def no_claims(self, case: Case) -> str | None:
        """Why the answer is not judged without contexts: it is nothing but a refusal (`no_claims`), or the patterns cannot read its
        language. None where it states something. Raises JudgeError when a pattern takes too long."""
        reading = await read_refusal_async(case.answer, self.patterns)
        return NOT_COVERED if not reading.covered else NO_CLAIMS if reading.refused else None

    async def unsupported(self, case: Case) -> Score:
        """The score of an answer without retrieved contexts, without a call: 0, or skipped where the answer only declines or is in a
        language that the patterns do not cover."""
        if why := await self.no_claims(case):
            return Score(status="skipped", reason=why)
        flags = [*answer_flags(case.answer), NOTHING_RETRIEVED]
        return Score(0.0, reason=NOTHING_RETRIEVED, details={"flags": flags})


def context_numbers(contexts: Sequence[Chunk]) -> list[int]:
    """The number of each context: its rank, as in `citations_of`; its place, from 1, where two have the same rank.

    A judge that sees context 3 alone as [1] takes the answer's mark [3] for a wrong citation.
    """
    ranks = [chunk.rank for chunk in contexts]
    return ranks if len(set(ranks)) == len(ranks) else list(range(1, len(ranks) + 1))


def numbered(contexts: Sequence[Chunk]) -> list[tuple[int, Chunk]]:
    """The contexts with their numbers, in order."""
    return list(zip(context_numbers(contexts), contexts, strict=True))


def by_place(uses: Sequence[SourceUse], numbers: Sequence[int] | None) -> list[SourceUse]:
    """The findings with the place of their context in the question, from 1, as `index`.

    `numbers` are those that the question shows; None where its template shows none: its findings name places already.
    A number that the question does not show becomes 0, which is no place.
    """
    if numbers is None:
        return list(uses)
    places = {number: place for place, number in enumerate(numbers, 1)}
    return [use.model_copy(update={"index": places.get(use.index, 0)}) for use in uses]


class UsefulnessMetric(ReferenceMetric, JudgeMetric):
    """One call over all chunks gives each a verdict, useful or not, and up to version 2 a relevance from 0 to 100.

    The judge sees the reference answer where the case has one, as in `context_precision`, whose template this is:
    with the same version and examples the question is the same and is asked once for all metrics that ask it.
    """

    answer_types = {"grade": (ChunkGrades, ChunkVerdicts)}
    grade: Prompt

    async def grades(self, case: Case, judge: Judge) -> list[ChunkGrade | ChunkVerdict]:
        """One grade for each chunk, in order."""

        async def ask(chunks: list[Chunk], again: bool) -> list[ChunkGrade | ChunkVerdict]:
            parts = {"reference": case.reference} if case.reference else {}
            values = self.prompt_values(self.grade, case, parts, again=again, contexts=chunks, question=case.question)
            reply: Any = await judge(self.grade, self.answer_type("grade"), **values)
            return list(reply.verdicts)

        return await verdicts_for(case.contexts, ask) if case.contexts else []
