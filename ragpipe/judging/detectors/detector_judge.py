"""The judge `detector`: answers the questions about claims and citations with the readings of a trained verifier.

It has one handler per answer type and set of roles, as the embedded judge has, and never sees the rendered text. Claims are listed by
the embedded judge's rules; whether the passages support them is what the model says. `docs/detectors.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.judging.detectors.claim_verdicts import (
    ClaimQuestion,
    ClaimVerdict,
    PlacedClaim,
    checker_of,
    joined_claims,
)
from ragpipe.judging.detectors.reading import Reading
from ragpipe.judging.detectors.reading_session import AsksReadings
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.heuristic.citation_checks import find_cited_claims
from ragpipe.judging.heuristic.claim_splitting import placed_claims, states_without_words
from ragpipe.judging.value_roles import IGNORED_ROLES, source_texts, values_by_role
from ragpipe.patterns.citation_marks import without_marks
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.citation_answers import CitationVerdict, CitationVerdicts, CitedClaims
from ragpipe.schema.judge_answers.claim_answers import (
    CheckedClaim,
    CheckedClaims,
    Claims,
    QuotedClaim,
    QuotedClaims,
    QuotedVerdict,
    QuotedVerdicts,
    Verdict,
    Verdicts,
)
from ragpipe.schema.sample import AnyReference

A = TypeVar("A", bound=Answer)

CANNOT_ANSWER = "detector_cannot_answer"


@dataclass(frozen=True, slots=True)
class _Check:
    """Questions to the model, and the answer that their verdicts give: one list of verdicts per question."""

    questions: tuple[ClaimQuestion, ...]
    answer: Callable[[list[list[ClaimVerdict]]], Answer]


class DetectorJudge:
    """A detector as a judge. `readings` None: it answers nothing, and only `answer` can be asked."""

    def __init__(self, settings: DetectorSettings, readings: AsksReadings | None = None):
        self.settings = settings
        self.version: str = settings.rules
        self._readings = readings
        self._checker = checker_of(settings)

    async def read(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A:
        """Answer one question from the prompt's values.

        Raises Skipped (`detector_cannot_answer`) for questions about anything but claims and citations, and for a text such as "No.",
        whose claim is in the question; JudgeError (`too_long`) where a text does not fit into the model.
        """
        check = self._check(prompt, answer, values)
        if isinstance(check, Answer):
            return cast(A, check)
        if self._readings is None:
            raise JudgeError("missing_reply", "the detector is not asked here")
        asked = [self._checker.texts(question) for question in check.questions]
        flat = await asyncio.gather(*(self._readings(texts) for each in asked for texts in each))
        for reading in flat:
            if reading.too_long is not None:
                raise JudgeError("too_long", f"{reading.too_long}; {_too_long_fix(self.settings)}")
        return cast(A, self._answer(check, [len(each) for each in asked], flat))

    def answer(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A:
        """The answer to readings that found nothing, which no model made: it tells whether this judge could answer. Raises Skipped
        as `read`."""
        check = self._check(prompt, answer, values)
        if isinstance(check, Answer):
            return cast(A, check)
        counts = [len(self._checker.texts(question)) for question in check.questions]
        return cast(A, self._answer(check, counts, [Reading(support=0.0, tokens=[])] * sum(counts)))

    def _check(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any]) -> _Check | Answer:
        roles = values_by_role(prompt, values)
        handler = HANDLERS.get((answer, frozenset(roles) - IGNORED_ROLES)) if roles is not None else None
        if roles is None or handler is None:
            raise Skipped(CANNOT_ANSWER)
        return handler(roles)

    def _answer(self, check: _Check, counts: Sequence[int], readings: Sequence[Reading]) -> Answer:
        left = iter(readings)
        verdicts = [
            self._checker.verdicts(question, [next(left) for _ in range(count)])
            for question, count in zip(check.questions, counts, strict=True)
        ]
        return check.answer(verdicts)


def _too_long_fix(settings: DetectorSettings) -> str:
    if settings.overflow == "too_long":
        return "judge.overflow=split reads long passages in parts"
    return "a larger judge.max_tokens, where the model can read more at once"


def _extract(roles: Mapping[str, Any]) -> Claims:
    return Claims(claims=[claim.claim for claim in _placed(_text(roles))])


def _find_cited_claims(roles: Mapping[str, Any]) -> CitedClaims:
    return find_cited_claims(str(roles["text"]), roles["citations"])


def _verify(roles: Mapping[str, Any]) -> _Check:
    def answer(verdicts: list[list[ClaimVerdict]]) -> Verdicts:
        return Verdicts(
            verdicts=[
                Verdict(index=index, supported=v.supported, evidence=v.evidence, reason=v.reason)
                for index, v in enumerate(verdicts[0], 1)
            ]
        )

    return _Check((_listed(roles),), answer)


def _verify_with_quotes(roles: Mapping[str, Any]) -> _Check:
    def answer(verdicts: list[list[ClaimVerdict]]) -> QuotedVerdicts:
        return QuotedVerdicts(
            verdicts=[
                QuotedVerdict(index=index, verdict=v.verdict, evidence=_quotes(v), reason=v.reason)
                for index, v in enumerate(verdicts[0], 1)
            ]
        )

    return _Check((_listed(roles),), answer)


def _check_claims(roles: Mapping[str, Any]) -> _Check:
    def answer(verdicts: list[list[ClaimVerdict]]) -> CheckedClaims:
        return CheckedClaims(
            claims=[
                CheckedClaim(claim=v.claim, supported=v.supported, evidence=v.evidence, reason=v.reason)
                for v in verdicts[0]
            ]
        )

    return _Check((_stated(roles),), answer)


def _check_with_quotes(roles: Mapping[str, Any]) -> _Check:
    def answer(verdicts: list[list[ClaimVerdict]]) -> QuotedClaims:
        return QuotedClaims(
            claims=[
                QuotedClaim(claim=v.claim, verdict=v.verdict, evidence=_quotes(v), reason=v.reason) for v in verdicts[0]
            ]
        )

    return _Check((_stated(roles),), answer)


def _check_citations(roles: Mapping[str, Any]) -> _Check:
    """Each cited passage of the answer, as one claim, against the one source that it cites."""
    sources = source_texts(roles)
    questions = tuple(
        joined_claims("", [_uncited(str(citation["text"]))], (sources[int(citation["source"]) - 1],))
        for citation in roles["citations"]
    )

    def answer(verdicts: list[list[ClaimVerdict]]) -> CitationVerdicts:
        return CitationVerdicts(
            verdicts=[
                CitationVerdict(index=index, accurate=v.supported, evidence=v.evidence, reason=v.reason)
                for index, (v,) in enumerate(verdicts, 1)
            ]
        )

    return _Check(questions, answer)


def _uncited(text: str) -> str:
    return " ".join(without_marks(text).split()) or text


def _quotes(verdict: ClaimVerdict) -> list[str]:
    return [verdict.evidence] if verdict.evidence else []


def _listed(roles: Mapping[str, Any]) -> ClaimQuestion:
    """Claims that were listed before: the model reads them one after the other as the answer."""
    claims = [str(claim) for claim in roles["claims"]]
    return joined_claims(_question(roles), claims, source_texts(roles))


def _stated(roles: Mapping[str, Any]) -> ClaimQuestion:
    """The claims of a text that the model reads as it stands."""
    text = _text(roles)
    return ClaimQuestion(_question(roles), text, tuple(_placed(text)), source_texts(roles))


def _question(roles: Mapping[str, Any]) -> str:
    return str(roles.get("question") or "")


def _text(roles: Mapping[str, Any]) -> str:
    """The answer, or the reference where that is the text. Raises Skipped for alternative references: they have no single list of claims."""
    text = roles["text"] if "text" in roles else roles["reference"]
    if isinstance(text, AnyReference):
        raise Skipped(CANNOT_ANSWER)
    return str(text)


def _placed(text: str) -> list[PlacedClaim]:
    """The claims of a text. Raises Skipped where it has none and may state something all the same."""
    claims = [PlacedClaim(*placed) for placed in placed_claims(text)]
    if not claims and states_without_words(text):
        raise Skipped(CANNOT_ANSWER)
    return claims


_Handler = Callable[[Mapping[str, Any]], _Check | Answer]
HANDLERS: dict[tuple[type[Answer], frozenset[str]], _Handler] = {
    (Claims, frozenset(("text",))): _extract,
    (Claims, frozenset(("reference",))): _extract,
    (Verdicts, frozenset(("claims", "sources"))): _verify,
    (QuotedVerdicts, frozenset(("claims", "sources"))): _verify_with_quotes,
    (CheckedClaims, frozenset(("text", "sources"))): _check_claims,
    (CheckedClaims, frozenset(("reference", "sources"))): _check_claims,
    (QuotedClaims, frozenset(("text", "sources"))): _check_with_quotes,
    (QuotedClaims, frozenset(("reference", "sources"))): _check_with_quotes,
    (CitationVerdicts, frozenset(("sources", "citations"))): _check_citations,
    (CitedClaims, frozenset(("text", "citations"))): _find_cited_claims,
}
