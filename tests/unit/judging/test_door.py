"""The door over a real call store and the local server: what it asks for again, and how often."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from ragpipe.core.errors import Interrupted
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.transports.live_transport import LiveTransport
from ragpipe.store.calls.call_store import CallStore
from tests.support.asking import VARIABLE, question, settings


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv(VARIABLE, "a-test-key-of-no-worth")


async def test_a_failure_is_asked_again_once_a_start_however_many_use_it(serve, tmp_path):
    server = serve("400")

    async def start(*, retry_errors: bool, uses: int) -> list[str]:
        store = CallStore(tmp_path / "calls.sqlite", run_id="r")
        door = JudgeSession(
            identity={"model": "m"}, label="m", store=store, retry_errors=retry_errors,
            transport=LiveTransport(settings(server.url), run_id="r"),
        )  # fmt: skip
        try:
            return [(await door.reply(question())).status for _ in range(uses)]
        finally:
            await door.close()
            store.close()

    assert await start(retry_errors=False, uses=2) == ["bad_request"] * 2
    assert server.tries == 1
    assert await start(retry_errors=True, uses=3) == ["bad_request"] * 3
    assert server.tries == 2


@asynccontextmanager
async def opened(server, path, **keys):
    store = CallStore(path / "calls.sqlite", run_id="r")
    door = JudgeSession(
        identity={"model": "m"},
        label="m",
        store=store,
        transport=LiveTransport(settings(server.url), run_id="r"),
        **keys,
    )
    try:
        yield door
    finally:
        await door.settle()
        await door.close()
        store.close()


async def patiently(door, text="How good?"):
    return (await door.reply(question(text))).status


async def hastily(door):
    async with asyncio.timeout(0.05):
        await door.reply(question())


async def in_a_group_that_fails(door):
    async with asyncio.TaskGroup() as group:
        group.create_task(patiently(door))
        await asyncio.sleep(0.05)
        raise ValueError("another task of the group failed")


@pytest.mark.parametrize("impatient", [hastily, in_a_group_that_fails])
async def test_whoever_gives_up_waiting_gives_up_nothing_else(serve, tmp_path, impatient):
    server = serve(latency_ms=300)
    async with opened(server, tmp_path) as door:
        gone, other = await asyncio.gather(impatient(door), patiently(door), return_exceptions=True)
        assert isinstance(gone, TimeoutError | ExceptionGroup)
        assert other == "ok"
        assert await patiently(door, "and another") == "ok"
    assert server.tries == 2


@pytest.mark.parametrize("impatient", [hastily, in_a_group_that_fails])
async def test_a_question_that_nobody_waits_for_any_more_lands_and_is_stored(serve, tmp_path, impatient):
    server = serve(latency_ms=300)
    async with opened(server, tmp_path) as door:
        with pytest.raises((TimeoutError, ExceptionGroup)):
            await impatient(door)
        await door.settle()
        assert (door.spent.asked, door.spent.failed) == (1, 0)
    async with opened(server, tmp_path) as door:
        assert await patiently(door) == "ok"
    assert server.tries == 1


async def test_what_a_run_gives_up_is_an_interruption_for_whoever_waits(serve, tmp_path):
    server = serve("hang")
    async with opened(server, tmp_path) as door:
        waiting = asyncio.create_task(patiently(door))
        await asyncio.sleep(0.1)
        door.cancel()
        with pytest.raises(Interrupted):
            await waiting


async def test_keys_are_remembered_only_where_they_are_asked_again(serve, tmp_path):
    server = serve()
    async with opened(server, tmp_path) as door:
        await patiently(door)
        assert door._retried == set()
