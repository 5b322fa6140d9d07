"""Questions that a task asks the judge beside any run: planned within its limit, paid under a name of their own, and none of them twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ragpipe.core.call import Call, Payload
from ragpipe.core.digest import sha256
from ragpipe.core.errors import TRANSIENT, Incomplete, JudgeError
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.question import judge_parts, key_parts, question_key
from ragpipe.judge.session import JudgeSession
from ragpipe.metrics.recording_judge import ReplySize, expected_tokens
from ragpipe.report.console import Console
from ragpipe.runs.event_loop import SignalHandlers, run_async
from ragpipe.runs.judge_access import open_judge, refuse_other_addresses, store_place
from ragpipe.runs.plan import Plan, StepPlan, TokenSample, prompt_counter
from ragpipe.runs.plan_notices import check_call_budget, plan_line
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.work_meter import WorkDone, WorkMeter
from ragpipe.store.call_store import read_calls

R = TypeVar("R")
T = TypeVar("T")
ITERATION = 1
"""The iteration in the keys of these questions."""


@dataclass(frozen=True, slots=True)
class OwnQuestion:
    """A question as the plan counts it. `length`: the characters of its texts; `size`: what the size of the reply follows from."""

    payload: Payload
    answer: type[Answer]
    length: int
    size: ReplySize
    repeat: int = 1


class OpenJudge:
    """The judge while it is asked. Replies are in the call store before they are used: a second start asks only what has none."""

    def __init__(self, session: JudgeSession):
        self.session, self.done = session, 0

    async def all(self, asked: Iterable[Awaitable[R]]) -> list[R | JudgeError]:
        """What each question gave, in order; the error of the judge where it has no reply for good.

        Raises Incomplete where some failed for a passing reason, and the first error that is not the judge's.
        """
        replies: list[R | JudgeError] = []
        for reply in await asyncio.gather(*map(self._counted, asked), return_exceptions=True):
            if isinstance(reply, JudgeError) or not isinstance(reply, BaseException):
                replies.append(reply)
            else:
                raise reply
        if passing := [fault for reply in replies if (fault := _passing_fault(reply))]:
            raise Incomplete(
                f"{len(passing):,} questions failed for a passing reason, first {passing[0]}; the same command asks them again"
            )
        return replies

    async def _counted(self, asked: Awaitable[R]) -> R:
        try:
            return await asked
        finally:
            self.done += 1


def _passing_fault(reply: object) -> str | None:
    if isinstance(reply, Call):
        return f"{reply.status}: {reply.message}" if reply.status in TRANSIENT else None
    return str(reply) if isinstance(reply, JudgeError) and reply.transient else None


class OwnQuestions:
    """Asks the judge of `config` for a task, which pays under `<task>-<hash of the judge>`: the same for the same judge.

    Raises ConfigError when an environment variable would lead a call to another address.
    """

    def __init__(self, config: RunConfig, task: str, console: Console):
        refuse_other_addresses(config)
        identity = config.judge.identity_of_judge()
        self._config, self._task, self._console = config, task, console
        self._payer, self._judge = f"{task}-{sha256(identity)[:12]}", judge_parts(identity)

    def stored(self, questions: Iterable[OwnQuestion]) -> int:
        """How many of these questions have a stored reply of any payer that may answer."""
        return len(read_calls(store_place(self._config), self._keys(questions)))

    def announce(self, steps: Mapping[str, Sequence[OwnQuestion]], *, cases: int, notes: Sequence[str] = ()) -> None:
        """Print the plan of the questions by step, and notes on it. Raises ConfigError where it is over `judge.max_calls`."""
        counter, keys, planned = prompt_counter(self._config.judge), list[str](), list[StepPlan]()
        for step, questions in steps.items():
            sample = TokenSample()
            for asked in questions:
                sample.add(asked.length, counter.tokens(asked.payload.messages, asked.answer))
                sample.add_calls(asked.length, expected_tokens(asked.answer, asked.size), 1)
            keys += self._keys(questions)
            planned.append(StepPlan(self._task, step, step, calls=len(questions), sample=sample))
        stored = len(read_calls(store_place(self._config), keys, run_id=self._payer))
        plan = Plan(cases, 1, [], planned, stored=stored, missing=len(keys) - stored)
        for line in (plan_line(plan, self._config), *notes):
            self._console.say(line)
        check_call_budget(plan, self._config)

    def ask(self, use: Callable[[OpenJudge], Awaitable[T]], *, total: int, label: str) -> T:
        """What `use` makes of the open judge, with a line of progress over `total` questions. Raises what asking raises: Incomplete,
        Interrupted, ProviderUnusable."""
        return run_async(self._ask(use, total, label))

    async def _ask(self, use: Callable[[OpenJudge], Awaitable[T]], total: int, label: str) -> T:
        warn = self._console.warn
        async with open_judge(self._config, self._payer, warn=warn, embeds=False) as session:
            judge = OpenJudge(session)
            work = lambda: WorkDone(min(judge.done, total), errors=session.failed)  # noqa: E731
            meter = WorkMeter("judging", total, work, session=session)
            with self._console.progress(meter.state, label=label, noun="questions"), SignalHandlers(session, warn):
                try:
                    return await use(judge)
                finally:
                    await session.drain()

    def _keys(self, questions: Iterable[OwnQuestion]) -> list[str]:
        return [question_key(key_parts(asked.payload, self._judge, ITERATION, asked.repeat)) for asked in questions]
