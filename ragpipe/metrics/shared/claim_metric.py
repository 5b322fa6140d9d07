"""A text taken apart into claims, each held against all contexts: in two steps, or both in one call."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.text_match import normalise, occurs
from ragpipe.judging.judge_protocol import Judge
from ragpipe.metrics.base import PlannedCall
from ragpipe.metrics.shared.batched_verdicts import verdicts_in_batches
from ragpipe.metrics.shared.judge_metric import JudgeMetric, gather_ordered
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.claim_answers import CheckedClaim, CheckedClaims, Claims, Verdict, Verdicts
from ragpipe.schema.sample import Case

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")


class ClaimMetric(JudgeMetric):
    """`steps: separate`: `extract` lists the claims of a text, `verify` judges `batch` of them a call (1 = one call a
    claim) against all contexts. `steps: combined`: one call lists and judges; cheaper, and the judge that reads the
    contexts while it lists may lean towards what they say. Only the prompts of the chosen steps are loaded.
    """

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
        """The texts that are taken apart, each under its name in the templates; their claims are checked together."""
        raise NotImplementedError

    def planned_calls(self, case: Case) -> Iterable[PlannedCall]:
        prompts, texts = self.prompts(), self.texts_of(case)
        if self.steps == "combined":
            for text in texts:
                yield PlannedCall(
                    prompts["combined"], CheckedClaims, self._combined_values(prompts["combined"], case, text)
                )
            return
        extract, verify = prompts["extract"], prompts["verify"]
        for text in texts:
            yield PlannedCall(extract, Claims, self._extract_values(extract, case, text))
        if not case.contexts:
            return
        claims = [claim for text in texts for claim in likely_claims(*text.values())]
        values = self.prompt_values(verify, case, contexts=case.contexts, claims=claims[: self.batch])
        yield PlannedCall(verify, Verdicts, values, times=math.ceil(len(claims) / self.batch))

    async def checked(self, case: Case, judge: Judge) -> list[CheckedClaim]:
        """The claims of the texts in order, each once, with their verdicts. Empty when they make none.

        Where nothing was retrieved the claims are listed and none is supported, whatever the judge of `combined` says.
        """
        texts = self.texts_of(case)
        if self.steps == "combined":
            prompt = self.prompts()["combined"]
            both = (judge(prompt, CheckedClaims, **self._combined_values(prompt, case, text)) for text in texts)
            found = _once(claim for reply in await gather_ordered(*both) for claim in reply.claims)
            return found if case.contexts else _unsupported(claim.claim for claim in found)
        extract, verify = (self.prompts()[step] for step in ("extract", "verify"))
        listed = (judge(extract, Claims, **self._extract_values(extract, case, text)) for text in texts)
        claims = clean_claims(claim for reply in await gather_ordered(*listed) for claim in reply.claims)
        if not case.contexts:
            return _unsupported(claims)

        async def ask(part: list[str], again: bool) -> list[Verdict]:
            parts = {"again": True} if again else {}
            values = self.prompt_values(verify, case, parts, contexts=case.contexts, claims=part)
            return (await judge(verify, Verdicts, **values)).verdicts

        verdicts = await verdicts_in_batches(claims, self.batch, ask)
        return [
            CheckedClaim(claim=c, evidence=v.evidence, reason=v.reason, supported=v.supported)
            for c, v in zip(claims, verdicts, strict=True)
        ]

    def _extract_values(self, prompt: Prompt, case: Case, text: Mapping[str, str]) -> dict[str, Any]:
        return self.prompt_values(prompt, case, question=case.question, **text)

    def _combined_values(self, prompt: Prompt, case: Case, text: Mapping[str, str]) -> dict[str, Any]:
        return self.prompt_values(prompt, case, contexts=case.contexts, question=case.question, **text)


def likely_claims(text: str) -> list[str]:
    """Texts like the claims of a text, for the plan: the real ones are known after the first reply.

    Two claims a sentence is what judges find in long answers.
    """
    return [part for part in _SENTENCE.split(text) if any(c.isalpha() for c in part)] * 2 or [text]


def clean_claims(claims: Iterable[str]) -> list[str]:
    """The claims that hold a word, each once, in order."""
    return list(dict.fromkeys(c.strip() for c in claims if _has_a_word(c)))


def claim_details(found: Sequence[CheckedClaim], case: Case, flags: list[str]) -> dict[str, Any]:
    """The claims with their verdicts, and the chunks in which the evidence of the supported ones occurs (normalised).

    A supported claim whose quote occurs nowhere is flagged `evidence_not_found` and counted; it stays supported.
    """
    texts = [(chunk.id, normalise(chunk.text)) for chunk in case.contexts]
    rows = [_row(claim, texts) for claim in found]
    lost = sum(row.get("evidence_found") is False for row in rows)
    return {
        "claims": rows,
        "total": len(rows),
        "supported": sum(row["supported"] for row in rows),
        "unsupported_claims": [row["claim"] for row in rows if not row["supported"]],
        "evidence_not_found": lost,
        "flags": flags + (["evidence_not_found"] if lost else []),
    }


def share_of_claims(details: Mapping[str, Any]) -> str | None:
    """How a share of claims came about, from `claim_details`; None where there was no claim."""
    return f"{details['supported']} supported / {details['total']} claims" if details.get("total") else None


def _row(claim: CheckedClaim, texts: list[tuple[str, str]]) -> dict[str, Any]:
    row: dict[str, Any] = claim.model_dump(include={"claim", "supported", "evidence", "reason"})
    if claim.supported:
        chunks = [name for name, text in texts if occurs(claim.evidence, [text])]
        row |= {"evidence_found": bool(chunks), "chunks": chunks}
    return row


def _once(claims: Iterable[CheckedClaim]) -> list[CheckedClaim]:
    """Each claim once, at its first place; one that got both verdicts is not supported."""
    found: dict[str, CheckedClaim] = {}
    for claim in claims:
        name = claim.claim.strip()
        if _has_a_word(name) and (name not in found or not claim.supported):
            found[name] = claim.model_copy(update={"claim": name})
    return list(found.values())


def _unsupported(claims: Iterable[str]) -> list[CheckedClaim]:
    return [CheckedClaim(claim=claim, supported=False, reason="nothing was retrieved") for claim in claims]


def _has_a_word(text: str) -> bool:
    return any(c.isalnum() for c in text)
