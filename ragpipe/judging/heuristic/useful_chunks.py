"""Which chunks hold what a reference answer says: the one kind of relevance that strings can show.

A chunk is useful when some statement of the reference reaches the threshold of overlap with that chunk alone, and the chunk
has at least one of the words that the statement adds to the question. What contradicts a claim elsewhere (another number,
another name) is not held against it here: the chunk still speaks of what was asked. Sharing words with the question alone is
no sign of an answer, so without a reference nothing is said (`docs/evidence.md`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ragpipe.core.errors import Skipped
from ragpipe.judging.heuristic.claim_features import pool_of
from ragpipe.judging.heuristic.claim_splitting import claims_of, without_citations
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.heuristic.tokenized_text import tokenize
from ragpipe.judging.heuristic.verdict_rules import ClaimFinding, decide
from ragpipe.schema.judge_answers.answers import ChunkGrade, ChunkGrades


def useful_chunks(
    question: str, references: Sequence[str], chunks: Sequence[str], settings: HeuristicSettings
) -> ChunkGrades:
    """A grade for each chunk, in order; `relevance` is 100 x the best overlap of a statement of a reference: with several,
    a chunk is as useful as by the reference that speaks best for it.

    Raises Skipped (`no_factual_claims`) when no reference states anything.
    """
    statements = [claim for reference in references for claim in claims_of(reference)]
    if not statements:
        raise Skipped("no_factual_claims")
    asked = frozenset(tokenize(question).content)
    return ChunkGrades(verdicts=[_grade(i, statements, asked, chunk, settings) for i, chunk in enumerate(chunks, 1)])


def _grade(
    index: int, statements: Sequence[str], asked: frozenset[str], chunk: str, settings: HeuristicSettings
) -> ChunkGrade:
    pool = pool_of((chunk,))
    told = [finding for finding in decide(statements, pool, settings) if _tells(finding, asked, pool.stems)]
    best = max(told, key=lambda finding: finding.overlap, default=None)
    if best is None:
        return ChunkGrade(
            index=index, reason="no word that the reference adds to the question", relevance=0, relevant=False
        )
    reason = f"overlap {best.overlap:.2f} of {settings.threshold:.2f} needed with {best.claim[:200]!r}"
    relevant = best.overlap >= settings.threshold
    return ChunkGrade(index=index, reason=reason, relevance=round(100 * best.overlap, 2), relevant=relevant)


def _tells(finding: ClaimFinding, asked: frozenset[str], stems: frozenset[str]) -> bool:
    """Whether the chunk has a word that the statement adds to the question; true when it adds none."""
    added = frozenset(tokenize(without_citations(finding.claim)).content) - asked
    return not added or bool(added & stems)
