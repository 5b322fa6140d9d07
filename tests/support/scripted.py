"""A judge that gives scripted replies, and a builder of cases. Only the wire is faked.

The judge renders the prompt and reads the reply as a real one does; a reply that cannot be read is a JudgeError.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import yaml

from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.core.resources import conf_dir, prompts_dir
from ragpipe.judging.answer_parsing import Unparsable, read_answer
from ragpipe.metrics.base import Computed, Metric
from ragpipe.metrics.from_config import load_metric
from ragpipe.prompting.library import Prompt, PromptLibrary
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.answers import answer_schema
from ragpipe.schema.sample import Anchor, Case, Chunk, Citation, Expected, Output, Sample, Turn
from ragpipe.schema.score import Score

Reply = str | dict[str, Any] | Exception
SAMPLE_FIELDS = set(Sample.model_fields) - {"id", "question", "history", "references", "anchors", "expected"}
OUTPUT_FIELDS = set(Output.model_fields) - {"sample_id", "answer", "chunks", "citations"}


@dataclass(frozen=True)
class Asked:
    """One question as the judge got it."""

    step: str
    payload: Payload
    values: dict[str, Any]

    @property
    def user(self) -> str:
        return self.payload.messages[-1]["content"]


@dataclass
class ScriptedJudge:
    """Gives the replies in the order of the questions, or what a function says for a question.

    A reply is a text, a mapping (sent as JSON), or an error to raise. With `shuffled` a seeded number of turns of the
    event loop passes before each reply, so that replies come in another order than their questions. `vectors` are those
    of an embedder; without them there is none. `cut` are the texts of which it read the beginning.
    """

    replies: Sequence[Reply] | Callable[[Asked], Reply] = ()
    shuffled: int | None = None
    vectors: Mapping[str, Sequence[float]] | None = None
    cut: frozenset[str] = frozenset()
    asked: list[Asked] = field(default_factory=list)

    async def __call__(self, prompt: Prompt, answer: type[Any], /, **values: Any) -> Any:
        payload = Payload(prompt.render(**values), answer_schema(answer))
        question = Asked(prompt.step, payload, values)
        self.asked.append(question)
        if callable(self.replies):
            reply = self.replies(question)
        else:
            assert len(self.asked) <= len(self.replies), f"an unexpected question: {question.user}"
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

    def was_cut(self, text: str, /) -> bool:
        return text in self.cut

    @property
    def steps(self) -> list[str]:
        return [question.step for question in self.asked]


def make_case(
    answer: str | None = "Paris is the capital of France.",
    chunks: Sequence[str | dict[str, Any]] | None = ("Paris is the capital of France.",),
    question: str = "What is the capital of France?",
    **other: Any,
) -> Case:
    """A case; answer and chunks that are None are not recorded. A chunk is its text or its fields; `references`, `history`
    ([role, text]), `anchors` (fields), `citations` (chunk ids or fields), `expected` (fields) and all other fields of sample
    and output go by their names."""
    sample = {name: other.pop(name) for name in SAMPLE_FIELDS & set(other)}
    output = {name: other.pop(name) for name in OUTPUT_FIELDS & set(other)}
    for name, noun in (("anchors", Anchor),):
        if other.get(name) is not None:
            sample[name] = [noun(**fields) for fields in other.pop(name)]
    if other.get("expected") is not None:
        sample["expected"] = Expected(**other.pop("expected"))
    sample["history"] = [Turn(role=role, text=text) for role, text in other.pop("history", ())]
    sample["references"] = list(other.pop("references", ()))
    if "citations" in other:
        cited = other.pop("citations")
        output["citations"] = [Citation(chunk_id=c) if isinstance(c, str) else Citation(**c) for c in cited]
    assert not other, f"no such fields: {sorted(other)}"
    if chunks is not None:
        built = [{"text": chunk} if isinstance(chunk, str) else chunk for chunk in chunks]
        output["chunks"] = [Chunk(**{"id": f"c{i}", "rank": i, **fields}) for i, fields in enumerate(built, 1)]
    return Case(Sample(id="q1", question=question, **sample), Output(sample_id="q1", answer=answer, **output))


def shipped_metric(name: str, **parameters: Any) -> Metric:
    """The metric as its shipped YAML has it, with some parameters changed."""
    key = json.dumps([name, parameters], sort_keys=True)
    if key not in _LOADED:
        _LOADED[key] = load_metric(name, {**_section(name), **parameters}, _library())
    return _LOADED[key]


_LOADED: dict[str, Metric] = {}  # metrics are frozen, and compiling their templates is most of a small test


@cache
def _section(name: str) -> dict[str, Any]:
    return yaml.safe_load((conf_dir() / "metrics" / f"{name}.yaml").read_text(encoding="utf-8"))[name]


@cache
def _library() -> PromptLibrary:
    return PromptLibrary([prompts_dir()])


def shipped_names() -> list[str]:
    return sorted(path.stem for path in (conf_dir() / "metrics").glob("*.yaml"))


def score_of(metric: Metric, case: Case, judge: ScriptedJudge | None = None) -> dict[str, Score]:
    """What a run would record: skipped, an error of the judge, or the metric's scores; by score name."""
    specs = metric.scores()
    if reason := metric.absent(case):
        return {spec.name: Score(name=spec.name, status="skipped", reason=reason) for spec in specs}
    if isinstance(metric, Computed):
        found = metric.compute([case])[0]
    else:
        try:
            found = asyncio.run(metric.measure(case, judge or ScriptedJudge()))
        except Skipped as skip:
            return {spec.name: Score(name=spec.name, status="skipped", reason=skip.reason) for spec in specs}
        except JudgeError as error:
            return {spec.name: Score(name=spec.name, status="error", reason=str(error)) for spec in specs}
    scores = [found] if isinstance(found, Score) else found
    assert [s.name or metric.name for s in scores] == [spec.name for spec in specs]
    for score, spec in zip(scores, specs, strict=True):
        if score.value is not None and spec.low is not None and spec.high is not None:
            assert spec.low <= score.value <= spec.high
        json.dumps(score.details, allow_nan=False)
    return {score.name or metric.name: score for score in scores}
