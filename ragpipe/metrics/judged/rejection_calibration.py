"""Does the system answer what it should answer, and decline what it should decline?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.languages import NOT_COVERED
from ragpipe.core.refusals import RefusalReading, load_refusals, read_refusal_async
from ragpipe.core.sample import Case, OutputPart, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import Refusal
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.context_metric import RefusalMetric
from ragpipe.metrics.shared.judge_metric import answer_flags, without_a_word


class RejectionCalibrationMetric(RefusalMetric):
    """1 when the answer declines exactly where `expected.behavior` is reject, else 0.

    `detector: patterns` reads the whole answer by `patterns` (a file of conf/patterns or patterns written out) and
    asks no judge: a refusal phrase in an answer that then answers is no refusal. The rules are for English, with
    phrases for 14 more languages; an answer that they do not cover is skipped (`language_not_covered`). `detector:
    judge` asks the question of `abstention`, once for both metrics. The details hold `failure_mode`: `false_acceptance`,
    `false_rejection`, or `training_cutoff_excuse` (a false rejection that points to the end of the training data).
    Such an excuse in an answer that was given anyway is only noted.

    The system's own flag `abstained: true` is a refusal whatever the text says, without a call; `false` overrules no
    text. An answer without a word and without that flag neither answers nor declines: 0 and no failure mode.

    `<name>_reason` (diagnostic): 1 when a right refusal gives the case's `expected.rejection_reason`, by the `reasons`
    of the patterns; skipped for other answers and for a reason that the patterns do not know. Needs
    `expected.behavior`.
    """

    folder = "abstention"

    answer_types = {"detect": (Refusal,)}
    detect: Prompt | None = None
    detector: Literal["patterns", "judge"] = Field(
        default="patterns",
        description="How a refusal is recognised. patterns: rules, free, for English and 14 more languages; judge: one small call per case.",
    )

    @classmethod
    def unused_steps(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(() if parameters.get("detector") == "judge" else ("detect",))

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, binary=True), ScoreSpec(f"{self.name}_reason", binary=True, diagnostic=True))

    def sample_skip_reason(self, sample: Sample) -> str | None:
        return super().sample_skip_reason(sample) if sample.expects.behavior else "no_expected_behavior"

    def required_parts(self, case: Case) -> frozenset[OutputPart]:
        return frozenset() if case.output.abstained else frozenset({"answer"})

    def values(self, case: Case) -> dict[str, Any]:
        return self.prompt_values(self.prompts()["detect"], case, question=case.question, answer=case.answer)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        if score != self.name or "actual" not in details:
            return None
        return f"1 where both are the same, else 0: expected {details['expected']}, found {details['actual']}"

    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        expected = case.sample.expects.behavior or ""
        why = without_a_word(case.answer)
        if why and not case.output.abstained:
            details: dict[str, Any] = {"expected": expected, "actual": "none", "failure_mode": None, "flags": [why]}
            return [Score(0.0, self.name, reason=why, details=details), self._reason(case, None)]
        reading = await read_refusal_async(case.answer, self.patterns)
        refused, excuse = reading.refused, reading.training_cutoff
        detector: str = self.detector
        if case.output.abstained:
            refused, detector = True, "flag"
        elif self.detector == "judge":
            reply = await judge(self.prompts()["detect"], Refusal, **self.values(case))
            refused, excuse = reply.declines, reply.training_cutoff
        elif not reading.covered:
            return [Score(name=spec.name, status="skipped", reason=NOT_COVERED) for spec in self.scores()]
        mode = _failure_mode(expected, refused, excuse)
        details = {
            "expected": expected,
            "actual": "reject" if refused else "answer",
            "failure_mode": mode,
            "training_cutoff": excuse,
            "detector": detector,
            "clauses": [{"kind": kind, "text": text[:200]} for kind, text in reading.clauses],
            "flags": answer_flags(case.answer),
        }
        right = refused and expected == "reject"
        return [
            Score(float(mode is None), self.name, reason=mode, details=details),
            self._reason(case, reading if right else None),
        ]

    def _reason(self, case: Case, reading: RefusalReading | None) -> Score:
        """Whether a right refusal gives the reason that the label names. `reading` is None for any other answer."""
        name = f"{self.name}_reason"
        expected = case.sample.expects.rejection_reason
        if expected is None:
            return Score(name=name, status="skipped", reason="no_rejection_reason")
        if reading is None:
            return Score(name=name, status="skipped", reason="no_right_refusal")
        if expected not in load_refusals(self.patterns).reasons:
            details: dict[str, Any] = {"expected": expected}
            return Score(name=name, status="skipped", reason="no_patterns_for_this_reason", details=details)
        details = {"expected": expected, "found": list(reading.reasons)}
        return Score(float(expected in reading.reasons), name, details=details)


def _failure_mode(expected: str, refused: bool, excuse: bool) -> str | None:
    if expected == "reject":
        return None if refused else "false_acceptance"
    return None if not refused else "training_cutoff_excuse" if excuse else "false_rejection"
