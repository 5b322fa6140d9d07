"""Base of all metrics that ask a judge, and helpers to ask several questions at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar, cast

from pydantic import Field, model_validator

from ragpipe.metrics.base import NO_ANSWER, Metric
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.sample import Case

T = TypeVar("T")
U = TypeVar("U")


class JudgeMetric(Metric):
    """A metric that asks a judge.

    Parameters: `history` shows earlier turns, where the step has a place for them and the case has any; `reasoning`
    asks for the reasons step by step; `examples` are worked examples by step, shown as material: texts (`{verify: ["..."]}`), or
    the version of a file of graded examples (`{verify: v1}`: `prompts/<folder>/verify.examples.v1.yaml`).
    When off they render nothing, so that turning them on changes only the questions that then differ.
    """

    history: bool = Field(
        default=True, description="Whether the judge sees earlier turns of the conversation, where a case has any."
    )
    reasoning: bool = Field(
        default=False,
        description="Whether the judge is asked to reason step by step. Replies become longer and cost more.",
    )
    examples: dict[str, str | list[str]] = Field(
        default_factory=dict,
        description=(
            "Worked examples for the judge, by step: a list of texts, or the version of a file of graded examples, such as "
            "v1. Default: none."
        ),
    )

    @model_validator(mode="after")
    def _known_examples(self) -> JudgeMetric:
        unknown = sorted(set(self.examples) - set(self.step_names()))
        if unknown:
            raise ValueError(f"examples for unknown steps {unknown}: the steps are {list(self.step_names())}")
        return self

    def skip_reason(self, case: Case) -> str | None:
        """As in `Metric`; an answer with characters but no letter or digit is `degenerate_answer`.

        Many judges give good verdicts to marks such as ":" alone (arXiv 2507.08794), so no judge sees them.
        """
        why = super().skip_reason(case)
        return "degenerate_answer" if why == NO_ANSWER and is_degenerate(case.answer) else why

    def prompt_values(
        self, prompt: Prompt, case: Case, parts: Mapping[str, Any] | None = None, /, **values: Any
    ) -> dict[str, Any]:
        """The values for one question, with those optional `parts` that the template has a place for.

        `history`, `reasoning` and `examples` are added to the parts of the step where they are on.
        """
        optional = dict(parts or {})
        if self.history and case.sample.history:
            optional["history"] = case.sample.history
        if self.reasoning:
            optional["reasoning"] = True
        if examples := self._example_texts(prompt):
            optional["examples"] = examples
        return values | {name: value for name, value in optional.items() if name in prompt.optional}

    def _example_texts(self, prompt: Prompt) -> list[str]:
        """The worked examples of a step, as the judge sees them."""
        texts = self.examples.get(prompt.step, [])
        return self.graded_examples[prompt.step].texts(prompt) if isinstance(texts, str) else texts


def with_reasoning(metrics: Mapping[str, Metric], reasoning: bool | None) -> dict[str, Metric]:
    """The metrics, those that have the parameter `reasoning` with this value; None: each as it is."""
    if reasoning is None:
        return dict(metrics)
    return {
        name: metric.model_copy(update={"reasoning": reasoning})
        if isinstance(getattr(metric, "reasoning", None), bool)
        else metric
        for name, metric in metrics.items()
    }


def is_degenerate(answer: str) -> bool:
    """Characters, but not one letter or digit."""
    return bool(answer.strip()) and not any(c.isalnum() for c in answer)


def without_a_word(answer: str) -> str | None:
    """Why an answer is not shown to the judge: it has no letter or digit. None when it has one."""
    if any(c.isalnum() for c in answer):
        return None
    return "degenerate_answer" if answer.strip() else "no_answer"


async def gather_ordered(*questions: Awaitable[T]) -> list[T]:
    """Await all at once and to the end; then give the results in order, or raise the first error in that order.

    Not a plain gather: that raises whichever error comes first in time and leaves the others running unattended. A single
    question is awaited in the caller's own task.
    """
    if len(questions) == 1:
        return [await questions[0]]
    results = await asyncio.gather(*questions, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


async def gather_pair(first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
    """`gather_ordered` for two questions of different kinds."""
    pair: list[Any] = await gather_ordered(*(cast(Awaitable[Any], question) for question in (first, second)))
    return pair[0], pair[1]
