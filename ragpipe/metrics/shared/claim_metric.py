"""Base of metrics that split a text into claims and check each against all contexts, in two steps or in one call."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from ragpipe.judging.any_judge import Judge
from ragpipe.metrics.base import PlannedCall
from ragpipe.metrics.shared.batched_verdicts import verdicts_in_batches
from ragpipe.metrics.shared.claim_details import JudgedClaim, judged_claim
from ragpipe.metrics.shared.judge_metric import JudgeMetric, gather_ordered
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.claim_answers import (
    CheckedClaims,
    Claims,
    QuotedClaims,
    QuotedVerdict,
    QuotedVerdicts,
    Verdict,
    Verdicts,
)
from ragpipe.schema.sample import Case

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")


class ClaimMetric(JudgeMetric):
    """`steps: separate`: `extract` lists the claims of a text, `verify` judges `batch` of them per call (1: one call per
    claim) against all contexts. `steps: combined`: one call lists and judges. That is cheaper, but a judge that reads the
    contexts while it lists claims may lean towards them. Only the prompts of the chosen steps are loaded.
    """

    answer_types: ClassVar[Mapping[str, tuple[type[Answer], ...]]] = {
        "extract": (Claims,),
        "verify": (Verdicts, QuotedVerdicts),
        "combined": (CheckedClaims, QuotedClaims),
    }

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

    def planned_calls(self, case: Case) -> Iterable[PlannedCall]:
        prompts, texts = self.prompts(), self.texts_of(case)
        if self.steps == "combined":
            for text in texts:
                values = self._combined_values(prompts["combined"], case, text)
                yield PlannedCall(prompts["combined"], self.answer_type("combined"), values)
            return
        extract, verify = prompts["extract"], prompts["verify"]
        for text in texts:
            yield PlannedCall(extract, Claims, self._extract_values(extract, case, text))
        if not case.contexts:
            return
        claims = [claim for text in texts for claim in likely_claims(*text.values())]
        values = self.prompt_values(verify, case, contexts=case.contexts, claims=claims[: self.batch])
        yield PlannedCall(verify, self.answer_type("verify"), values, times=math.ceil(len(claims) / self.batch))

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
        values = (self._combined_values(prompt, case, text) for text in self.texts_of(case))
        replies: list[Any] = await gather_ordered(*(judge(prompt, answer, **each) for each in values))
        return _deduplicate(judged_claim(claim.claim.strip(), claim) for reply in replies for claim in reply.claims)

    async def _extracted_claims(self, case: Case, judge: Judge) -> list[str]:
        prompt = self.prompts()["extract"]
        values = (self._extract_values(prompt, case, text) for text in self.texts_of(case))
        replies = await gather_ordered(*(judge(prompt, Claims, **each) for each in values))
        return clean_claims(claim for reply in replies for claim in reply.claims)

    async def _verified_claims(self, claims: list[str], case: Case, judge: Judge) -> list[JudgedClaim]:
        prompt, answer = self.prompts()["verify"], self.answer_type("verify")

        async def ask(part: list[str], again: bool) -> list[Verdict | QuotedVerdict]:
            parts = {"again": True} if again else {}
            values = self.prompt_values(prompt, case, parts, contexts=case.contexts, claims=part)
            reply: Any = await judge(prompt, answer, **values)
            verdicts: list[Verdict | QuotedVerdict] = reply.verdicts
            return verdicts

        verdicts = await verdicts_in_batches(claims, self.batch, ask)
        return [judged_claim(claim, verdict) for claim, verdict in zip(claims, verdicts, strict=True)]

    def _extract_values(self, prompt: Prompt, case: Case, text: Mapping[str, str]) -> dict[str, Any]:
        return self.prompt_values(prompt, case, question=case.question, **text)

    def _combined_values(self, prompt: Prompt, case: Case, text: Mapping[str, str]) -> dict[str, Any]:
        return self.prompt_values(prompt, case, contexts=case.contexts, question=case.question, **text)


def likely_claims(text: str) -> list[str]:
    """Texts like the claims of a text, for the plan: the real ones are known after the first reply.

    Judges find about two claims per sentence in long answers.
    """
    return [part for part in _SENTENCE.split(text) if any(c.isalpha() for c in part)] * 2 or [text]


def clean_claims(claims: Iterable[str]) -> list[str]:
    """The claims that hold a word, each once, in order."""
    return list(dict.fromkeys(c.strip() for c in claims if _has_a_word(c)))


def _deduplicate(claims: Iterable[JudgedClaim]) -> list[JudgedClaim]:
    """Each claim once, at its first place. Of several verdicts on a claim the worst counts: contradicted, then not
    supported."""
    by_text: dict[str, JudgedClaim] = {}
    for claim in claims:
        if _has_a_word(claim.claim) and (claim.claim not in by_text or _worse(claim, by_text[claim.claim])):
            by_text[claim.claim] = claim
    return list(by_text.values())


def _worse(claim: JudgedClaim, other: JudgedClaim) -> bool:
    return (claim.contradicted, not claim.supported) > (other.contradicted, not other.supported)


def _unsupported(claims: Iterable[str]) -> list[JudgedClaim]:
    return [JudgedClaim(claim, supported=False, reason="nothing was retrieved") for claim in claims]


def _has_a_word(text: str) -> bool:
    return any(c.isalnum() for c in text)
