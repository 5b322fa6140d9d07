"""The heuristic judge: answers a metric's questions by comparing strings.

It has one handler per answer type and set of roles. It gets the values of the prompt's variables, never the rendered text,
so instructions, forged tags or verdict words inside an answer are only strings to it. `docs/offline-judge.md` has its agreement
with human labels, and what it cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from ragpipe.core.errors import Skipped
from ragpipe.judging.heuristic.chunk_grades import grade_chunks
from ragpipe.judging.heuristic.citation_checks import (
    check_citations,
    classify_refusal,
    classify_source_use,
    declines,
    find_cited_claims,
)
from ragpipe.judging.heuristic.claim_features import SourceIndex, index_sources
from ragpipe.judging.heuristic.claim_splitting import extract_claims, states_without_words
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.heuristic.verdict_rules import ClaimFinding, decide
from ragpipe.judging.value_roles import IGNORED_ROLES, source_texts, values_by_role
from ragpipe.patterns.citation_marks import has_mark
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.behaviour_answers import Refusal
from ragpipe.schema.judge_answers.citation_answers import CitationVerdicts, CitedClaims, SourceUses
from ragpipe.schema.judge_answers.claim_answers import (
    CheckedClaim,
    CheckedClaims,
    Claims,
    QuotedClaim,
    QuotedClaims,
    QuotedVerdict,
    QuotedVerdicts,
    Support,
    Verdict,
    Verdicts,
)
from ragpipe.schema.judge_answers.grade_answers import Groundedness, YesNo
from ragpipe.schema.judge_answers.relevance_answers import ChunkGrades
from ragpipe.schema.sample import AnyReference

A = TypeVar("A", bound=Answer)

CANNOT_ANSWER = "evidence_cannot_answer"
_UNRELATED = 0.2  # recall under which a claim is unrelated to the sources


class HeuristicJudge:
    """The judge `evidence-v1`. Deterministic and safe in threads; answers are computed, never stored.

    `version` is its identity together with its settings: every change that can turn a verdict raises it.
    """

    def __init__(self, settings: HeuristicSettings):
        self.settings = settings
        self.version: str = settings.rules

    def answer(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A:
        """Answer one question from the prompt's values.

        Raises Skipped: `evidence_cannot_answer` when there is no handler for the answer type and the prompt's roles
        (rubric questions, generation), or where the text states something that strings cannot tell ("No."); `no_factual_claims`
        when the text asserts nothing.
        """
        roles = values_by_role(prompt, values)
        handler = HANDLERS.get((answer, frozenset(roles) - IGNORED_ROLES)) if roles is not None else None
        if roles is None or handler is None:
            raise Skipped(CANNOT_ANSWER)
        return cast(A, handler(roles, self.settings))


def _extract(roles: Mapping[str, Any], settings: HeuristicSettings) -> Claims:
    return Claims(claims=list(_claims(roles)))


def _verify(roles: Mapping[str, Any], settings: HeuristicSettings) -> Verdicts:
    findings = decide([str(claim) for claim in roles["claims"]], _sources(roles), settings)
    verdicts = [
        Verdict(index=index, supported=f.supported, evidence=f.evidence, reason=f.reason)
        for index, f in enumerate(findings, 1)
    ]
    return Verdicts(verdicts=verdicts)


def _check(roles: Mapping[str, Any], settings: HeuristicSettings) -> CheckedClaims:
    """Extraction and verdicts at once, with the same result as one after the other."""
    findings = decide(_claims(roles), _sources(roles), settings)
    claims = [
        CheckedClaim(claim=f.claim, supported=f.supported, evidence=f.evidence, reason=f.reason) for f in findings
    ]
    return CheckedClaims(claims=claims)


def _verify_with_quotes(roles: Mapping[str, Any], settings: HeuristicSettings) -> QuotedVerdicts:
    findings = decide([str(claim) for claim in roles["claims"]], _sources(roles), settings)
    verdicts = [
        QuotedVerdict(index=index, evidence=_quotes(f), reason=f.reason, verdict=_support(f))
        for index, f in enumerate(findings, 1)
    ]
    return QuotedVerdicts(verdicts=verdicts)


def _check_with_quotes(roles: Mapping[str, Any], settings: HeuristicSettings) -> QuotedClaims:
    findings = decide(_claims(roles), _sources(roles), settings)
    claims = [QuotedClaim(claim=f.claim, evidence=_quotes(f), reason=f.reason, verdict=_support(f)) for f in findings]
    return QuotedClaims(claims=claims)


def _quotes(finding: ClaimFinding) -> list[str]:
    return [finding.evidence] if finding.evidence else []


def _support(finding: ClaimFinding) -> Support:
    if finding.supported:
        return "supported"
    return "contradicted" if finding.contradicted else "not_supported"


def _grade_chunks(roles: Mapping[str, Any], settings: HeuristicSettings) -> ChunkGrades:
    reference = roles["reference"]
    references = reference.texts if isinstance(reference, AnyReference) else (str(reference),)
    return grade_chunks(str(roles.get("question", "")), references, source_texts(roles), settings)


def _check_citations(roles: Mapping[str, Any], settings: HeuristicSettings) -> CitationVerdicts:
    return check_citations(roles["citations"], source_texts(roles), settings)


def _find_cited_claims(roles: Mapping[str, Any], settings: HeuristicSettings) -> CitedClaims:
    return find_cited_claims(str(roles["text"]), roles["citations"])


def _classify_source_use(roles: Mapping[str, Any], settings: HeuristicSettings) -> SourceUses:
    return classify_source_use(str(roles["text"]), source_texts(roles), settings)


def _classify_numbered_use(roles: Mapping[str, Any], settings: HeuristicSettings) -> SourceUses:
    """The use of each source under the number that the question shows, its place where it shows none."""
    uses = _classify_source_use(roles, settings).verdicts
    numbers = roles["numbers"] or range(1, len(uses) + 1)
    return SourceUses(verdicts=[u.model_copy(update={"index": n}) for n, u in zip(numbers, uses, strict=True)])


def _classify_refusal(roles: Mapping[str, Any], settings: HeuristicSettings) -> Refusal:
    return classify_refusal(str(roles["text"]))


def _supports_all(roles: Mapping[str, Any], settings: HeuristicSettings) -> YesNo:
    """Whether the sources support every claim of the text. An existing YES remains."""
    if str(roles.get("existing", "")).strip()[:3].upper() == "YES":
        return YesNo(verdict="YES", text="YES: the existing answer stands")
    claims = _claims_of(str(roles["text"]))
    if not claims:
        if "question" in roles:
            return YesNo(verdict="NO", text="NO: the text asserts nothing, so it answers nothing")
        raise Skipped("no_factual_claims")
    findings = decide(claims, _sources(roles), settings)
    unsupported = [f for f in findings if not f.supported]
    verdict = "NO" if unsupported else "YES"
    supported = len(findings) - len(unsupported)
    text = f"{verdict}: {supported} of {len(findings)} claims supported"
    if unsupported:
        text += f"; first without support: {unsupported[0].claim[:200]!r} ({unsupported[0].reason})"
    return YesNo(verdict=verdict, text=text)


def _supports_a_point(roles: Mapping[str, Any], settings: HeuristicSettings) -> YesNo:
    """Whether the sources support a claim of the text and contradict none. An existing YES remains. Raises Skipped where a question
    is shown: strings do not tell whether an answer responds to it."""
    if "question" in roles:
        raise Skipped(CANNOT_ANSWER)
    if str(roles.get("existing", "")).strip()[:3].upper() == "YES":
        return YesNo(verdict="YES", text="YES: the existing answer stands")
    claims = _claims_of(str(roles["main_point"]))
    if not claims:
        raise Skipped("no_factual_claims")
    findings = decide(claims, _sources(roles), settings)
    supported, contradicted = sum(f.supported for f in findings), [f for f in findings if f.contradicted]
    verdict = "YES" if supported and not contradicted else "NO"
    text = f"{verdict}: {supported} of {len(findings)} claims supported, {len(contradicted)} contradicted"
    if contradicted:
        text += f"; first {contradicted[0].claim[:200]!r} ({contradicted[0].reason})"
    return YesNo(verdict=verdict, text=text)


def _groundedness(roles: Mapping[str, Any], settings: HeuristicSettings) -> Groundedness:
    claims = _claims_of(str(roles["text"]))
    if not claims:
        raise Skipped("no_factual_claims")
    findings = decide(claims, _sources(roles), settings)
    score, reason = _grade(findings)
    return Groundedness(
        score=score,
        supported_claims=[f.claim for f in findings if f.supported],
        unsupported_claims=[f.claim for f in findings if not f.supported],
        major_claims_cited=_mostly_cited(claims),
        reason=reason,
    )


def _mostly_cited(claims: Sequence[str]) -> bool | None:
    """Whether at least half of the claims have a citation mark: a mark often covers the sentences before it too.

    None without any mark: citations that are recorded apart from the answer are not in its text.
    """
    marked = sum(has_mark(claim) for claim in claims)
    return 2 * marked >= len(claims) if marked else None


def _grade(findings: list[ClaimFinding]) -> tuple[int, str]:
    """0..5 from the share of supported claims; a contradiction caps it at 2. Citations are reported separately."""
    supported = sum(f.supported for f in findings)
    share = supported / len(findings)
    contradicted = sum(f.contradicted for f in findings)
    reason = f"{supported} of {len(findings)} claims supported, {contradicted} contradicted"
    if share == 1:
        return 5, reason
    if not share and all(f.features.recall < _UNRELATED for f in findings):
        return 0, f"{reason}; nothing in common with the sources"
    if contradicted:
        return (2 if share >= 0.5 else 1), reason
    return _grade_of_share(share), reason


def _grade_of_share(share: float) -> int:
    if share >= 0.75:
        return 4
    return 3 if share >= 0.5 else 2


def _claims(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """The claims of the answer, or of the reference where that is the text. Raises Skipped for alternative references: they
    have no single list of claims."""
    text = roles["text"] if "text" in roles else roles["reference"]
    if isinstance(text, AnyReference):
        raise Skipped(CANNOT_ANSWER)
    return _claims_of(str(text))


def _claims_of(text: str) -> tuple[str, ...]:
    """The claims of a text; none of one that declines in another language. Raises Skipped where it has none and may state
    something all the same."""
    claims = () if declines(text) else extract_claims(text)
    if not claims and not declines(text) and states_without_words(text):
        raise Skipped(CANNOT_ANSWER)
    return claims


def _sources(roles: Mapping[str, Any]) -> SourceIndex:
    """The sources, indexed once."""
    return index_sources(source_texts(roles))


_Handler = Callable[[Mapping[str, Any], HeuristicSettings], Answer]
HANDLERS: dict[tuple[type[Answer], frozenset[str]], _Handler] = {
    (Claims, frozenset(("text",))): _extract,
    (Claims, frozenset(("reference",))): _extract,
    (Verdicts, frozenset(("claims", "sources"))): _verify,
    (CheckedClaims, frozenset(("text", "sources"))): _check,
    (CheckedClaims, frozenset(("reference", "sources"))): _check,
    (QuotedVerdicts, frozenset(("claims", "sources"))): _verify_with_quotes,
    (QuotedClaims, frozenset(("text", "sources"))): _check_with_quotes,
    (QuotedClaims, frozenset(("reference", "sources"))): _check_with_quotes,
    (ChunkGrades, frozenset(("reference", "sources"))): _grade_chunks,
    (YesNo, frozenset(("text", "sources"))): _supports_all,
    (YesNo, frozenset(("text", "sources", "existing"))): _supports_all,
    (YesNo, frozenset(("main_point", "sources"))): _supports_a_point,
    (YesNo, frozenset(("main_point", "sources", "existing"))): _supports_a_point,
    (Groundedness, frozenset(("text", "sources"))): _groundedness,
    (CitationVerdicts, frozenset(("sources", "citations"))): _check_citations,
    (CitedClaims, frozenset(("text", "citations"))): _find_cited_claims,
    (SourceUses, frozenset(("text", "sources"))): _classify_source_use,
    (SourceUses, frozenset(("text", "sources", "numbers"))): _classify_numbered_use,
    (Refusal, frozenset(("text",))): _classify_refusal,
}
