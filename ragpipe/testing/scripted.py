"""A judge with scripted replies, and a builder of cases.

The judge renders the prompt and reads the reply as a real one does: only the model is scripted. A reply that cannot be
read is a JudgeError.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import numpy as np
import yaml

from ragpipe.core.call import Payload
from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.core.registry import option_files
from ragpipe.core.resources import prompts_dir
from ragpipe.core.sample import Anchor, Case, Chunk, Citation, Expected, Output, Sample, Turn
from ragpipe.core.score import Score
from ragpipe.judge.answer_parsing import Unparsable, read_answer
from ragpipe.judge.answer_type import Answer, answer_schema
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.vectors import TokenMatch
from ragpipe.metrics.base import Computed, Metric
from ragpipe.metrics.from_config import load_metric

A = TypeVar("A", bound=Answer)
Reply = str | dict[str, Any] | Exception
SAMPLE_FIELDS = set(Sample.model_fields) - {"id", "question", "history", "references", "anchors", "expected"}
OUTPUT_FIELDS = set(Output.model_fields) - {"sample_id", "answer", "chunks", "citations"}


@dataclass(frozen=True)
class JudgeQuestion:
    """One question as the judge got it: the step of the metric, the payload, and the values of the template."""

    step: str
    payload: Payload
    values: dict[str, Any]

    @property
    def user(self) -> str:
        """The text of the last message."""
        return self.payload.messages[-1]["content"]


@dataclass
class ScriptedJudge:
    """Gives the replies in the order of the questions, or what a function returns for each question.

    Attributes:
        replies: a list of replies, or a function from JudgeQuestion to a reply. A reply is a text, a mapping (sent as
            JSON), or an exception to raise.
        shuffled: a seed. Each reply then waits a random number of turns of the event loop, so that replies come in
            another order than their questions.
        vectors: the vectors of an embedder by text; None for no embedder.
        cut: texts of which the embedder read only the beginning.
        asked: the questions so far.
    """

    replies: Sequence[Reply] | Callable[[JudgeQuestion], Reply] = ()
    shuffled: int | None = None
    vectors: Mapping[str, Sequence[float]] | None = None
    cut: frozenset[str] = frozenset()
    asked: list[JudgeQuestion] = field(default_factory=list)

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A:
        payload = Payload(prompt.render(**values), answer_schema(answer))
        question = JudgeQuestion(prompt.step, payload, values)
        self.asked.append(question)
        if callable(self.replies):
            reply = self.replies(question)
        else:
            if len(self.asked) > len(self.replies):
                raise AssertionError(f"question {len(self.asked)} has no scripted reply: {question.user}")
            reply = self.replies[len(self.asked) - 1]
        if self.shuffled is not None:
            for _ in range(random.Random(f"{self.shuffled}{payload.id}").randrange(20)):
                await asyncio.sleep(0)
        if isinstance(reply, Exception):
            raise reply
        text = reply if isinstance(reply, str) else json.dumps(reply)
        try:
            return read_answer(text, answer, prompt.material(payload.messages, values))[0]
        except Unparsable as error:
            raise JudgeError("unparsable", str(error), text=text) from error

    async def embed(self, texts: Sequence[str], /) -> list[Any]:
        if self.vectors is None:
            raise Skipped("no_embedder")
        return [np.array(self.vectors[text], dtype=np.float32) for text in texts]

    def was_truncated(self, text: str, /) -> bool:
        return text in self.cut

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        """Always raises Skipped: token encoders are not scripted."""
        raise Skipped("no_embedder")

    @property
    def steps(self) -> list[str]:
        """The step of each question so far."""
        return [question.step for question in self.asked]


def make_case(
    answer: str | None = "Paris is the capital of France.",
    chunks: Sequence[str | dict[str, Any]] | None = ("Paris is the capital of France.",),
    question: str = "What is the capital of France?",
    id: str = "q1",
    **fields: Any,
) -> Case:
    """Build a case.

    Args:
        answer: the answer; None where it is not recorded.
        chunks: the retrieved chunks, each as its text or as a mapping of its fields; None where they are not recorded.
        question: the question.
        id: that of the sample.
        fields: any field of Sample and Output by its name; `history` as (role, text) pairs, `citations` as chunk
            ids or mappings, `anchors` and `expected` as mappings.

    Raises TypeError for an unknown field.
    """
    sample = {name: fields.pop(name) for name in SAMPLE_FIELDS & set(fields)}
    output = {name: fields.pop(name) for name in OUTPUT_FIELDS & set(fields)}
    if (anchors := fields.pop("anchors", None)) is not None:
        sample["anchors"] = [Anchor(**anchor) for anchor in anchors]
    if fields.get("expected") is not None:
        sample["expected"] = Expected(**fields.pop("expected"))
    sample["history"] = [Turn(role=role, text=text) for role, text in fields.pop("history", ())]
    sample["references"] = list(fields.pop("references", ()))
    if "citations" in fields:
        cited = fields.pop("citations")
        output["citations"] = [Citation(chunk_id=c) if isinstance(c, str) else Citation(**c) for c in cited]
    if fields:
        raise TypeError(f"a case has no fields {', '.join(sorted(fields))}")
    if chunks is not None:
        built = [{"text": chunk} if isinstance(chunk, str) else chunk for chunk in chunks]
        output["chunks"] = [Chunk(**{"id": f"c{i}", "rank": i, **chunk}) for i, chunk in enumerate(built, 1)]
    return Case(Sample(id=id, question=question, **sample), Output(sample_id=id, answer=answer, **output))


def shipped_metric(name: str, **parameters: Any) -> Metric:
    """The metric as its shipped YAML has it, with the given parameters changed. Raises ConfigError."""
    key = json.dumps([name, parameters], sort_keys=True)
    if key not in _LOADED:
        _LOADED[key] = load_metric(name, {**_section(name), **parameters}, _library())
    return _LOADED[key]


_LOADED: dict[str, Metric] = {}  # metrics are frozen, and compiling their templates is most of a small test


@cache
def _section(name: str) -> dict[str, Any]:
    section: dict[str, Any] = yaml.safe_load(option_files("metrics")[name].read_text("utf-8"))[name]
    return section


@cache
def _library() -> PromptLibrary:
    return PromptLibrary([prompts_dir()])


def shipped_names() -> list[str]:
    """The names of all shipped metrics, sorted."""
    return list(option_files("metrics"))


def score_of(metric: Metric, case: Case, judge: ScriptedJudge | None = None) -> dict[str, Score]:
    """What a run would record of a case, by score name: skipped, an error of the judge, or the metric's scores.

    Raises AssertionError where the metric breaks its own declaration: other names, a value outside its scale, details
    that are not JSON.
    """
    specs = metric.scores()
    if reason := metric.skip_reason(case):
        return {spec.name: Score(name=spec.name, status="skipped", reason=reason) for spec in specs}
    try:
        if isinstance(metric, Computed):
            result: Score | Sequence[Score] = metric.compute([case])[0]
        else:
            result = asyncio.run(metric.measure(case, judge or ScriptedJudge()))
    except Skipped as skip:
        return {spec.name: Score(name=spec.name, status="skipped", reason=skip.reason) for spec in specs}
    except JudgeError as error:
        return {spec.name: Score(name=spec.name, status="error", reason=str(error)) for spec in specs}
    scores = [result] if isinstance(result, Score) else list(result)
    names = [score.name or metric.name for score in scores]
    if names != [spec.name for spec in specs]:
        raise AssertionError(f"{metric.name} declares {[spec.name for spec in specs]} and returns {names}")
    for score, spec in zip(scores, specs, strict=True):
        if score.value is not None and not spec.holds(score.value):
            raise AssertionError(f"{spec.name} is {score.value}, outside its scale {spec.low} to {spec.high}")
        json.dumps(score.details, allow_nan=False)
    return dict(zip(names, scores, strict=True))
