"""Does the system decline where a question has no answer?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.sample import Case, OutputPart, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import Refusal
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.base import Prefix
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line, without_a_word


class AbstentionMetric(JudgeMetric):
    """`abstention`: 1 when the system declined, 0 when it answered. `hallucination_on_unanswerable`: 1 minus that,
    lower is better. Only for cases with `answerable: false`; the means are accuracy and hallucination rate.

    The system's own flag `abstained` decides where it is recorded. Otherwise one small call asks whether the answer as
    a whole declines: a refusal phrase in an answer that then answers is no refusal. An answer without a word and
    without the flag is skipped, because silence does not mean that the system abstained. `prefix` is put before both
    names.
    """

    answer_types = {"detect": (Refusal,)}
    detect: Prompt
    prefix: Prefix = ""

    def scores(self) -> tuple[ScoreSpec, ...]:
        made_up = ScoreSpec(f"{self.prefix}hallucination_on_unanswerable", higher_is_better=False, binary=True)
        return (ScoreSpec(f"{self.prefix}abstention", binary=True), made_up)

    def sample_skip_reason(self, sample: Sample) -> str | None:
        return None if sample.answerable is False else "answerable" if sample.answerable else "no_answerable_label"

    def required_parts(self, case: Case) -> frozenset[OutputPart]:
        return frozenset({"answer"}) if case.output.abstained is None else frozenset()

    def skip_reason(self, case: Case) -> str | None:
        why = super().skip_reason(case)
        return why or (without_a_word(case.answer) if case.output.abstained is None else None)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        accuracy, made_up = (spec.name for spec in self.scores())
        if score == made_up:
            return f"1 - {accuracy}"
        return f"1 where the answer declines, by {details['detection']}" if "detection" in details else None

    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        flags = answer_flags(case.answer)
        if case.output.abstained is not None:
            declined, detection, reason = case.output.abstained, "flag", "the system's own flag"
        else:
            asked = self.prompt_values(self.detect, case, question=case.question, answer=case.answer)
            reply = await judge(self.detect, Refusal, **asked)
            declined, detection, reason = reply.declines, "judge", one_line(reply.reason)
        details = {"declined": declined, "detection": detection, "flags": flags}
        values = (float(declined), float(not declined))
        return [
            Score(value, spec.name, reason=reason or None, details=details)
            for spec, value in zip(self.scores(), values, strict=True)
        ]
