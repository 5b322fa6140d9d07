"""How far the contexts support the answer, 0 to 5, in one call; citations count where the case requires them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ragpipe.core.citation_marks import find_marks, has_mark, names_source
from ragpipe.core.sample import Case, Citation
from ragpipe.core.score import Score, ScoreSpec, whole_grades
from ragpipe.judge.answers import Groundedness as Grade
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.citations import marker_pattern
from ragpipe.metrics.shared.context_metric import ContextMetric
from ragpipe.metrics.shared.judge_metric import answer_flags, one_line

TOP = 5


class GroundednessMetric(ContextMetric):
    """0 to 5 by how many of the major claims the contexts support: 5 all claims, 4 all but details, 3 at least half of
    the major ones, 2 fewer, 1 none, 0 the contexts say nothing of the subject. A contradicted claim is not supported.

    Major are the claims that answer the question, which version 4 of the template shows. Versions 1 and 2 have the scale
    in the words of its source. A mark of a context that does not support the claim is no citation (from version 3 on),
    and an unsupported claim no missing one (version 4).

    Citations count only where the case requires them (`expected.requires_citations: true`); elsewhere the question
    does not mention them and nothing is capped. Where they are required, a 5 needs all major claims to be cited
    (versions 1, 2 and 4), and an answer whose major claims carry none gets at most `cap_without_citations` (null: no
    cap), whatever the grade, and the flag `required_citations_missing`. That is so where the judge says it, and where
    the output has no recorded citation and the text no mark (`[1]`, `(source ...)`, `word²`, a recorded marker). Where
    the judge says that the claims are cited, a link, a year in brackets or "according to" counts as a mark too.

    The judge sees the recorded citations unless the text itself shows them, by `[n]` or by one of their markers. The
    value never falls when the judge's grade rises. `top_k` shows only the first k contexts (it changes the questions).
    Nothing retrieved: 0 (`no_context_retrieved`) without a call, or skipped (`no_claims`) where the answer only
    declines, by `patterns`. Needs an answer.
    """

    gives = ScoreSpec("", 0, TOP, grades=whole_grades(0, TOP))
    version = 3

    answer_types = {"grade": (Grade,)}
    grade: Prompt
    top_k: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Number of contexts that the judge sees, from the first rank. null: all. Another number asks new questions."
        ),
    )
    cap_without_citations: int | None = Field(
        default=3,
        ge=0,
        le=TOP,
        description=(
            "Highest grade, 0 to 5, of an answer whose major claims carry no citation, in cases that require "
            "citations. null: no cap."
        ),
    )

    def values(self, case: Case) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        if not case.sample.expects.requires_citations:
            parts["cited"] = False
        elif case.output.citations and not _shows_marks(case):
            parts["citations"] = _citation_lines(case, len(case.contexts[: self.top_k]))
        shown = {"question": case.question} if "question" in self.grade.roles else {}
        values = {"contexts": case.contexts[: self.top_k], **shown, "answer": case.answer}
        return self.prompt_values(self.grade, case, parts, **values)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        if value < details.get("judge_score", value):
            return f"the judge gave {details['judge_score']}, capped at {self.cap_without_citations}: no citations"
        return None

    async def measure(self, case: Case, judge: Judge) -> Score:
        if not case.contexts:
            return await self.unsupported(case)
        reply = await judge(self.grade, Grade, **self.values(case))
        value, flags = reply.score, answer_flags(case.answer)
        if case.sample.expects.requires_citations and not _is_cited(case, reply.major_claims_cited):
            cap = self.cap_without_citations
            value, flags = value if cap is None else min(value, cap), [*flags, "required_citations_missing"]
        if round(reply.score) == TOP and reply.unsupported_claims:  # it may be weighted
            flags.append("grade_contradicts_claims")
        details = {
            "supported_claims": reply.supported_claims,
            "unsupported_claims": reply.unsupported_claims,
            "major_claims_cited": reply.major_claims_cited,
            "judge_score": reply.score,
            "flags": flags,
        }
        return Score(value, reason=one_line(reply.reason) or None, details=details)


def _is_cited(case: Case, verdict: bool | None) -> bool:
    """Whether the major claims are cited, by the judge's verdict (None: it gave none) and by the marks and records."""
    marked = case.output.citations or has_mark(case.answer) or (verdict is True and names_source(case.answer))
    return verdict is not False and bool(marked)


def _shows_marks(case: Case) -> bool:
    """Whether the text itself shows citations: by a mark or by a recorded marker; a bare number or word only in brackets."""
    markers = {(citation.marker or "").strip() for citation in case.output.citations or ()} - {""}
    named = any(mark.numbers for mark in find_marks(case.answer))
    return named or any(marker_pattern(marker).search(case.answer) for marker in markers)


def _citation_lines(case: Case, contexts_shown: int) -> list[str]:
    """The recorded citations, one line each: the numbers of the cited contexts, and the citing passage."""
    numbers: dict[str, list[str]] = {}
    for i, chunk in enumerate(case.contexts, 1):
        numbers.setdefault(chunk.id, []).extend([f"[{i}]"] if i <= contexts_shown else [])
    return [
        f"{_source(citation, numbers)}: {citation.text or 'the answer as a whole'}" for citation in case.output.citations or ()
    ]


def _source(citation: Citation, numbers: dict[str, list[str]]) -> str:
    if citation.chunk_id in numbers:
        return ", ".join(numbers[citation.chunk_id]) or "a context that is not shown"
    return citation.marker or citation.chunk_id or "?"
