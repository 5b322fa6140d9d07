"""Base of metrics that split a text into claims and check each against all contexts, in two steps or in one call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.sample import Case, QuotableChunks
from ragpipe.judge.answers import (
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
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, gather_ordered, verdicts_in_batches

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")


class ClaimMetric(JudgeMetric):
    """`steps: separate`: `extract` lists the claims of a text, `verify` judges `batch` of them per call (1: one call per
    claim) against all contexts. `steps: combined`: one call lists and judges. That is cheaper, but a judge that reads the
    contexts while it lists claims may lean towards them. Only the prompts of the chosen steps are loaded.
    """

    answer_types = {"extract": (Claims,), "verify": (Verdicts, QuotedVerdicts), "combined": (CheckedClaims, QuotedClaims)}

    extract: Prompt | None = None
    verify: Prompt | None = None
    combined: Prompt | None = None
    steps: Literal["separate", "combined"] = Field(
        default="separate",
        description=(
            "separate: one call lists the claims, others verify them. combined: one call does both, which is "
            "cheaper but less independent."
        ),
    )
    batch: int = Field(default=20, ge=1, description="Claims per verifying call, 1 or more.")

    @classmethod
    def unused_steps(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(("extract", "verify") if parameters.get("steps") == "combined" else ("combined",))

    def texts_of(self, case: Case) -> list[dict[str, str]]:
        """The texts to split into claims, each under its name in the templates. Their claims are checked together."""
        raise NotImplementedError

    async def checked_claims(self, case: Case, judge: Judge) -> list[JudgedClaim]:
        """The claims of the texts in order, each once, with their verdicts. Empty when the texts make no claim.

        Where nothing was retrieved, the claims are listed and none is supported, whatever the judge says in `combined`.
        """
        if self.steps == "combined":
            claims = await self._combined_claims(case, judge)
            return claims if case.contexts else _unsupported(claim.claim for claim in claims)
        texts = await self._extracted_claims(case, judge)
        return await self._verified_claims(texts, case, judge) if case.contexts else _unsupported(texts)

    async def _combined_claims(self, case: Case, judge: Judge) -> list[JudgedClaim]:
        prompt, answer = self.prompts()["combined"], self.answer_type("combined")
        shown = {"contexts": case.contexts, "question": case.question}
        values = (self.prompt_values(prompt, case, **shown, **text) for text in self.texts_of(case))
        replies: list[Any] = await gather_ordered(*(judge(prompt, answer, **each) for each in values))
        return _deduplicate(judged_claim(claim.claim.strip(), claim) for reply in replies for claim in reply.claims)

    async def _extracted_claims(self, case: Case, judge: Judge) -> list[str]:
        prompt = self.prompts()["extract"]
        values = (self.prompt_values(prompt, case, question=case.question, **text) for text in self.texts_of(case))
        replies = await gather_ordered(*(judge(prompt, Claims, **each) for each in values))
        return clean_claims(claim for reply in replies for claim in reply.claims)

    async def _verified_claims(self, claims: list[str], case: Case, judge: Judge) -> list[JudgedClaim]:
        prompt, answer = self.prompts()["verify"], self.answer_type("verify")

        async def ask(part: list[str], again: bool) -> list[Verdict | QuotedVerdict]:
            values = self.prompt_values(prompt, case, again=again, contexts=case.contexts, claims=part)
            reply: Any = await judge(prompt, answer, **values)
            return list(reply.verdicts)

        verdicts = await verdicts_in_batches(claims, self.batch, ask)
        return [judged_claim(claim, verdict) for claim, verdict in zip(claims, verdicts, strict=True)]


def clean_claims(claims: Iterable[str]) -> list[str]:
    """The claims that hold a word, each once, in order."""
    return list(dict.fromkeys(c.strip() for c in claims if _has_a_word(c)))


def _deduplicate(claims: Iterable[JudgedClaim]) -> list[JudgedClaim]:
    """Each claim once, at its first place, with the worst verdict: contradicted, then not supported."""
    by_text: dict[str, JudgedClaim] = {}
    for claim in claims:
        known = by_text.setdefault(claim.claim, claim)
        if (claim.contradicted, not claim.supported) > (known.contradicted, not known.supported):
            by_text[claim.claim] = claim
    return [claim for claim in by_text.values() if _has_a_word(claim.claim)]


def _unsupported(claims: Iterable[str]) -> list[JudgedClaim]:
    return [JudgedClaim(claim, supported=False, reason="nothing was retrieved") for claim in claims]


def _has_a_word(text: str) -> bool:
    return any(c.isalnum() for c in text)


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
    row: dict[str, Any] = {"claim": claim.claim, "evidence": evidence, "reason": claim.reason, "supported": claim.supported}
    if claim.verdict:
        row["verdict"] = claim.verdict
    if claim.supported or claim.contradicted:
        row["evidence_found"] = any(quote["places"] for quote in evidence)
    return row
