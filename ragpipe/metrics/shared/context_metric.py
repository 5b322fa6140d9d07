"""Base of metrics that compare the answer with the retrieved contexts, of which there may be none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from ragpipe.core.errors import JudgeError
from ragpipe.metrics.base import Need
from ragpipe.metrics.shared.injection_flags import answer_flags
from ragpipe.metrics.shared.judge_metric import JudgeMetric
from ragpipe.patterns.languages import NOT_COVERED
from ragpipe.patterns.pattern_files import pattern_hashes
from ragpipe.patterns.pattern_input import Refusals
from ragpipe.patterns.refusals import load_refusals, read_refusal, read_refusal_async
from ragpipe.schema.sample import Case, OutputPart
from ragpipe.schema.score import Score

NOTHING_RETRIEVED = "no_context_retrieved"
NO_CLAIMS = "no_claims"


class ContextMetric(JudgeMetric):
    """Where nothing was retrieved, nothing supports what the answer states: the value is the lowest
    (`without_contexts: zero`), or the case is skipped (`skip`). An answer that only declines, by `patterns`, states
    nothing and so has no claims.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"answer"})
    reads: ClassVar[frozenset[OutputPart]] = frozenset({"contexts"})

    without_contexts: Literal["zero", "skip"] = Field(
        default="zero",
        description=(
            "Score of an answer for which nothing was retrieved. zero: the lowest value; skip: left out of the mean."
        ),
    )
    patterns: Refusals = Field(
        default="refusals.v3",
        description=(
            "Rules that recognise an answer that only declines: the name of a file in conf/patterns, or a whole "
            "mapping of refusal patterns."
        ),
    )

    def files(self) -> Mapping[str, str]:
        return pattern_hashes([self.patterns])

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

    def only_declines(self, case: Case) -> bool:
        """For the plan: whether the answer is nothing but a refusal."""
        try:
            return read_refusal(case.answer, load_refusals(self.patterns)).refused
        except JudgeError:  # too long for patterns: `measure` reports it without a call
            return True

    def lists_claims(self, case: Case) -> bool:
        """For the plan: whether the judge lists the claims of an answer without retrieved contexts."""
        try:
            reading = read_refusal(case.answer, load_refusals(self.patterns))
            return reading.covered and not reading.refused
        except JudgeError:  # too long for patterns: `measure` reports it without a call
            return False
