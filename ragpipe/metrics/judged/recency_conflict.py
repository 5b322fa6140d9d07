"""Two notes disagree: does the answer cite what the label asks for, and say so? By citations and roles of anchors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ragpipe.core.sample import Case, Chunk, Citation, OutputPart, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.text import normalise, occurs
from ragpipe.judge.answers import Acknowledgement
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.citations import cited_chunks, name_no_chunk
from ragpipe.metrics.shared.context_metric import context_numbers
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line, without_a_word
from ragpipe.metrics.shared.ranking import RequireSnippet, matches_anchor

ACKNOWLEDGE = "acknowledge_both"


class RecencyConflictMetric(JudgeMetric):
    """1 when the answer follows `recency_conflict_rule`, else 0.

    `cite_newer`: a chunk at an anchor with role newer is cited (the older one may be cited too). `cite_both`: one
    newer and one older chunk are cited. Both are computed from the citations, without a call. `acknowledge_both`: both
    are cited, and the answer says that they disagree, which the judge decides in one call that shows the cited newer
    and older chunks; where one of them is not cited, the value is 0 without a call. Evidence of the judge that is not
    in the answer is flagged `evidence_not_found`. Needs recorded citations that name a chunk, and anchors with the
    roles of the rule.
    """

    gives = ScoreSpec("", binary=True)
    needs = frozenset({"labels", "citations"})
    reads = frozenset({"contexts"})
    reads_ids = True
    version = 2

    answer_types = {"acknowledge": (Acknowledgement,)}
    acknowledge: Prompt
    require_snippet: RequireSnippet = False

    def sample_skip_reason(self, sample: Sample) -> str | None:
        rule = sample.recency_conflict_rule
        if rule is None:
            return "no_recency_conflict_rule"
        roles = {anchor.role for anchor in sample.anchors or ()}
        if missing := sorted(_required_roles(rule) - roles):
            return f"no_anchor_with_role_{'_and_'.join(missing)}"
        return super().sample_skip_reason(sample)

    def required_parts(self, case: Case) -> frozenset[OutputPart]:
        needs_answer = case.sample.recency_conflict_rule == ACKNOWLEDGE
        return super().required_parts(case) | (frozenset({"answer"}) if needs_answer else frozenset())

    def skip_reason(self, case: Case) -> str | None:
        return super().skip_reason(case) or name_no_chunk(case)

    def cited(self, case: Case) -> dict[str, list[Chunk]]:
        """The cited chunks by the role of the anchors that they match."""
        by_role: dict[str, list[Chunk]] = {}
        for chunk in cited_chunks(case):
            anchors = case.sample.anchors or ()
            roles = (a.role for a in anchors if matches_anchor(chunk, a, require_snippet=self.require_snippet))
            for role in dict.fromkeys(role for role in roles if role):
                by_role.setdefault(role, []).append(chunk)
        return by_role

    def values(self, case: Case, cited: dict[str, list[Chunk]]) -> dict[str, Any]:
        chunks = {"newer": cited["newer"], "older": cited["older"]}
        numbers = {(c.rank, c.id): n for c, n in zip(case.contexts, context_numbers(case.contexts), strict=True)}
        parts = {"numbers": [numbers[chunk.rank, chunk.id] for chunk in (*cited["newer"], *cited["older"])]}
        return self.prompt_values(self.acknowledge, case, parts, question=case.question, answer=case.answer, **chunks)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        line = f"rule {details['rule']}; cited: {', '.join(details['cited_roles']) or 'neither'}"
        return f"{line}; acknowledged: {str(details['acknowledged']).lower()}" if "acknowledged" in details else line

    def with_whole_output(self, case: Case) -> Case | None:
        """With a citation of every anchor."""
        anchors = enumerate(case.sample.anchors or (), 1)
        chunks = [
            Chunk(id=f"a{n}", rank=n, rel_path=a.rel_path, heading_path=a.heading_path, text=" ".join(a.snippets))
            for n, a in anchors
        ]
        citations = [Citation(chunk_id=chunk.id) for chunk in chunks]
        output = case.output.model_copy(update={"chunks": chunks, "citations": citations})
        return super().with_whole_output(replace(case, output=output))

    async def measure(self, case: Case, judge: Judge) -> Score:
        cited, rule = self.cited(case), case.sample.recency_conflict_rule or ""
        details: dict[str, Any] = {
            "rule": rule,
            "cited": [chunk.id for chunk in cited_chunks(case)],
            "cited_roles": sorted(cited),
        }
        if lacking := sorted(_required_roles(rule) - set(cited)):
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


def _required_roles(rule: str) -> set[str]:
    return {"newer"} if rule == "cite_newer" else {"newer", "older"}
