"""Base of all metrics that ask a judge, and helpers to ask several questions at once."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar, cast

from pydantic import AfterValidator, Field, model_validator

from ragpipe.core.errors import JudgeError
from ragpipe.core.hostile_text import suspicious_signs
from ragpipe.core.sample import Case
from ragpipe.judge.prompt import Prompt
from ragpipe.metrics.base import NO_ANSWER, Metric

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
        default=False, description="Whether the judge is asked to reason step by step. Replies become longer and cost more."
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
        return without_a_word(case.answer) if why == NO_ANSWER else why

    def prompt_values(
        self, prompt: Prompt, case: Case, parts: Mapping[str, Any] | None = None, /, *, again: object = False, **values: Any
    ) -> dict[str, Any]:
        """The values for one question, with those optional `parts` that the template has a place for.

        `history`, `reasoning` and `examples` are added to the parts of the step where they are on, and that it is asked `again`.
        """
        optional = dict(parts or {}) | ({"again": True} if again else {})
        if self.history and case.sample.history:
            optional["history"] = case.sample.history
        if self.reasoning:
            optional["reasoning"] = True
        examples = self.examples.get(prompt.step, [])
        if isinstance(examples, str):
            examples = self.graded_examples[prompt.step].texts(prompt)
        if examples:
            optional["examples"] = examples
        return values | {name: value for name, value in optional.items() if name in prompt.optional}


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


class Numbered(Protocol):
    """A verdict on item number `index`, from 1."""

    @property
    def index(self) -> int: ...


Item = TypeVar("Item")
N = TypeVar("N", bound=Numbered)


async def verdicts_for(
    items: Sequence[Item], ask: Callable[[list[Item], bool], Awaitable[Sequence[N]]], *, ask_all_again: bool = False
) -> list[N]:
    """Exactly one verdict for each item, in order; `ask(items, again)` asks about items numbered from 1.

    Items without a verdict or with more than one are asked about once more, only those. A number that no item has says
    that the judge counted differently (from 0, or split an item), so then the whole batch is asked about once more;
    with `ask_all_again` that is always so, for replies that say something about all items together. Raises JudgeError
    (`unparsable`) naming the items that still have no single verdict.
    """
    verdicts, doubtful = _by_position(await ask(list(items), False), len(items))
    if doubtful:
        if ask_all_again:
            verdicts, doubtful = {}, list(range(len(items)))
        second, missing = _by_position(await ask([items[i] for i in doubtful], True), len(doubtful))
        if missing:
            names = ", ".join(str(doubtful[i] + 1) for i in missing)
            raise JudgeError("unparsable", f"no single verdict for the items {names} of {len(items)}, asked twice")
        verdicts |= {doubtful[i]: verdict for i, verdict in second.items()}
    return [verdicts[i] for i in range(len(items))]


async def verdicts_in_batches(
    items: Sequence[Item], size: int, ask: Callable[[list[Item], bool], Awaitable[Sequence[N]]]
) -> list[N]:
    """`verdicts_for` with at most `size` items per question; all batches are asked at once."""
    batches = [items[i : i + size] for i in range(0, len(items), size)]
    results = await gather_ordered(*(verdicts_for(batch, ask) for batch in batches))
    return [verdict for verdicts in results for verdict in verdicts]


def _by_position(verdicts: Sequence[N], count: int) -> tuple[dict[int, N], list[int]]:
    times = Counter(verdict.index for verdict in verdicts)
    if any(not 1 <= index <= count for index in times):
        return {}, list(range(count))
    single = {verdict.index - 1: verdict for verdict in verdicts if times[verdict.index] == 1}
    return single, [position for position in range(count) if position not in single]


def answer_flags(answer: str) -> list[str]:
    """The signs that the answer addresses the judge, such as `verdict_like_json` and `forged_tags`: see `suspicious_signs`."""
    return list(suspicious_signs(answer))


def one_line(text: str, limit: int = 300) -> str:
    """A reply as one line of at most `limit` characters, for the reason of a score."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "\u2026"


Part = TypeVar("Part", bound=str)


def check_weights(weights: dict[Part, float]) -> dict[Part, float]:
    """The weights unchanged. Raises ValueError when one is negative or not finite, or when all are 0."""
    if not all(0 <= weight < math.inf for weight in weights.values()) or not sum(weights.values()) > 0:
        raise ValueError(f"weights are finite, not negative and not all 0, found {weights}")
    return weights


Weights = Annotated[dict[Part, float], AfterValidator(check_weights)]
"""A parameter: the weight of each part."""


def explain_weighted_mean(terms: Iterable[tuple[float, str, str]]) -> str:
    """A weighted mean of (weight, value, name) written out: `0.3 x 1.0 (valid) + 0.7 x 0.5 (accuracy)`, divided by the
    sum of the weights where that is not 1."""
    rows = list(terms)
    text = " + ".join(f"{weight:g} x {value} ({name})" for weight, value, name in rows)
    total = math.fsum(weight for weight, _, _ in rows)
    return text if abs(total - 1) < 1e-9 else f"({text}) / {total:g}"
