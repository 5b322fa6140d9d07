"""Measure one case by one metric; where the judge is in this process, a value counts only if that judge could have been asked.

A metric gives some values without a question: 0 where nothing was retrieved, where the answer has no word. A language model
would have been asked about the other cases. The embedded judge cannot answer some questions at all, and then such values would
be the only ones: a mean over failures. So it is asked what it would be asked if nothing of the output were missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ragpipe.core.errors import Skipped
from ragpipe.judging.any_judge import InProcessJudge
from ragpipe.judging.case_judge import CaseJudge
from ragpipe.judging.vector_replies import Floats, TokenMatch
from ragpipe.metrics.base import Metric
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.sample import Case
from ragpipe.schema.score import Score

A = TypeVar("A", bound=Answer)


async def measure_case(metric: Metric, case: Case, judge: CaseJudge) -> Score | Sequence[Score]:
    """The scores of one metric for one case that it applies to.

    Raises Skipped with the reason of the embedded judge where the metric asked nothing, and that judge could not have answered
    about the same case with contexts and an answer.
    """
    scores = await metric.measure(case, judge)
    embedded = judge.session.embedded
    if embedded is None or judge.uses or not metric.prompts() or not _has_a_value(scores):
        return scores
    whole = metric.with_whole_output(case)
    if whole is not None:
        await metric.measure(whole, _Trial(embedded))
    return scores


def _has_a_value(scores: Score | Sequence[Score]) -> bool:
    return any(score.value is not None for score in ([scores] if isinstance(scores, Score) else scores))


class _Trial:
    """The embedded judge, asked without a record: whether it can answer is all that counts."""

    def __init__(self, embedded: InProcessJudge):
        self._embedded = embedded

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Mapping[str, Any]) -> A:
        return self._embedded.answer(prompt, answer, values)

    async def embed(self, texts: Sequence[str], /) -> list[Floats]:
        self._refuse()

    def was_truncated(self, text: str, /) -> bool:
        return False

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Skipped("no_embedder")
