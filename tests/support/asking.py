"""Questions and transports for the tests over the wire."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ragpipe.core.call import Call, Payload, Payment
from ragpipe.core.digest import sha256
from ragpipe.judge.answer_type import Answer, answer_schema
from ragpipe.judge.answers import Grade15
from ragpipe.judge.live_transport import LiveTransport
from ragpipe.judge.provider_state import ProviderRegistry
from ragpipe.judge.question import Question, key_parts, question_key
from ragpipe.judge.settings import JudgeSettings

SENTINEL = "sentinel-key-0123456789abcdef-SECRET"
VARIABLE = "RAGPIPE_TEST_KEY"
CLIENTS = ["direct", pytest.param("litellm", marks=pytest.mark.slow)]
"""The clients by which a judge is asked; the import of litellm and its 9 ms a call add up."""


def settings(url: str, **keys: Any) -> JudgeSettings:
    given = {"model": "openai/test-model-2024-07-18", "api_base": url, "api_key_env": VARIABLE, "retries": 2, "timeout_s": 20.0}
    return JudgeSettings(**{**given, **keys})


def question(
    text: str = "How good?", answer: type[Answer] = Grade15, judge: str = "test", task: str = "You grade answers from 1 to 5."
) -> Question:
    tag = sha256(text)[:12]
    messages = ({"role": "system", "content": task}, {"role": "user", "content": f"The answer:\n<{tag}>\n{text}\n</{tag}>"})
    payload = Payload(messages, answer_schema(answer))
    parts = key_parts(payload, {"judge": judge}, 1, 1)
    return Question(question_key(parts), payload, answer, judge, parts, "case-1/default / grade / rate")


def questions(count: int) -> list[Question]:
    return [question(f"Answer number {i}.") for i in range(count)]


def nobody(payment: Payment, *, alone: bool = False) -> None:
    """Keeps no payment."""


async def ask(
    found: JudgeSettings, *questions: Question, paid: Callable[[Payment], None] = nobody, tell: Callable[[str], None] = lambda _: None,
    start: ProviderRegistry | None = None,
) -> list[Call]:  # fmt: skip
    """Ask all at once through one transport, each holding its slot, and close it."""
    live = LiveTransport(found, run_id="test-run", tell=tell)
    if start is not None:
        live.share_provider_state(start)

    async def one(asked: Question) -> Call:
        async with live.slot():
            return await live.ask(asked, lambda payment, **_: paid(payment))

    try:
        return await asyncio.gather(*map(one, questions or (question(),)))
    finally:
        await live.close()
