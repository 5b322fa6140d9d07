"""Is the answer right, wrong, or an admission that the system does not know?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from ragpipe.core.patterns import pattern_hashes
from ragpipe.core.refusals import DontKnowPhrases, dont_know_phrase, load_phrases
from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.settings import accepted_by
from ragpipe.judge.answers import AnswerClass as Class
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.base import Prefix
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line, without_a_word
from ragpipe.metrics.shared.multi_reference import ReferenceMetric, by_reference

CLASSES = {"CORRECT": "correct_answers", "WRONG": "wrong_answers", "DON'T KNOW": "dont_know_answers"}


class AnswerClassMetric(ReferenceMetric, JudgeMetric):
    """`correct_answers`, `wrong_answers` (lower is better), `dont_know_answers` (diagnostic): for each case one of
    them is 1 and the others are 0. Their means are the shares. The counts (`correct_answers_count`,
    `wrong_answers_count` and `dont_know_answers_count` elsewhere) are in metrics.json under `grades.answer_class`; the
    details of each case hold its class.

    Phrases of not knowing are checked first, without a call. The class is DON'T KNOW when a phrase opens the answer or
    dominates it (`patterns`, see its file), and for short non-answers ("n/a") and answers without a word. "Unknown"
    inside a real answer ("the Unknown Soldier") does not count. With `literal: true` any phrase anywhere in the answer
    counts instead. Otherwise one call decides between CORRECT and WRONG. `prefix` is put before the names. With
    `references: all` each value is the share of the references by which it holds. Needs a reference.
    """

    version = 2
    needs = frozenset({"reference"})
    reads = frozenset({"answer"})

    answer_types = {"classify": (Class,)}
    classify: Prompt
    patterns: Annotated[DontKnowPhrases | str, accepted_by(load_phrases)] = Field(
        default="dont_know.v3",
        description=(
            "Phrases of not knowing, which decide which answers are put to the judge: the name of a file in "
            "conf/patterns, or a whole mapping of phrases."
        ),
    )
    literal: bool = Field(
        default=False,
        description=(
            "Whether a phrase counts anywhere in the answer, as in the source document. Default: only where it "
            "opens or dominates the answer."
        ),
    )
    prefix: Prefix = ""

    def files(self) -> Mapping[str, str]:
        return pattern_hashes([self.patterns])

    def scores(self) -> tuple[ScoreSpec, ...]:
        right, wrong, unknown = (f"{self.prefix}{name}" for name in CLASSES.values())
        binary = self.rule != "all"  # the mean over several references may be a half
        of = {name: (self.name, name.lower()) if binary else None for name in CLASSES}
        return (
            ScoreSpec(right, binary=binary, in_class=of["CORRECT"]),
            ScoreSpec(wrong, higher_is_better=False, binary=binary, in_class=of["WRONG"]),
            ScoreSpec(unknown, higher_is_better=False, binary=binary, diagnostic=True, in_class=of["DON'T KNOW"]),
        )

    def dont_know(self, case: Case) -> str | None:
        """The phrase by which the answer says that it does not know, or the reason why it is empty. None for a real answer."""
        return without_a_word(case.answer) or dont_know_phrase(case.answer, load_phrases(self.patterns), literal=self.literal)

    def with_whole_output(self, case: Case) -> Case | None:
        """With an answer that no phrase decides."""
        return super().with_whole_output(replace(case, output=case.output.model_copy(update={"answer": ""})))

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        flags = answer_flags(case.answer)
        phrase = await asyncio.to_thread(self.dont_know, case)
        if phrase is not None:
            return self._scores("DON'T KNOW", phrase, {"phrase": phrase, "detection": "phrase", "flags": flags})
        values = {"question": case.question, "reference": case.reference, "answer": case.answer}
        reply = await judge(self.classify, Class, **self.prompt_values(self.classify, case, **values))
        return self._scores(reply.verdict, one_line(reply.reason), {"detection": "judge", "flags": flags})

    def _scores(self, verdict: str, reason: str, details: dict[str, Any]) -> Sequence[Score]:
        line = f"{verdict}: {reason}" if reason else verdict
        return [
            Score(float(verdict == name), spec.name, reason=line, details={"class": verdict, **details})
            for name, spec in zip(CLASSES, self.scores(), strict=True)
        ]
