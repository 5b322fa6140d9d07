"""The share of the reference answer's statements that the retrieved contexts contain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.claim_metric import ClaimMetric, claim_details, contradicted_words, share_of_claims
from ragpipe.metrics.shared.multi_reference import ReferenceMetric, by_reference

TOP = 100


class ContextRecallMetric(ReferenceMetric, ClaimMetric):
    """Attributed statements / statements of the reference answer, 0 to 100: could the answer have been complete?

    `extract` lists the statements of the reference answer; `verify` attributes each to the contexts, `batch`
    statements per call; `steps: combined` does both in one call. The details name the chunk and the characters of the
    evidence of each statement, as for `faithfulness`. An attributed statement whose evidence is in no chunk is flagged
    `evidence_not_found` and counted, and changes nothing. The generated answer plays no part.

    A reference that only declines ("not in the documents") makes one statement in version 2 of the templates: that the
    documents do not say what was asked. 100 where the contexts indeed do not, 0 where they do: then the label is wrong
    or old. No passage shows what is missing, so such a statement is flagged `evidence_not_found`. In version 1, and for
    the rules judge where it knows the words of a refusal, the reference has no statement: 100, `no_statements`. A
    reference such as "No.", in which the rules judge finds no statement, is skipped (`rules_cannot_answer`).

    No contexts is 0, `no_context_retrieved`, without a call and without asking whether there is a statement. Of several
    references, the one whose statements are covered best counts, be it one that declines (one without a statement only
    where none has any); with `references: all` the statements of all of them, each once. Needs a reference. Source:
    RAGAS context recall.
    """

    gives = ScoreSpec("", 0, TOP)
    version = 2
    needs = frozenset({"reference"})
    best_of_each = True
    pools = True
    last_resort = frozenset({"no_statements"})
    reads = frozenset({"contexts"})

    def texts_of(self, case: Case) -> list[dict[str, str]]:
        return [{"reference": text} for text in case.references]

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        share = share_of_claims(details)
        return f"{TOP} x {share}" if share else None

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Score:
        claims = await self.checked_claims(case, judge) if case.contexts else []
        details = claim_details(claims, case, [])
        if not case.contexts:
            return Score(0, reason="no_context_retrieved", details=details)
        if not claims:
            return Score(TOP, reason="no_statements", details=details)
        reason = f"{details['supported']} of {len(claims)} statements are in the contexts{contradicted_words(details)}"
        return Score(TOP * details["supported"] / len(claims), reason=reason, details=details)
