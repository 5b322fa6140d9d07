"""Two notes disagree: does the answer cite what the label asks for, and say so? From citations and anchor roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import Field

from ragpipe.core.text_match import normalise, occurs
from ragpipe.judging.judge_protocol import Judge
from ragpipe.metrics.base import Need, PlannedCall
from ragpipe.metrics.shared.citation_parsing import cited_chunks, name_no_chunk
from ragpipe.metrics.shared.heading_match import stands_at
from ragpipe.metrics.shared.injection_flags import answer_flags, one_line
from ragpipe.metrics.shared.judge_metric import JudgeMetric, without_a_word
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.behaviour_answers import Acknowledgement
from ragpipe.schema.sample import Case, Chunk, OutputPart, Sample
from ragpipe.schema.score import Score, ScoreSpec

ACKNOWLEDGE = "acknowledge_both"


class RecencyConflictMetric(JudgeMetric):
    """1 when the answer obeys `recency_conflict_rule`, else 0.

    `cite_newer`: a chunk at an anchor with role newer is cited (the older one may be cited too); `cite_both`: one newer
    and one older. Both are computed from the citations and ask nobody. `acknowledge_both`: both are cited, and the answer
    says that they disagree, which the judge is asked in one call that shows the cited newer and older chunks; where one of
    them is not cited the value is 0 without a call. The judge's evidence is looked up in the answer; one that is not there
    is flagged `evidence_not_found`. Needs recorded citations that name a chunk, and anchors with the roles that the rule
    speaks of.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"labels", "citations"})
    reads: ClassVar[frozenset[OutputPart]] = frozenset({"contexts"})
    version: ClassVar[int] = 2

    acknowledge: Prompt
    require_snippet: bool = Field(
        default=False,
        description=(
            "Whether a chunk must contain one of an anchor's snippets to match it, where the anchor has any. "
            "Default: no."
        ),
    )

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, binary=True),)

    def sample_skip_reason(self, sample: Sample) -> str | None:
        rule = sample.recency_conflict_rule
        if rule is None:
            return "no_recency_conflict_rule"
        roles = {anchor.role for anchor in sample.anchors or ()}
        if missing := sorted(_roles(rule) - roles):
            return f"no_anchor_with_role_{'_and_'.join(missing)}"
        return super().sample_skip_reason(sample)

    def required_parts(self, case: Case) -> frozenset[OutputPart]:
        asks = case.sample.recency_conflict_rule == ACKNOWLEDGE
        return super().required_parts(case) | (frozenset({"answer"}) if asks else frozenset())

    def skip_reason(self, case: Case) -> str | None:
        return super().skip_reason(case) or name_no_chunk(case)

    def cited(self, case: Case) -> dict[str, list[Chunk]]:
        """The cited chunks by the role of the anchors they stand at."""
        found: dict[str, list[Chunk]] = {}
        for chunk in cited_chunks(case):
            at = (
                a.role for a in case.sample.anchors or () if stands_at(chunk, a, require_snippet=self.require_snippet)
            )
            for role in dict.fromkeys(role for role in at if role):
                found.setdefault(role, []).append(chunk)
        return found

    def values(self, case: Case, cited: dict[str, list[Chunk]]) -> dict[str, Any]:
        shown = {"newer": cited["newer"], "older": cited["older"], "question": case.question, "answer": case.answer}
        return self.prompt_values(self.acknowledge, case, **shown)

    def planned_calls(self, case: Case) -> Iterable[PlannedCall]:
        cited = self.cited(case)
        if case.sample.recency_conflict_rule == ACKNOWLEDGE and len(cited) == 2 and not without_a_word(case.answer):
            yield PlannedCall(self.acknowledge, Acknowledgement, self.values(case, cited))

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        said = f"rule {details['rule']}; cited: {', '.join(details['cited_roles']) or 'neither'}"
        return f"{said}; acknowledged: {str(details['acknowledged']).lower()}" if "acknowledged" in details else said

    async def measure(self, case: Case, judge: Judge) -> Score:
        cited, rule = self.cited(case), case.sample.recency_conflict_rule or ""
        details: dict[str, Any] = {
            "rule": rule,
            "cited": [chunk.id for chunk in cited_chunks(case)],
            "cited_roles": sorted(cited),
        }
        if lacking := sorted(_roles(rule) - set(cited)):
            return Score(0.0, reason=f"not cited: {', '.join(lacking)}", details=details)
        if rule != ACKNOWLEDGE:
            return Score(1.0, details=details)
        if why := without_a_word(case.answer):
            return Score(0.0, reason=why, details=details)
        reply = await judge(self.acknowledge, Acknowledgement, **self.values(case, cited))
        lost = reply.acknowledged and not occurs(reply.evidence, [normalise(case.answer)])
        flags = [*answer_flags(case.answer), *(["evidence_not_found"] if lost else [])]
        details |= {"acknowledged": reply.acknowledged, "evidence": reply.evidence, "flags": flags}
        return Score(float(reply.acknowledged), reason=one_line(reply.reason) or None, details=details)


def _roles(rule: str) -> set[str]:
    return {"newer"} if rule == "cite_newer" else {"newer", "older"}
