"""How far retrieved chunks mislead the answer: wrong claims that are in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from ragpipe.core.errors import JudgeError
from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import ClaimCheck, ClaimChecks, ClaimOrigin, ClaimOrigins, Claims
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.claim_metric import clean_claims
from ragpipe.metrics.shared.context_metric import UsefulnessMetric
from ragpipe.metrics.shared.judge_metric import answer_flags, verdicts_in_batches
from ragpipe.metrics.shared.multi_reference import by_reference

KINDS = ("relevant", "irrelevant")


class NoiseSensitivityMetric(UsefulnessMetric):
    """`<name>_relevant`, `<name>_irrelevant`: claims of the answer that are wrong by the reference *and* are stated in
    a relevant (only in an irrelevant) retrieved chunk / all claims of the answer. 0 to 1, lower is better; diagnostic.

    High on relevant chunks: the generator takes the wrong parts of the right sources. High on irrelevant ones: it
    believes whatever is retrieved. Wrong claims that are in no chunk are made up and count for neither (`untraced` in
    the details). A claim in chunks of both kinds counts as relevant, so that no claim counts twice.

    `extract` is the question of `faithfulness`, `grade` that of `context_precision`: asked once for all. `check`
    compares the claims with the reference; `trace` finds the chunks that state the wrong ones (asked only when there
    are any); both take `batch` claims per call. An answer without a factual claim is skipped (`no_factual_claims`).
    Needs answer, contexts and reference. Source: RAGChecker (arXiv 2408.08067), RAGAS.
    """

    version = 2
    needs = frozenset({"answer", "contexts", "reference"})
    shared_prompts = {"extract": "faithfulness", "grade": "context_precision"}

    answer_types = {**UsefulnessMetric.answer_types, "extract": (Claims,), "check": (ClaimChecks,), "trace": (ClaimOrigins,)}
    extract: Prompt
    check: Prompt
    trace: Prompt
    batch: int = Field(default=20, ge=1, description="Claims per judge call, 1 or more.")

    def scores(self) -> tuple[ScoreSpec, ...]:
        return tuple(ScoreSpec(f"{self.name}_{k}", higher_is_better=False, diagnostic=True) for k in KINDS)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        if not details.get("total"):
            return None
        kind = score.removeprefix(f"{self.name}_")
        return f"{details[kind]} wrong claims from {kind} chunks / {details['total']} claims"

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        values = self.prompt_values(self.extract, case, question=case.question, answer=case.answer)
        claims = clean_claims((await judge(self.extract, Claims, **values)).claims)
        if not claims:
            return [Score(name=spec.name, status="skipped", reason="no_factual_claims") for spec in self.scores()]
        wrong = await self._wrong_claims(case, judge, claims)
        relevant = {i for i, grade in enumerate(await self.grades(case, judge), 1) if grade.relevant} if wrong else set()
        rows = [
            {"claim": claim, "chunks": [case.contexts[i - 1].id for i in numbers], "from": _chunk_kind(numbers, relevant)}
            for claim, numbers in zip(wrong, await self._chunk_numbers(case, judge, wrong), strict=True)
        ]
        counts = {kind: sum(row["from"] == kind for row in rows) for kind in (*KINDS, "untraced")}
        details = {
            "total": len(claims),
            "wrong": len(wrong),
            **counts,
            "wrong_claims": rows,
            "flags": answer_flags(case.answer),
        }
        reason = f"{len(wrong)} of {len(claims)} claims are wrong, {counts['untraced']} of them in no chunk"
        return [Score(counts[k] / len(claims), f"{self.name}_{k}", reason=reason, details=details) for k in KINDS]

    async def _wrong_claims(self, case: Case, judge: Judge, claims: list[str]) -> list[str]:
        async def ask(part: list[str], again: bool) -> list[ClaimCheck]:
            values = {"question": case.question, "reference": case.reference, "claims": part}
            return (
                await judge(self.check, ClaimChecks, **self.prompt_values(self.check, case, again=again, **values))
            ).verdicts

        verdicts = await verdicts_in_batches(claims, self.batch, ask)
        return [claim for claim, verdict in zip(claims, verdicts, strict=True) if not verdict.correct]

    async def _chunk_numbers(self, case: Case, judge: Judge, claims: list[str]) -> list[list[int]]:
        """The chunks that state each claim, by number; a number that no chunk has is asked about once more."""
        count = len(case.contexts)

        async def ask(part: list[str], again: bool) -> list[ClaimOrigin]:
            values = self.prompt_values(self.trace, case, again=again, contexts=case.contexts, claims=part)
            origins = (await judge(self.trace, ClaimOrigins, **values)).verdicts
            unknown = sorted({i for origin in origins for i in origin.contexts if not 1 <= i <= count})
            if unknown and again:
                raise JudgeError("unparsable", f"claims traced to the contexts {unknown} of {count}, asked twice")
            return [origin for origin in origins if all(1 <= i <= count for i in origin.contexts)]

        origins = await verdicts_in_batches(claims, self.batch, ask)
        return [sorted(set(origin.contexts)) for origin in origins]


def _chunk_kind(numbers: Sequence[int], relevant: set[int]) -> str:
    if not numbers:
        return "untraced"
    return "relevant" if relevant & set(numbers) else "irrelevant"
