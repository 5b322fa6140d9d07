"""Questions that begin alike: who waits for whom, and how much of the prompts is counted as shared."""

from __future__ import annotations

import asyncio

import pytest

from ragpipe.judging.cache_key import Question
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.shared_prefixes import BLOCK, LEAST, SharedPrefixes
from ragpipe.schema.judge_answers.behaviour_answers import Refusal
from tests.support.asking import question

CONTEXTS = "".join(f"Passage {number} of one case. " for number in range(300))  # about 7,000 characters
HEAD = len("system\nt\n") + len("user\nThe answer:\n<000000000000>\n")


def asked(text: str, **more: object) -> Question:
    """A question whose prompt is the text, after the same few words."""
    made = question("x", task="t", **more)  # type: ignore[arg-type]
    messages = ({"role": "system", "content": "t"}, {"role": "user", "content": text})
    object.__setattr__(made, "payload", type(made.payload)(messages, made.payload.schema))
    return made


async def run(prefixes: SharedPrefixes, *questions: Question) -> list[str]:
    """Ask all at once; what began and ended, in order."""
    events: list[str] = []

    async def one(number: int, each: Question) -> None:
        async with prefixes.turn(each):
            events.append(f"{number} sent")
            await asyncio.sleep(0.01)
            events.append(f"{number} answered")

    await asyncio.gather(*(one(number, each) for number, each in enumerate(questions)))
    return events


async def test_the_first_goes_alone_and_the_others_follow_together() -> None:
    prefixes = SharedPrefixes(by_schema=False)
    events = await run(prefixes, *(asked(CONTEXTS + f"Task {number}.") for number in range(3)))
    assert events[:2] == ["0 sent", "0 answered"]
    assert set(events[2:4]) == {"1 sent", "2 sent"}
    whole = len("system\nt\nuser\n") + len(CONTEXTS)
    blocks = LEAST + (whole - LEAST) // BLOCK * BLOCK  # the part that all three share, in whole blocks
    assert prefixes.shared == 2 * blocks
    assert prefixes.sent == 3 * (whole + len("Task 0.\n"))


@pytest.mark.parametrize("texts", [
    ["short question"] * 3,  # nobody caches 1,024 tokens of it
    [f"{number} {CONTEXTS}" for number in range(3)],  # they differ from the beginning
    [CONTEXTS[:3500] + f"{number} " * 1000 for number in range(3)],  # they share too little
])  # fmt: skip
async def test_what_shares_too_little_waits_for_nobody(texts: list[str]) -> None:
    prefixes = SharedPrefixes(by_schema=False)
    events = await run(prefixes, *(asked(text + f" {number}") for number, text in enumerate(texts)))
    assert events[:3] == ["0 sent", "1 sent", "2 sent"]
    assert prefixes.shared == 0


async def test_another_schema_is_another_beginning_where_the_provider_puts_it_first() -> None:
    pair = (asked(CONTEXTS + "a"), asked(CONTEXTS + "b", answer=Refusal))
    assert (await run(SharedPrefixes(by_schema=True), *pair))[:2] == ["0 sent", "1 sent"]
    assert (await run(SharedPrefixes(by_schema=False), *pair))[:2] == ["0 sent", "0 answered"]


async def test_switched_off_it_only_counts() -> None:
    prefixes = SharedPrefixes(by_schema=False, waits=False)
    assert (await run(prefixes, asked(CONTEXTS + "a"), asked(CONTEXTS + "b")))[:2] == ["0 sent", "1 sent"]
    await run(prefixes, asked(CONTEXTS + "c"))
    assert 0 < prefixes.shared < prefixes.sent


async def test_a_leader_that_fails_or_is_cancelled_lets_the_others_go() -> None:
    prefixes = SharedPrefixes(by_schema=False)

    async def fails() -> None:
        async with prefixes.turn(asked(CONTEXTS + "a")):
            await asyncio.sleep(0.01)
            raise ValueError("broken")

    async def waits() -> str:
        async with prefixes.turn(asked(CONTEXTS + "b")):
            return "went"

    first, second = asyncio.create_task(fails()), asyncio.create_task(waits())
    await asyncio.sleep(0)
    assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], ValueError)
    assert await asyncio.wait_for(second, 1) == "went"


def test_a_public_provider_puts_the_schema_first_and_an_own_server_does_not() -> None:
    def by_schema(**keys: object) -> bool:
        return SharedPrefixes.of(JudgeSettings(**{"model": "openai/gpt-4o-2024-08-06", **keys}))._by_schema  # type: ignore[arg-type]

    assert by_schema()
    assert not by_schema(output_mode="plain")
    assert not by_schema(api_base="http://127.0.0.1:8000/v1")
