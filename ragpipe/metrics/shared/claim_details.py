"""Claims with their verdicts, as the details of a score show them: each quote of the judge with its place in the contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.schema.judge_answers.claim_answers import CheckedClaim, QuotedClaim, QuotedVerdict, Support, Verdict
from ragpipe.schema.sample import Case, QuotableChunks

EVIDENCE_NOT_FOUND = "evidence_not_found"
CONTRADICTION_NOT_FOUND = "contradiction_not_found"


@dataclass(frozen=True, slots=True)
class JudgedClaim:
    """A claim and what the judge says of it. `verdict` is None where the judge was not asked to tell a contradicted claim
    from one on which the contexts are silent."""

    claim: str
    supported: bool
    evidence: tuple[str, ...] = ()
    reason: str = ""
    verdict: Support | None = None

    @property
    def contradicted(self) -> bool:
        """True where the judge says so; a judge that was not asked never does."""
        return self.verdict == "contradicted"


def judged_claim(text: str, verdict: Verdict | CheckedClaim | QuotedVerdict | QuotedClaim) -> JudgedClaim:
    """A claim with its verdict, whichever form of reply it is from. A quote that is given twice is one."""
    if isinstance(verdict, QuotedVerdict | QuotedClaim):
        supported, quotes, support = verdict.verdict == "supported", verdict.evidence, verdict.verdict
    else:
        supported, quotes, support = verdict.supported, [verdict.evidence], None
    evidence = tuple(dict.fromkeys(quote for quote in quotes if quote.strip()))
    return JudgedClaim(text, supported, evidence, verdict.reason, support)


def claim_details(claims: Sequence[JudgedClaim], case: Case, flags: list[str]) -> dict[str, Any]:
    """The claims with their verdicts and quotes, and their counts.

    Each quote has its `places` (`QuotableChunks.places`); one that occurs in no context has none.

    A supported claim none of whose quotes occurs is counted and flagged `evidence_not_found`; it stays supported. A
    contradicted claim is counted and flagged `contradiction_not_found` in the same way, and stays contradicted. Verdict and
    counts of contradicted claims are there only where the judge told them from the others.
    """
    contexts = QuotableChunks(case.contexts)
    rows = [_row(claim, contexts) for claim in claims]
    not_shown = [claim for claim, row in zip(claims, rows, strict=True) if row.get("evidence_found") is False]
    missing = {EVIDENCE_NOT_FOUND: sum(claim.supported for claim in not_shown)}
    contradicted = {}
    if any(claim.verdict for claim in claims):
        contradicted = {"contradicted": sum(claim.contradicted for claim in claims)}
        missing[CONTRADICTION_NOT_FOUND] = sum(claim.contradicted for claim in not_shown)
    return {
        "claims": rows,
        "total": len(rows),
        "supported": sum(claim.supported for claim in claims),
        **contradicted,
        "unsupported_claims": [claim.claim for claim in claims if not claim.supported],
        **missing,
        "flags": flags + [flag for flag, count in missing.items() if count],
    }


def share_of_claims(details: Mapping[str, Any]) -> str | None:
    """How a share of claims came about, from `claim_details`; None where there was no claim."""
    return f"{details['supported']} supported / {details['total']} claims" if details.get("total") else None


def contradicted_words(details: Mapping[str, Any]) -> str:
    """`, 1 contradicted`, to be put behind a count of supported claims; empty where none is."""
    return f", {details['contradicted']} contradicted" if details.get("contradicted") else ""


def _row(claim: JudgedClaim, contexts: QuotableChunks) -> dict[str, Any]:
    evidence = [{"quote": quote, "places": contexts.places(quote)} for quote in claim.evidence]
    row: dict[str, Any] = {
        "claim": claim.claim,
        "evidence": evidence,
        "reason": claim.reason,
        "supported": claim.supported,
    }
    if claim.verdict:
        row["verdict"] = claim.verdict
    if claim.supported or claim.contradicted:
        row["evidence_found"] = any(quote["places"] for quote in evidence)
    return row
