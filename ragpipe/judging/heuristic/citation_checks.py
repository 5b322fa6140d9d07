"""Citations, uses of sources and refusals, as far as strings can tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ragpipe.judging.heuristic.claim_features import pool_of
from ragpipe.judging.heuristic.claim_splitting import CITATION, claims_of, without_citations
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.heuristic.tokenized_text import tokenize
from ragpipe.judging.heuristic.verdict_rules import decide
from ragpipe.patterns.refusals import RefusalPatterns, load_refusals, read_refusal
from ragpipe.schema.judge_answers.behaviour import (
    CitationVerdict,
    CitationVerdicts,
    CitedClaim,
    CitedClaims,
    Refusal,
    SourceUse,
    SourceUses,
)

_SAME = 0.8  # share of a claim's content words in a recorded citation's text from which the citation stands for it
_QUOTE = 6  # words in a row that are a quote


def citations_hold(
    citations: Sequence[Mapping[str, Any]], chunks: Sequence[str], settings: HeuristicSettings
) -> CitationVerdicts:
    """Each cited passage against its own chunk: accurate when one of its statements is supported and none contradicted."""
    return CitationVerdicts(verdicts=[_holds(i, one, chunks, settings) for i, one in enumerate(citations, 1)])


def _holds(
    index: int, citation: Mapping[str, Any], chunks: Sequence[str], settings: HeuristicSettings
) -> CitationVerdict:
    claims = claims_of(str(citation["text"])) or (without_citations(str(citation["text"])),)
    found = decide(claims, pool_of((chunks[int(citation["source"]) - 1],)), settings)
    best = max(found, key=lambda finding: (finding.supported, finding.overlap))
    accurate = best.supported and not any(finding.contradicted for finding in found)
    return CitationVerdict(index=index, accurate=accurate, evidence=best.evidence, reason=best.reason)


def cited_claims(answer: str, citations: Sequence[str]) -> CitedClaims:
    """The claims of an answer; one is cited when it carries a mark, or a recorded citation says nearly the same."""
    recorded = [frozenset(tokenize(without_citations(text.partition(": ")[2] or text)).content) for text in citations]
    return CitedClaims(claims=[_cited(claim, recorded) for claim in claims_of(_marks_inside(answer))])


def _cited(claim: str, recorded: Sequence[frozenset[str]]) -> CitedClaim:
    mark = CITATION.search(claim)
    words = frozenset(tokenize(without_citations(claim)).content)
    beside = any(words and len(words & one) >= _SAME * len(words) for one in recorded)
    return CitedClaim(claim=claim, marker=mark[0].strip() if mark else "", cited=bool(mark) or beside)


def _marks_inside(answer: str) -> str:
    """The answer with the marks that stand behind a full stop put before it, so that they stay with their sentence."""
    return re.sub(r"([.!?])((?:\s?\[\s?\^?\d[\d,; –-]*\])+)", r"\2\1", answer)


def source_uses(answer: str, chunks: Sequence[str], settings: HeuristicSettings) -> SourceUses:
    """A source is paraphrased when a claim that is no quote of it is supported by it alone, quoted when words are its own."""
    return SourceUses(verdicts=[_use(i, answer, chunk, settings) for i, chunk in enumerate(chunks, 1)])


def _use(index: int, answer: str, chunk: str, settings: HeuristicSettings) -> SourceUse:
    words = tokenize(chunk).plain
    claims = claims_of(answer)
    quotes = [claim for claim in claims if _quotes(claim, words)]
    for finding in decide([claim for claim in claims if claim not in quotes], pool_of((chunk,)), settings):
        if finding.supported:
            return SourceUse(index=index, use="paraphrase", evidence=finding.claim, reason=finding.reason)
    if quotes:
        return SourceUse(index=index, use="direct_quote", evidence=quotes[0], reason="word for word in the source")
    return SourceUse(index=index, use="not_used", reason="no claim that the source supports")


def _quotes(claim: str, words: str) -> bool:
    """Whether the claim is a quote of the source, or holds one in quotation marks."""
    reading = tokenize(without_citations(claim))
    inside = [tokenize(quote).plain for quote in reading.quotes]
    whole = reading.plain
    return any(one.strip() and one in words for one in inside) or (len(whole.split()) >= _QUOTE and whole in words)


@lru_cache(maxsize=1)
def _patterns() -> RefusalPatterns:
    return load_refusals("refusals.v2")


def declines(answer: str) -> Refusal:
    """By the rules of `refusals.v2`, which read the whole answer."""
    found = read_refusal(answer, _patterns())
    said = ", ".join(dict.fromkeys(kind for kind, _ in found.clauses)) or "nothing"
    return Refusal(declines=found.refused, training_cutoff=found.training_cutoff, reason=f"its clauses: {said}")
