"""The rules judge: answers a metric's questions by comparing strings.

It has one handler per answer type and set of roles. It gets the values of the prompt's variables, never the rendered text,
so instructions, forged tags or verdict words inside an answer are only strings to it. `docs/judges.md` has its agreement
with human labels, and what it cannot see.

From a claim's features to a verdict, by fixed rules that the reason shows.

A claim is supported when the mean of four overlaps with the sources (recall, window, bigrams, lcs) reaches the
threshold and nothing contradicts it: no number, name or quotation that no source has, no opposite negation. All
four count alike: a logistic regression over the same features ranked no better on the development half of the RAGTruth
answers (`docs/judges.md`).

Which chunks contain what a reference answer says: the only kind of relevance that strings can show.

A chunk is relevant when some claim of the reference reaches the overlap threshold with that chunk alone, and the chunk has
at least one of the words that the claim adds to the question. Contradictions (another number, another name) do not count
here: the chunk is still about what was asked. Sharing words with the question alone is no sign of an answer, so without a
reference there is no verdict (`docs/judges.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ragpipe.core.citation_marks import find_marks, has_mark, marks_before_stops, without_marks
from ragpipe.core.errors import Skipped
from ragpipe.core.languages import NOT_COVERED, language_of, read_declining
from ragpipe.core.refusals import load_refusals, read_refusal
from ragpipe.core.sample import AnyReference
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.answers import (
    CheckedClaim,
    CheckedClaims,
    ChunkGrade,
    ChunkGrades,
    CitationVerdict,
    CitationVerdicts,
    CitedClaim,
    CitedClaims,
    Claims,
    Groundedness,
    QuotedClaim,
    QuotedClaims,
    QuotedVerdict,
    QuotedVerdicts,
    Refusal,
    SourceUse,
    SourceUses,
    Support,
    Verdict,
    Verdicts,
    YesNo,
)
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import IGNORED_ROLES, source_texts, values_by_role
from ragpipe.judge.rules.claims import (
    ClaimFeatures,
    SourceIndex,
    extract_claims,
    extract_features,
    index_sources,
    states_without_words,
)
from ragpipe.judge.rules.settings import CONTRADICTS_FROM, RulesSettings
from ragpipe.judge.rules.tokenized_text import tokenize

A = TypeVar("A", bound=Answer)

CANNOT_ANSWER = "rules_cannot_answer"
_UNRELATED = 0.2  # recall under which a claim is unrelated to the sources


class RulesJudge:
    """The judge `rules-v1`. Deterministic and safe in threads; answers are computed, never stored. Every change that can turn a verdict
    raises the version in `judge.rules`."""

    def __init__(self, settings: RulesSettings):
        self.settings = settings

    def answer(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A:
        """Answer one question from the prompt's values.

        Raises Skipped: `rules_cannot_answer` when there is no handler for the answer type and the prompt's roles
        (rubric questions, generation), or where the text states something that strings cannot tell ("No."); `no_factual_claims`
        when the text asserts nothing.
        """
        roles = values_by_role(prompt, values)
        handler = HANDLERS.get((answer, frozenset(roles) - IGNORED_ROLES)) if roles is not None else None
        if roles is None or handler is None:
            raise Skipped(CANNOT_ANSWER)
        return cast(A, handler(roles, self.settings))


def _findings(roles: Mapping[str, Any], settings: RulesSettings) -> list[ClaimFinding]:
    """The verdicts on the claims that are given, else on those of the text."""
    claims = [str(claim) for claim in roles["claims"]] if "claims" in roles else _claims(roles)
    return decide(claims, index_sources(source_texts(roles)), settings)


def _verify(roles: Mapping[str, Any], settings: RulesSettings) -> Verdicts:
    verdicts = [
        Verdict(index=index, supported=f.supported, evidence=f.evidence, reason=f.reason)
        for index, f in enumerate(_findings(roles, settings), 1)
    ]
    return Verdicts(verdicts=verdicts)


def _check(roles: Mapping[str, Any], settings: RulesSettings) -> CheckedClaims:
    """Extraction and verdicts at once, with the same result as one after the other."""
    claims = [
        CheckedClaim(claim=f.claim, supported=f.supported, evidence=f.evidence, reason=f.reason)
        for f in _findings(roles, settings)
    ]
    return CheckedClaims(claims=claims)


def _verify_with_quotes(roles: Mapping[str, Any], settings: RulesSettings) -> QuotedVerdicts:
    verdicts = [
        QuotedVerdict(index=index, evidence=f.quotes, reason=f.reason, verdict=f.support)
        for index, f in enumerate(_findings(roles, settings), 1)
    ]
    return QuotedVerdicts(verdicts=verdicts)


def _check_with_quotes(roles: Mapping[str, Any], settings: RulesSettings) -> QuotedClaims:
    claims = [
        QuotedClaim(claim=f.claim, evidence=f.quotes, reason=f.reason, verdict=f.support) for f in _findings(roles, settings)
    ]
    return QuotedClaims(claims=claims)


def _grade_chunks(roles: Mapping[str, Any], settings: RulesSettings) -> ChunkGrades:
    """One grade per chunk, in order. `relevance` is 100 x the best overlap of any claim of any reference.

    Raises Skipped when no reference claims anything: `no_factual_claims`, or `rules_cannot_answer` where one states something
    without words of its own ("No.").
    """
    reference = roles["reference"]
    references = reference.texts if isinstance(reference, AnyReference) else (str(reference),)
    claims = [claim for reference in references for claim in extract_claims(reference)]
    if not claims:
        if any(states_without_words(reference) for reference in references):
            raise Skipped(CANNOT_ANSWER)
        raise Skipped("no_factual_claims")
    question_words = frozenset(tokenize(str(roles.get("question", ""))).content)
    verdicts = [_grade_chunk(i, claims, question_words, chunk, settings) for i, chunk in enumerate(source_texts(roles), 1)]
    return ChunkGrades(verdicts=verdicts)


def _classify_source_use(roles: Mapping[str, Any], settings: RulesSettings) -> SourceUses:
    """The use of each source, under the number that the question shows, its place where it shows none."""
    answer, chunks = str(roles["text"]), source_texts(roles)
    numbers = roles.get("numbers") or range(1, len(chunks) + 1)
    return SourceUses(verdicts=[_use(n, answer, chunk, settings) for n, chunk in zip(numbers, chunks, strict=True)])


_EXISTING = YesNo(verdict="YES", text="YES: the existing answer stands")


def _has_existing(roles: Mapping[str, Any]) -> bool:
    return str(roles.get("existing", "")).strip()[:3].upper() == "YES"


def _supports_all(roles: Mapping[str, Any], settings: RulesSettings) -> YesNo:
    """Whether the sources support every claim of the text. An existing YES remains."""
    if _has_existing(roles):
        return _EXISTING
    claims = _claims_of(str(roles["text"]))
    if not claims:
        if "question" in roles:
            return YesNo(verdict="NO", text="NO: the text asserts nothing, so it answers nothing")
        raise Skipped("no_factual_claims")
    findings = decide(claims, index_sources(source_texts(roles)), settings)
    unsupported = [f for f in findings if not f.supported]
    verdict = "NO" if unsupported else "YES"
    supported = len(findings) - len(unsupported)
    text = f"{verdict}: {supported} of {len(findings)} claims supported"
    if unsupported:
        text += f"; first without support: {unsupported[0].claim[:200]!r} ({unsupported[0].reason})"
    return YesNo(verdict=verdict, text=text)


def _supports_a_point(roles: Mapping[str, Any], settings: RulesSettings) -> YesNo:
    """Whether the sources support a claim and contradict none; YES remains. Raises Skipped where a question is shown."""
    if "question" in roles:
        raise Skipped(CANNOT_ANSWER)
    if _has_existing(roles):
        return _EXISTING
    claims = _claims_of(str(roles["main_point"]))
    if not claims:
        raise Skipped("no_factual_claims")
    findings = decide(claims, index_sources(source_texts(roles)), settings)
    supported, contradicted = sum(f.supported for f in findings), [f for f in findings if f.contradicted]
    verdict = "YES" if supported and not contradicted else "NO"
    text = f"{verdict}: {supported} of {len(findings)} claims supported, {len(contradicted)} contradicted"
    if contradicted:
        text += f"; first {contradicted[0].claim[:200]!r} ({contradicted[0].reason})"
    return YesNo(verdict=verdict, text=text)


def _groundedness(roles: Mapping[str, Any], settings: RulesSettings) -> Groundedness:
    claims = _claims_of(str(roles["text"]))
    if not claims:
        raise Skipped("no_factual_claims")
    findings = decide(claims, index_sources(source_texts(roles)), settings)
    score, reason = _grade(findings)
    return Groundedness(
        score=score,
        supported_claims=[f.claim for f in findings if f.supported],
        unsupported_claims=[f.claim for f in findings if not f.supported],
        major_claims_cited=_mostly_cited(claims),
        reason=reason,
    )


def _mostly_cited(claims: Sequence[str]) -> bool | None:
    """Whether at least half of the claims have a citation mark; None without any mark in the text."""
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
    return (4 if share >= 0.75 else 3 if share >= 0.5 else 2), reason


def _claims(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """The claims of the answer, or of the reference where that is the text. Raises Skipped for alternative references."""
    text = roles["text"] if "text" in roles else roles["reference"]
    if isinstance(text, AnyReference):
        raise Skipped(CANNOT_ANSWER)
    return _claims_of(str(text))


def _claims_of(text: str) -> tuple[str, ...]:
    """The claims of a text; none of one that declines. Raises Skipped where none is found and it may state something."""
    claims = () if declines(text) else extract_claims(text)
    if not claims and not declines(text) and states_without_words(text):
        raise Skipped(CANNOT_ANSWER)
    return claims


_Handler = Callable[[Mapping[str, Any], RulesSettings], Answer]
HANDLERS: dict[tuple[type[Answer], frozenset[str]], _Handler] = {
    (Claims, frozenset(("text",))): lambda roles, _: Claims(claims=list(_claims(roles))),
    (Claims, frozenset(("reference",))): lambda roles, _: Claims(claims=list(_claims(roles))),
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
    (CitationVerdicts, frozenset(("sources", "citations"))): lambda roles, settings: check_citations(
        roles["citations"], source_texts(roles), settings
    ),
    (CitedClaims, frozenset(("text", "citations"))): lambda roles, _: find_cited_claims(str(roles["text"]), roles["citations"]),
    (SourceUses, frozenset(("text", "sources"))): _classify_source_use,
    (SourceUses, frozenset(("text", "sources", "numbers"))): _classify_source_use,
    (Refusal, frozenset(("text",))): lambda roles, _: classify_refusal(str(roles["text"])),
}


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """The verdict on one claim. `overlap` is the mean that is compared with the threshold; `objections` are what
    contradicts the claim."""

    claim: str
    supported: bool
    overlap: float
    objections: tuple[str, ...]
    features: ClaimFeatures
    threshold: float

    @property
    def contradicted(self) -> bool:
        """Whether the sources are about the same thing, but a number, name, quotation or negation is not theirs."""
        return bool(self.objections) and self.overlap >= CONTRADICTS_FROM

    @property
    def evidence(self) -> str:
        """A literal passage of one source that supports the claim or that it contradicts; '' for neither."""
        return self.features.evidence if self.supported or self.contradicted else ""

    @property
    def quotes(self) -> list[str]:
        """The evidence as a list."""
        return [self.evidence] if self.evidence else []

    @property
    def support(self) -> Support:
        """What the sources do with the claim."""
        if self.supported:
            return "supported"
        return "contradicted" if self.contradicted else "not_supported"

    @property
    def reason(self) -> str:
        """The objections, and the figures behind the verdict."""
        f = self.features
        figures = (
            f"overlap {self.overlap:.2f} of {self.threshold:.2f} needed (words {f.recall:.2f}, best window {f.window:.2f}, "
            f"word pairs {f.bigrams:.2f}, common order {f.lcs:.2f}; numbers {f.numbers:.2f}, names {f.names:.2f})"
        )
        return "; ".join((*self.objections, figures))


def decide(claims: Sequence[str], sources: SourceIndex, settings: RulesSettings) -> list[ClaimFinding]:
    """One finding per claim, in order. A repeated claim is decided once.

    Raises Skipped (`language_not_covered`) where either the claims or the sources alone are English, and where the sources are
    not and a claim is neither supported nor contradicted: without stems and stop words, other words say nothing there. Names
    are not compared in such texts: in some languages every noun has a capital.
    """
    told = {language_of(" ".join(claims)), sources.language} - {None}
    if "en" in told and not told <= {"en", "other"}:
        raise Skipped(NOT_COVERED)
    covered = told <= {"en"}
    findings = {claim: _decide_claim(claim, sources, settings, names=covered) for claim in dict.fromkeys(claims)}
    if not covered and not all(finding.supported or finding.contradicted for finding in findings.values()):
        raise Skipped(NOT_COVERED)
    return [findings[claim] for claim in claims]


def _decide_claim(claim: str, sources: SourceIndex, settings: RulesSettings, *, names: bool) -> ClaimFinding:
    features = extract_features(claim, sources)
    overlap = (features.recall + features.window + features.bigrams + features.lcs) / 4
    objections = tuple(_objections(features, names=names))
    # Support needs a passage to show: a superscript 2 may match a number, and is no word.
    supported = overlap >= settings.threshold and not objections and bool(features.evidence)
    return ClaimFinding(claim, supported, overlap, objections, features, settings.threshold)


def _objections(features: ClaimFeatures, *, names: bool) -> list[str]:
    objections = []
    if features.missing_numbers:
        objections.append(f"not in the sources: number {', '.join(features.missing_numbers)}")
    if names and features.missing_names:
        objections.append(f"not in the sources: name {', '.join(features.missing_names)}")
    if not features.quotes:
        objections.append("a quotation is not in the sources")
    if features.negated:
        objections.append("the nearest sentence says it with the opposite negation")
    return objections


def _grade_chunk(
    position: int, claims: Sequence[str], question_words: frozenset[str], chunk: str, settings: RulesSettings
) -> ChunkGrade:
    sources = index_sources((chunk,))
    findings = [f for f in decide(claims, sources, settings) if _adds_to_question(f, question_words, sources.stems)]
    best = max(findings, key=lambda finding: finding.overlap, default=None)
    if best is None:
        return ChunkGrade(index=position, reason="no word that the reference adds to the question", relevance=0, relevant=False)
    reason = f"overlap {best.overlap:.2f} of {settings.threshold:.2f} needed with {best.claim[:200]!r}"
    relevant = best.overlap >= settings.threshold
    return ChunkGrade(index=position, reason=reason, relevance=round(100 * best.overlap, 2), relevant=relevant)


def _adds_to_question(finding: ClaimFinding, question_words: frozenset[str], stems: frozenset[str]) -> bool:
    """Whether the chunk has a word that the claim adds to the question; true when it adds none."""
    added = frozenset(tokenize(without_marks(finding.claim)).content) - question_words
    return not added or bool(added & stems)


_PATTERNS = "refusals.v3"
_SAME = 0.8  # share of a claim's content words that a recorded citation's text must have to count for the claim
_QUOTE = 6  # consecutive words that count as a quote


def check_citations(citations: Sequence[Mapping[str, Any]], chunks: Sequence[str], settings: RulesSettings) -> CitationVerdicts:
    """Check each cited passage against its chunk: accurate when one of its claims is supported and none contradicted."""
    verdicts = [_check_citation(i, citation, chunks, settings) for i, citation in enumerate(citations, 1)]
    return CitationVerdicts(verdicts=verdicts)


def _check_citation(index: int, citation: Mapping[str, Any], chunks: Sequence[str], settings: RulesSettings) -> CitationVerdict:
    claims = extract_claims(str(citation["text"])) or (without_marks(str(citation["text"])),)
    findings = decide(claims, index_sources((chunks[int(citation["source"]) - 1],)), settings)
    best = max(findings, key=lambda finding: (finding.supported, finding.overlap))
    accurate = best.supported and not any(finding.contradicted for finding in findings)
    return CitationVerdict(index=index, accurate=accurate, evidence=best.evidence, reason=best.reason)


def find_cited_claims(answer: str, citations: Sequence[str]) -> CitedClaims:
    """The claims of an answer. A claim is cited when it has a citation mark, or a recorded citation says nearly the same."""
    recorded = [frozenset(tokenize(without_marks(text.partition(": ")[2] or text)).content) for text in citations]
    return CitedClaims(claims=[_cited(claim, recorded) for claim in extract_claims(marks_before_stops(answer))])


def _cited(claim: str, recorded: Sequence[frozenset[str]]) -> CitedClaim:
    mark = next((claim[mark.start : mark.end].strip() for mark in find_marks(claim)), "")
    words = frozenset(tokenize(without_marks(claim)).content)
    is_recorded = any(words and len(words & text) >= _SAME * len(words) for text in recorded)
    return CitedClaim(claim=claim, marker=mark, cited=bool(mark) or is_recorded)


def _use(index: int, answer: str, chunk: str, settings: RulesSettings) -> SourceUse:
    """Paraphrased: a claim that is no quote is supported by this source alone. Quoted: the answer repeats its words."""
    words = tokenize(chunk).plain
    claims = extract_claims(answer)
    quotes = [claim for claim in claims if _quoted_parts(claim, words)]
    for finding in decide([claim for claim in claims if claim not in quotes], index_sources((chunk,)), settings):
        if finding.supported:
            return SourceUse(index=index, use="paraphrase", evidence=finding.claim, reason=finding.reason)
    if quotes:
        return SourceUse(index=index, use="direct_quote", evidence=quotes[0], reason="word for word in the source")
    return SourceUse(index=index, use="not_used", reason="no claim that the source supports")


def _quoted_parts(claim: str, words: str) -> bool:
    """Whether the claim is a quote of the source, or holds one in quotation marks."""
    tokenized = tokenize(without_marks(claim))
    quotes = [tokenize(quote).plain for quote in tokenized.quotes]
    if any(quote.strip() and quote in words for quote in quotes):
        return True
    return len(tokenized.plain.split()) >= _QUOTE and tokenized.plain in words


def declines(answer: str) -> bool:
    """Whether an answer in another language than English clearly declines."""
    return read_declining(answer, load_refusals(_PATTERNS).languages) == "declines"


def classify_refusal(answer: str) -> Refusal:
    """Whether the answer declines, by the rules of `refusals.v3`, which read all of it.

    Raises Skipped (`language_not_covered`) where they cannot tell it in the language of the answer.
    """
    refusal = read_refusal(answer, load_refusals(_PATTERNS))
    if not refusal.covered:
        raise Skipped(NOT_COVERED)
    kinds = ", ".join(dict.fromkeys(kind for kind, _ in refusal.clauses)) or "nothing"
    return Refusal(declines=refusal.refused, training_cutoff=refusal.training_cutoff, reason=f"its clauses: {kinds}")
