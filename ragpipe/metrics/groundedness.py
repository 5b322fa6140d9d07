"""How far the contexts bear the answer, 0 to 5, in one call; the highest grade needs citations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import Field

from ragpipe.judging.judge import Judge
from ragpipe.metrics.base import Ask, Need
from ragpipe.metrics.shared.flags import answer_flags, one_line
from ragpipe.metrics.shared.judged import Judged
from ragpipe.prompts import Prompt
from ragpipe.schema.answers import Groundedness as Grade
from ragpipe.schema.sample import Case
from ragpipe.schema.score import Score, ScoreSpec

TOP = 5
_MARKER = re.compile(r"\[[^\[\]\n]{1,40}\]|\(\s*(?:source|see|ref)[^()\n]{0,60}\)|\^\d+|[\u00b9\u00b2\u00b3]", re.I)


class Groundedness(Judged):
    """0 to 5: 5 all claims supported and all major ones cited, 3 mixed or citations missing, 1 contradicts, 0 unrelated.

    `top_k` shows only the first k contexts (it changes the questions). A 5 for an answer whose major claims carry no
    citation is capped in code at `cap_without_citations` (null: never) and flagged; where the judge does not say, the
    recorded citations and the marks in the text decide. A case that requires no citations
    (`expected.requires_citations: false`) is neither told of them nor capped. Needs answer and contexts.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"answer", "contexts"})

    grade: Prompt
    top_k: int | None = Field(default=None, ge=1)
    cap_without_citations: int | None = Field(default=3, ge=0, le=TOP)

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, 0, TOP),)

    def values(self, case: Case) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        if not _requires_citations(case):
            parts["cited"] = False
        elif case.output.citations and not _MARKER.search(case.answer):
            parts["citations"] = _recorded(case)
        return self.shown(self.grade, case, parts, contexts=case.contexts[: self.top_k], answer=case.answer)

    def asks(self, case: Case) -> Iterable[Ask]:
        yield Ask(self.grade, Grade, self.values(case))

    def arithmetic(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        if "capped_without_citations" in details.get("flags", ()):
            return f"the judge gave {details['judge_score']}, capped at {self.cap_without_citations}: no citations"
        return None

    async def measure(self, case: Case, judge: Judge) -> Score:
        reply = await judge(self.grade, Grade, **self.values(case))
        value, flags = reply.score, answer_flags(case.answer)
        cited = reply.major_claims_cited
        if cited is None:
            cited = bool(case.output.citations or _MARKER.search(case.answer))
        cap = self.cap_without_citations
        if value == TOP and not cited and cap is not None and cap < TOP and _requires_citations(case):
            value, flags = cap, [*flags, "capped_without_citations"]
        if reply.score == TOP and reply.unsupported_claims:
            flags.append("grade_contradicts_claims")
        details = {"supported_claims": reply.supported_claims, "unsupported_claims": reply.unsupported_claims,
                   "major_claims_cited": reply.major_claims_cited, "judge_score": reply.score, "flags": flags}  # fmt: skip
        return Score(value, reason=one_line(reply.reason) or None, details=details)


def _requires_citations(case: Case) -> bool:
    return not (case.sample.expected and case.sample.expected.requires_citations is False)


def _recorded(case: Case) -> list[str]:
    """The recorded citations, one line each: the context's number in the prompt and the cited passage of the answer."""
    numbers = {chunk.id: f"[{i}]" for i, chunk in enumerate(case.contexts, 1)}
    return [
        f"{numbers.get(c.chunk_id or '', c.marker or c.chunk_id or '?')}: {c.text or 'the answer as a whole'}"
        for c in case.output.citations or ()
    ]
