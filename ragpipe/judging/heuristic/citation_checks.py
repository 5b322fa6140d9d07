"""Citations, use of sources and refusals, as far as strings can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.errors import Skipped
from ragpipe.judging.heuristic.claim_features import index_sources
from ragpipe.judging.heuristic.claim_splitting import extract_claims
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.heuristic.tokenized_text import tokenize
from ragpipe.judging.heuristic.verdict_rules import decide
from ragpipe.patterns.citation_marks import find_marks, marks_before_stops, without_marks
from ragpipe.patterns.languages import NOT_COVERED, read_declining
from ragpipe.patterns.refusals import load_refusals, read_refusal
from ragpipe.schema.judge_answers.behaviour_answers import Refusal
from ragpipe.schema.judge_answers.citation_answers import (
    CitationVerdict,
    CitationVerdicts,
    CitedClaim,
    CitedClaims,
    SourceUse,
    SourceUses,
)

_PATTERNS = "refusals.v3"
_SAME = 0.8  # share of a claim's content words that a recorded citation's text must have to count for the claim
_QUOTE = 6  # consecutive words that count as a quote


def check_citations(
    citations: Sequence[Mapping[str, Any]], chunks: Sequence[str], settings: HeuristicSettings
) -> CitationVerdicts:
    """Check each cited passage against its chunk: accurate when one of its claims is supported and none contradicted."""
    verdicts = [_check_citation(i, citation, chunks, settings) for i, citation in enumerate(citations, 1)]
    return CitationVerdicts(verdicts=verdicts)


def _check_citation(
    index: int, citation: Mapping[str, Any], chunks: Sequence[str], settings: HeuristicSettings
) -> CitationVerdict:
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


def classify_source_use(answer: str, chunks: Sequence[str], settings: HeuristicSettings) -> SourceUses:
    """How the answer uses each source.

    Paraphrased: a claim that is no quote is supported by this source alone. Quoted: the answer repeats its words.
    """
    return SourceUses(verdicts=[_use(i, answer, chunk, settings) for i, chunk in enumerate(chunks, 1)])


def _use(index: int, answer: str, chunk: str, settings: HeuristicSettings) -> SourceUse:
    words = tokenize(chunk).plain
    claims = extract_claims(answer)
    quotes = [claim for claim in claims if _quotes(claim, words)]
    for finding in decide([claim for claim in claims if claim not in quotes], index_sources((chunk,)), settings):
        if finding.supported:
            return SourceUse(index=index, use="paraphrase", evidence=finding.claim, reason=finding.reason)
    if quotes:
        return SourceUse(index=index, use="direct_quote", evidence=quotes[0], reason="word for word in the source")
    return SourceUse(index=index, use="not_used", reason="no claim that the source supports")


def _quotes(claim: str, words: str) -> bool:
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
