"""Share of the answer's claims that the contexts support."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from ragpipe.judging.judge import Judge
from ragpipe.metrics.base import Need
from ragpipe.metrics.shared.claims import ClaimCheck, claim_details, share_of_claims
from ragpipe.metrics.shared.flags import answer_flags
from ragpipe.schema.sample import Case
from ragpipe.schema.score import Score


class Faithfulness(ClaimCheck):
    """Supported claims / claims, 0 to 1.

    An answer without a factual claim (a refusal) has the reason `no_factual_claims`, and counts as `without_claims` says:
    `one` (it states nothing that is unsupported; the default), `zero`, or `skip` (it is in no mean). That changes no
    question. Evaluators differ in it silently: on RefChecker's labels it moves the mean by up to .03.

    `extract` lists the atomic claims of the answer, `verify` gives each a verdict against all contexts, `batch` claims
    a call (1 = one call a claim); `steps: combined` does both in one call. Evidence quotes are checked to occur in the
    contexts; a supported claim whose quote does not is flagged `evidence_not_found` and counted in the details, and
    stays supported. Needs answer and contexts: without contexts it is skipped, for then there is nothing to be faithful
    to.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"answer", "contexts"})

    without_claims: Literal["one", "skip", "zero"] = "one"

    def texts_of(self, case: Case) -> list[dict[str, str]]:
        return [{"answer": case.answer}]

    def arithmetic(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        return share_of_claims(details)

    async def measure(self, case: Case, judge: Judge) -> Score:
        found = await self.checked(case, judge)
        details = claim_details(found, case, answer_flags(case.answer))
        if not found:
            if self.without_claims == "skip":
                return Score(status="skipped", reason="no_factual_claims", details=details)
            return Score(float(self.without_claims == "one"), reason="no_factual_claims", details=details)
        reason = f"{details['supported']} of {len(found)} claims are supported"
        return Score(details["supported"] / len(found), reason=reason, details=details)
