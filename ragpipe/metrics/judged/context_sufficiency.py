"""Are the contexts sufficient to answer the question? A verdict of its own, whatever the system made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.sample import Case
from ragpipe.core.score import Score
from ragpipe.judge.answers import Sufficiency
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, one_line

VALUES = {"sufficient": 1.0, "partial": 0.5, "insufficient": 0.0}


class ContextSufficiencyMetric(JudgeMetric):
    """1 when the contexts together contain what a full and definite answer needs, 0.5 when they answer a part, else 0.

    One call; the judge sees neither answer nor reference. The details name what is missing. Next to the quality of the
    answer it separates the two ways to fail: wrong on sufficient contexts (generator), and answered on insufficient
    ones (should have declined). A verdict `sufficient` with something missing is flagged
    `verdict_contradicts_findings`. No contexts: 0, `no_context_retrieved`, without a call. Needs no reference. Source:
    Sufficient Context (Joren et al., arXiv 2411.06037).
    """

    reads = frozenset({"contexts"})
    answer_types = {"judge": (Sufficiency,)}
    judge: Prompt

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        verdict = details.get("verdict")
        return f"{verdict} counts {VALUES[verdict]:g}" if verdict in VALUES else None

    async def measure(self, case: Case, judge: Judge) -> Score:
        if not case.contexts:
            details: dict[str, Any] = {"verdict": "insufficient", "missing": [], "flags": []}
            return Score(0.0, reason="no_context_retrieved", details=details)
        values = self.prompt_values(self.judge, case, contexts=case.contexts, question=case.question)
        reply = await judge(self.judge, Sufficiency, **values)
        missing = [text.strip() for text in reply.missing if text.strip()]
        flags = ["verdict_contradicts_findings"] if missing and reply.verdict == "sufficient" else []
        details = {"verdict": reply.verdict, "missing": missing, "flags": flags}
        reason = one_line(f"{reply.verdict}: {reply.reason}" if reply.reason else reply.verdict)
        return Score(VALUES[reply.verdict], reason=reason, details=details)
