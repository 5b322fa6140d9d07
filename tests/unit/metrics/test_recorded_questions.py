"""What a plan records by a metric's own `measure`, against what a judge is really asked."""

import asyncio
from contextlib import suppress

import pytest

from ragpipe.core.score import Score
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.answers import Grade15
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.metrics.base import Metric
from ragpipe.metrics.recording_judge import MOST_QUESTIONS, questions_of
from ragpipe.runs.plan import PromptCounter, make_plan
from ragpipe.testing.scripted import ScriptedJudge, make_case, shipped_metric
from tests.unit.metrics.test_metric_prompts import CASE, TUNED, VARIANTS, Anything, dutiful

FOLLOWING = {"verify", "refine", "check", "trace", "assign", ("context_utilization", "use"), ("noise_sensitivity", "grade")}
"""Steps that show earlier replies, or that a reply makes necessary."""


@pytest.mark.parametrize(("name", "parameters"), [*VARIANTS, *TUNED])
def test_questions_that_wait_for_no_reply_are_those_of_a_run(name, parameters):
    metric, judge = shipped_metric(name, **parameters), ScriptedJudge(dutiful, vectors=Anything())
    asyncio.run(metric.measure(CASE, judge))
    following = {step for step in metric.step_names() if {step, (name, step)} & FOLLOWING}
    recorded = questions_of(metric, CASE)
    planned = [asked.prompt.render(**asked.values) for asked in recorded if asked.prompt.step not in following]
    assert planned == [asked.payload.messages for asked in judge.asked if asked.step not in following]
    assert planned
    assert {step for step in judge.steps if step in following} <= {asked.prompt.step for asked in recorded}


class Own(Metric):
    """A metric of a user's."""

    grade: Prompt

    async def ask(self, case, judge):
        return await judge(self.grade, Grade15, answer=case.answer)


class Insisting(Own):
    async def measure(self, case, judge):
        while (await self.ask(case, judge)).score > 1:
            pass
        return Score(1.0)


class Stubborn(Own):
    async def measure(self, case, judge):
        while True:
            with suppress(Exception):
                await self.ask(case, judge)


class Choosy(Own):
    async def measure(self, case, judge):
        await self.ask(case, judge)
        return Score({"good": 1.0}[(await self.ask(case, judge)).reason])


class Hasty(Own):
    async def measure(self, case, judge):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.ask(case, judge)) for _ in range(3)]
        left = asyncio.create_task(asyncio.sleep(3600))
        scores = [task.result().score for task in tasks]
        return Score(sum(scores) if await asyncio.to_thread(bool, left) else 0.0)


class Chosen(Answer):
    code: str = "x"

    def model_post_init(self, context):
        if self.code != "42":
            raise ValueError("no code")


class Coded(Own):
    async def measure(self, case, judge):
        await judge(self.grade, Chosen, answer=case.answer)


OWN = [
    # metric, questions a case, rounds, what the plan says of it
    (Insisting, MOST_QUESTIONS, MOST_QUESTIONS, "after 200 questions about a case it asks on"),
    (Stubborn, MOST_QUESTIONS, MOST_QUESTIONS, "after 200 questions about a case it asks on"),
    (Choosy, 2, 2, "it raises KeyError"),
    (Coded, 1, 1, "no made-up reply is a valid Chosen"),
    (Hasty, 3, 1, ""),
]


@pytest.fixture
def prompt(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/grade.v1.jinja").write_text("---\nroles: {answer: text}\n---\n[[user]]\n{{ answer }}\n")
    return PromptLibrary([tmp_path]).load("own", "grade", "v1")


@pytest.mark.parametrize(("cls", "questions", "rounds", "said"), OWN)
@pytest.mark.parametrize("loop", [False, True])
def test_a_metric_of_ones_own_needs_no_more_than_measure(prompt, cls, questions, rounds, said, loop):
    """Also inside a running event loop, as in a notebook. The same question again is one call."""
    metric, cases = cls(name="own", grade=prompt), [make_case(f"answer {i}", id=f"q{i}") for i in range(2)]

    def plan():
        return make_plan(cases, [metric], iterations=1, counter=PromptCounter(len))

    async def in_loop():
        return plan()

    made = asyncio.run(in_loop()) if loop else plan()
    assert (made.calls, made.shared, made.rounds) == (2, 2 * (questions - 1), rounds)
    (planned,) = made.metrics
    assert (planned.unforeseen, bool(planned.first_unforeseen)) == ((2, True) if said else (0, False))
    assert said in planned.first_unforeseen
