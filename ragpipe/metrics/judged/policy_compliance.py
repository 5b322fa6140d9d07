"""Does the answer keep to the rules of the house? A gate: patterns first, the judge for what no pattern caught."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ragpipe.core.patterns import pattern_hashes
from ragpipe.core.policies import Policies, Policy, find_violations, load_policy
from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.text import normalise, occurs
from ragpipe.judge.answers import RuleVerdict, RuleVerdicts
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line, verdicts_for

BANNED = "banned_topic"
SHIPPED = ("financial_advice.v1", "predictions.v1", "personal_data.v2")


class PolicyComplianceMetric(JudgeMetric):
    """1 when the answer breaks no rule, else 0.

    `patterns` are policies with regular expressions: names of files in conf/patterns (`financial_advice.v1`), or
    policies written out (`{policy, severity, rule, patterns: [{name, pattern, unless}]}`). They are searched first,
    sentence by sentence and with a time limit; one that takes longer makes the case an error that names it. Only where
    no pattern matches is the judge asked, in one call, about every rule: those of the patterns, the further `policies`
    (name: rule in words), and one per banned topic of `banned_topics`. So all three decide what is asked, and whether.
    `method: patterns` asks no judge. Use it with a judge that cannot answer such questions (judge=rules), because
    otherwise only violations would be scored.

    The details hold each violation with policy, severity, evidence and detection (pattern or judge). A violation
    without a severity from the judge has that of its policy; a rule in words is high. Evidence of the judge that is
    not in the answer is flagged `evidence_not_found` and changes nothing. Needs an answer; contexts play no part.
    """

    gives = ScoreSpec("", binary=True)
    needs = frozenset({"answer"})

    answer_types = {"examine": (RuleVerdicts,)}
    examine: Prompt | None = None
    method: Literal["both", "patterns"] = Field(
        default="both", description="both: the judge is asked where no pattern matches. patterns: no judge is asked."
    )
    patterns: list[Policies] = Field(
        default=list(SHIPPED),
        description=(
            "Policies with patterns: names of files in conf/patterns, or policies written out. Their rules are "
            "shown to the judge."
        ),
    )
    policies: dict[str, Annotated[str, Field(min_length=1)]] = Field(
        default_factory=dict, description="Further rules for the judge alone, in words, by a name of your own. Default: none."
    )
    banned_topics: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="Topics that an answer may not discuss; each is a rule for the judge. Default: none."
    )

    @classmethod
    def unused_steps(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(("examine",) if parameters.get("method") == "patterns" else ())

    @model_validator(mode="after")
    def _check_rules(self) -> PolicyComplianceMetric:
        names = [name for name, _ in self.rules()]
        if repeated := sorted({name for name in names if name != BANNED and names.count(name) > 1}):
            raise ValueError(f"every policy once, found {', '.join(repeated)} several times")
        looks = any(policy.patterns for policy in self.library) if self.method == "patterns" else names
        if not looks:
            raise ValueError("at least one pattern" if self.method == "patterns" else "at least one policy or banned topic")
        return self

    @cached_property
    def library(self) -> list[Policy]:
        """The policies with patterns, those of files read."""
        return [load_policy(policy) for policy in self.patterns]

    def files(self) -> Mapping[str, str]:
        return pattern_hashes(self.patterns)

    def rules(self) -> list[tuple[str, str]]:
        """Every rule as (policy, what it says), in the order in which the judge gets them."""
        written = [(policy.policy, policy.rule) for policy in self.library]
        topics = [(BANNED, f"Banned topic: the answer does not discuss {topic}.") for topic in self.banned_topics]
        return [*written, *self.policies.items(), *topics]

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        return f"1 without a violation, 0 with one: {len(details.get('violations', ()))} violations"

    def with_whole_output(self, case: Case) -> Case | None:
        return None  # a pattern found a violation, whatever a judge can say of other answers

    async def measure(self, case: Case, judge: Judge) -> Score:
        violations = await asyncio.to_thread(lambda: list(find_violations(case.answer, self.library)))
        flags = answer_flags(case.answer)
        if not violations and self.method == "both":
            violations = await self._judged_violations(case, judge)
            if any(not occurs(row["evidence"], [normalise(case.answer)]) for row in violations):
                flags.append("evidence_not_found")
        reason = "; ".join(f"{row['policy']} ({row['severity']}, {row['detection']})" for row in violations)
        details = {"violations": violations, "flags": flags}
        return Score(float(not violations), reason=one_line(reason) or None, details=details)

    async def _judged_violations(self, case: Case, judge: Judge) -> list[dict[str, Any]]:
        prompt = self.prompts()["examine"]

        async def ask(part: list[str], again: bool) -> list[RuleVerdict]:
            values = self.prompt_values(prompt, case, again=again, rules=part, question=case.question, answer=case.answer)
            return (await judge(prompt, RuleVerdicts, **values)).verdicts

        verdicts = await verdicts_for([rule for _, rule in self.rules()], ask)
        return [
            {
                "policy": name,
                "severity": self._severity(name, verdict),
                "detection": "judge",
                "rule": rule,
                "evidence": verdict.evidence,
                "reason": verdict.reason,
            }
            for (name, rule), verdict in zip(self.rules(), verdicts, strict=True)
            if verdict.violated
        ]

    def _severity(self, name: str, verdict: RuleVerdict) -> str:
        if verdict.severity != "none":
            return verdict.severity
        return next((policy.severity for policy in self.library if policy.policy == name), "high")
