"""Which chunks contain what a reference answer says: the only kind of relevance that strings can show.

A chunk is relevant when some claim of the reference reaches the overlap threshold with that chunk alone, and the chunk has
at least one of the words that the claim adds to the question. Contradictions (another number, another name) do not count
here: the chunk is still about what was asked. Sharing words with the question alone is no sign of an answer, so without a
reference there is no verdict (`docs/offline-judge.md`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ragpipe.core.errors import Skipped
from ragpipe.judging.heuristic.claim_features import index_sources
from ragpipe.judging.heuristic.claim_splitting import extract_claims, states_without_words
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.heuristic.tokenized_text import tokenize
from ragpipe.judging.heuristic.verdict_rules import ClaimFinding, decide
from ragpipe.patterns.citation_marks import without_marks
from ragpipe.schema.judge_answers.relevance_answers import ChunkGrade, ChunkGrades


def grade_chunks(
    question: str, references: Sequence[str], chunks: Sequence[str], settings: HeuristicSettings
) -> ChunkGrades:
    """One grade per chunk, in order. `relevance` is 100 x the best overlap of any claim of any reference.

    Raises Skipped when no reference claims anything: `no_factual_claims`, or `evidence_cannot_answer` where one states something
    without words of its own ("No.").
    """
    claims = [claim for reference in references for claim in extract_claims(reference)]
    if not claims:
        if any(states_without_words(reference) for reference in references):
            raise Skipped("evidence_cannot_answer")
        raise Skipped("no_factual_claims")
    question_words = frozenset(tokenize(question).content)
    verdicts = [_grade(i, claims, question_words, chunk, settings) for i, chunk in enumerate(chunks, 1)]
    return ChunkGrades(verdicts=verdicts)


def _grade(
    position: int, claims: Sequence[str], question_words: frozenset[str], chunk: str, settings: HeuristicSettings
) -> ChunkGrade:
    sources = index_sources((chunk,))
    findings = [f for f in decide(claims, sources, settings) if _adds_to_question(f, question_words, sources.stems)]
    best = max(findings, key=lambda finding: finding.overlap, default=None)
    if best is None:
        return ChunkGrade(
            index=position, reason="no word that the reference adds to the question", relevance=0, relevant=False
        )
    reason = f"overlap {best.overlap:.2f} of {settings.threshold:.2f} needed with {best.claim[:200]!r}"
    relevant = best.overlap >= settings.threshold
    return ChunkGrade(index=position, reason=reason, relevance=round(100 * best.overlap, 2), relevant=relevant)


def _adds_to_question(finding: ClaimFinding, question_words: frozenset[str], stems: frozenset[str]) -> bool:
    """Whether the chunk has a word that the claim adds to the question; true when it adds none."""
    added = frozenset(tokenize(without_marks(finding.claim)).content) - question_words
    return not added or bool(added & stems)
