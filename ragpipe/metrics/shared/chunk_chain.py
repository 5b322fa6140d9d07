"""A chain of questions over the chunks: a first question, then one refining question per chunk, monotone towards YES.

Source: the faithfulness and relevancy evaluators of LlamaIndex, whose summary index walks over all chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ragpipe.core.errors import JudgeError
from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import YesNo
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.context_metric import NO_CLAIMS, ContextMetric, numbered
from ragpipe.metrics.shared.judge_metric import answer_flags, one_line


class ChunkChain(ContextMetric):
    """1 when the judge says YES for some chunk, 0 when it says NO to the end.

    Monotone in code, not only in the prompt: a YES stays a YES. So the chain stops at the first YES; with `exhaustive`
    it asks about all chunks anyway (the value is equal, with one call per chunk). A reply that says neither YES nor
    NO, or both, keeps the answer so far; if no YES follows, the case is an error (`unparsable`), not a NO. Nothing
    retrieved: 0 (`no_context_retrieved`) without a call. An answer that only declines is skipped (`no_claims`): any chunk
    without the fact would support it, and the chain ends at the first YES.
    """

    gives = ScoreSpec("", binary=True)
    version = 3

    answer_types = {"first": (YesNo,), "refine": (YesNo,)}
    first: Prompt
    refine: Prompt
    exhaustive: bool = Field(
        default=False,
        description=("Whether the judge is asked about every chunk. Default: only up to the first YES, with the same value."),
    )

    def case_values(self, case: Case) -> dict[str, Any]:
        """The values of the questions besides the chunk."""
        raise NotImplementedError

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        verdicts = [f"rank {verdict['rank']} {verdict['verdict']}" for verdict in details.get("verdicts", ())]
        return f"1 with the first YES, 0 without one: {', '.join(verdicts)}" if verdicts else None

    async def measure(self, case: Case, judge: Judge) -> Score:
        if not case.contexts or await self.no_claims(case) == NO_CLAIMS:
            return await self.unsupported(case)
        existing, deciding, unread = "", "", ""
        verdicts: list[dict[str, Any]] = []
        for number, chunk in numbered(case.contexts):
            if existing == "YES" and not self.exhaustive:
                break
            prompt, so_far = (self.refine, {"existing": existing}) if existing else (self.first, {})
            values = {"contexts": [chunk], **self.case_values(case), **so_far}
            reply = await judge(prompt, YesNo, **self.prompt_values(prompt, case, {"number": number}, **values))
            row = {"chunk": chunk.id, "rank": chunk.rank, "verdict": reply.verdict, "reply": one_line(reply.text)}
            verdicts.append(row)
            if reply.verdict == "NEITHER":
                unread = reply.text or "a reply without an answer"
            elif existing != "YES":
                existing, deciding = reply.verdict, reply.text
        if existing != "YES" and unread:
            raise JudgeError("unparsable", "neither YES nor NO for some chunk, and no YES in the end", text=unread)
        details = {"verdicts": verdicts, "flags": answer_flags(case.answer)}
        return Score(float(existing == "YES"), reason=one_line(deciding) or existing, details=details)
