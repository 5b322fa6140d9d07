"""What a metric would ask, without a judge: its own `measure` runs over likely replies, and every question is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ragpipe.core.errors import RUN_ENDING, JudgeError, PromptError, PromptTooLong, Skipped, decisive_error
from ragpipe.core.sample import Case
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.vectors import Floats, TokenMatch
from ragpipe.metrics.base import Computed, Metric
from ragpipe.metrics.likely_replies import ReplySize, likely_reply, reply_size

A = TypeVar("A", bound=Answer)
T = TypeVar("T")

MOST_QUESTIONS = 200
"""Questions about one case after which a metric is stopped: no likely reply satisfies it."""
_VECTOR: Floats = np.ones(2, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of a metric: its template, the type of the reply, the values of the template, and how large a likely reply is."""

    prompt: Prompt
    answer: type[Answer]
    values: Mapping[str, Any]
    size: ReplySize


class _TooMany(BaseException):
    """Ends a metric that asks without end, also one that catches every `Exception`."""


@dataclass(slots=True)
class RecordingJudge:
    """A judge for one metric and one case (`ragpipe.judge.question.Judge`) that answers at once.

    `record` is told of each question, and may raise PromptTooLong. `yes` is what it says where YES or NO is asked for. `texts`
    are those for an embedder or an encoder, `count` the questions so far, `unforeseen` why there may be more than these.
    """

    record: Callable[[Asked], None]
    yes: bool = False
    count: int = 0
    texts: set[str] = field(default_factory=set)
    unforeseen: str = ""
    _of_tasks: dict[Any, int] = field(default_factory=dict)
    _steps: set[str] = field(default_factory=set)

    @property
    def rounds(self) -> int:
        """How many of the questions wait for each other, at most: those of one task of `measure`, and those of different steps."""
        return max(len(self._steps), *self._of_tasks.values()) if self._of_tasks else 0

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A:
        if self.count >= MOST_QUESTIONS:
            raise _TooMany(f"after {MOST_QUESTIONS} questions about a case it asks on, whatever the reply")
        self.count += 1
        task = asyncio.current_task()
        self._of_tasks[task] = self._of_tasks.get(task, 0) + 1
        self._steps.add(prompt.step)
        size = reply_size(answer, values, prompt)
        try:
            self.record(Asked(prompt, answer, values, size))
        except PromptTooLong as error:
            raise JudgeError("too_long", str(error)) from error
        return likely_reply(answer, size, yes=self.yes)

    async def embed(self, texts: Sequence[str], /) -> list[Floats]:
        self.texts.update(texts)
        return [_VECTOR] * len(texts)

    def was_truncated(self, text: str, /) -> bool:
        return False

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        self.texts.update((candidate, reference))
        return TokenMatch(precision=0.9, recall=0.9, f1=0.9, tokens=[1, 1], cut=[])

    async def run(self, metric: Metric, case: Case) -> None:
        """Let the metric measure the case. Raises only what ends a run; another error is `unforeseen`."""
        if isinstance(metric, Computed):
            return
        try:
            await metric.measure(case, self)
        except _TooMany as error:
            self.unforeseen = str(error)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            decisive = decisive_error(error) if isinstance(error, Exception) else error
            if isinstance(decisive, (*RUN_ENDING, PromptError)):
                raise decisive from None
            if not isinstance(decisive, Skipped | JudgeError):
                self.unforeseen = f"it raises {type(decisive).__name__}: {decisive}"


def questions_of(metric: Metric, case: Case) -> list[Asked]:
    """What a metric asks about a case that it applies to, over likely replies, in order."""
    asked: list[Asked] = []
    run_in_place(RecordingJudge(asked.append).run(metric, case))
    return asked


def run_in_place(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on an event loop of its own; inside a running one (a notebook) in a second thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_free = True
    else:
        is_free = False
    if is_free:
        return _run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, _run, work).result()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Not `asyncio.run`: it would hold an interrupt back until a metric waits for something."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        if left := asyncio.all_tasks(loop):  # those that a metric did not wait for
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
