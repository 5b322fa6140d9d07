"""The share of the answer's claims that the contexts support."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.languages import NOT_COVERED
from ragpipe.core.sample import Case
from ragpipe.core.score import NO_FACTUAL_CLAIMS, Score
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.claim_metric import ClaimMetric, claim_details, contradicted_words, share_of_claims
from ragpipe.metrics.shared.context_metric import NOTHING_RETRIEVED, ContextMetric
from ragpipe.metrics.shared.judge_metric import answer_flags


class FaithfulnessMetric(ContextMetric, ClaimMetric):
    """Supported claims / claims, 0 to 1.

    `extract` lists the atomic claims of the answer; `verify` gives each a verdict against all contexts, `batch` claims
    per call (1: one call per claim); `steps: combined` does both in one call.

    Evidence quotes are looked up in the contexts, and the details name the chunk and the characters of each. A
    supported claim none of whose quotes is there is flagged `evidence_not_found` and counted in the details, and stays
    supported. Templates from version 2 on tell a claim that the contexts contradict from one on which they are
    silent: neither is supported, `contradicted` counts the former, and one that no quote shows is flagged
    `contradiction_not_found`.

    An answer without a factual claim (a refusal) has the reason `no_factual_claims`. `without_claims` sets its value:
    `one` (it states nothing unsupported; the default), `zero`, or `skip` (it is in no mean). That changes no question.
    Evaluators differ in it silently: on RefChecker's labels it moves the mean by up to .03.

    A share hides single inventions: at a threshold of .85 one claim of seven may be unsupported. `task=explain` counts
    them for a case, the failure modes for a run.

    Nothing retrieved (`contexts: []`): the claims are listed without a verifying call, and none of N is supported: 0,
    flagged `no_context_retrieved`. `steps: combined` asks its one question, whose verdicts are ignored. An answer that
    only declines, by `patterns`, has no claim and costs no call. `without_contexts: skip` leaves such cases out
    (`no_context_retrieved`). An empty answer is skipped (`no_answer`): a system must not gain by saying nothing.
    """

    version = 2

    without_claims: Literal["one", "skip", "zero"] = Field(
        default="one",
        description=(
            "Score of an answer without a factual claim, such as a refusal: 1, 0, or left out of the mean. "
            "Changing it asks no new question."
        ),
    )

    def texts_of(self, case: Case) -> list[dict[str, str]]:
        return [{"answer": case.answer}]

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        share, unsupported = share_of_claims(details), details.get("total", 0) - details.get("supported", 0)
        of_them = f", {contradicted} of them contradicted" if (contradicted := details.get("contradicted")) else ""
        return f"{share}: {unsupported} unsupported{of_them}" if unsupported else share

    async def measure(self, case: Case, judge: Judge) -> Score:
        nothing = not case.contexts
        why = await self.no_claims(case) if nothing else None
        if why == NOT_COVERED:
            return Score(status="skipped", reason=why)
        claims = [] if why else await self.checked_claims(case, judge)
        flags = [*answer_flags(case.answer), *([NOTHING_RETRIEVED] if nothing else [])]
        details = claim_details(claims, case, flags)
        if not claims:
            if self.without_claims == "skip":
                return Score(status="skipped", reason=NO_FACTUAL_CLAIMS, details=details)
            return Score(float(self.without_claims == "one"), reason=NO_FACTUAL_CLAIMS, details=details)
        reason = f"{details['supported']} of {len(claims)} claims are supported{contradicted_words(details)}"
        return Score(details["supported"] / len(claims), reason=reason, details=details)
