"""The chain over chunks: a first question, then one refining question a chunk, monotone towards YES.

Source: the faithfulness and relevancy evaluators of LlamaIndex, whose summary index walks over all chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import Field

from ragpipe.core.errors import JudgeError
from ragpipe.judging.judge_protocol import Judge
from ragpipe.metrics.base import PlannedCall
from ragpipe.metrics.shared.context_metric import ContextMetric
from ragpipe.metrics.shared.injection_flags import answer_flags, one_line
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.grade_answers import YesNo
from ragpipe.schema.sample import Case
from ragpipe.schema.score import Score, ScoreSpec


class ChunkChain(ContextMetric):
    """1 when the judge says YES for some chunk, 0 when it says NO to the end.

    Monotone in code, not only in the prompt: once YES it stays YES. So it stops at the first YES; `exhaustive` asks
    about all chunks all the same (the value is equal, the calls are as many as there are chunks). A reply that says
    neither YES nor NO, or both, keeps the answer so far; if no YES comes in the end, such a case is an error
    (`unparsable`), not a NO. Nothing retrieved: 0 (`no_context_retrieved`) without a call.
    """

    version: ClassVar[int] = 2

    first: Prompt
    refine: Prompt
    exhaustive: bool = Field(
        default=False,
        description=(
            "Whether the judge is asked about every chunk. Default: only up to the first YES, with the same value."
        ),
    )

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, binary=True),)

    def information(self, case: Case) -> dict[str, Any]:
        """What is held against each chunk."""
        raise NotImplementedError

    def planned_calls(self, case: Case) -> Iterable[PlannedCall]:
        if not case.contexts:
            return
        head, *tail = case.contexts
        said = self.information(case)
        yield PlannedCall(self.first, YesNo, self.prompt_values(self.first, case, contexts=[head], **said))
        if tail:
            values = self.prompt_values(self.refine, case, contexts=[tail[0]], existing="NO", **said)
            yield PlannedCall(self.refine, YesNo, values, times=len(tail))

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        said = [f"rank {verdict['rank']} {verdict['verdict']}" for verdict in details.get("verdicts", ())]
        return f"1 with the first YES, 0 without one: {', '.join(said)}" if said else None

    async def measure(self, case: Case, judge: Judge) -> Score:
        if not case.contexts:
            return await self.unsupported(case)
        said = self.information(case)
        existing, deciding, unread = "", "", ""
        verdicts: list[dict[str, Any]] = []
        for chunk in case.contexts:
            if existing == "YES" and not self.exhaustive:
                break
            prompt, more = (self.refine, {"existing": existing}) if existing else (self.first, {})
            reply = await judge(prompt, YesNo, **self.prompt_values(prompt, case, contexts=[chunk], **said, **more))
            said_so = {"verdict": reply.verdict, "reply": one_line(reply.text)}
            verdicts.append({"chunk": chunk.id, "rank": chunk.rank, **said_so})
            if reply.verdict == "NEITHER":
                unread = reply.text or "a reply without an answer"
            elif existing != "YES":
                existing, deciding = reply.verdict, reply.text
        if existing != "YES" and unread:
            raise JudgeError("unparsable", "neither YES nor NO for some chunk, and no YES in the end", text=unread)
        details = {"verdicts": verdicts, "flags": answer_flags(case.answer)}
        return Score(float(existing == "YES"), reason=one_line(deciding) or existing, details=details)
