"""The session over a real call store and the local server: what it asks for again, and how often."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from ragpipe.core.errors import Interrupted
from ragpipe.judge.live_transport import LiveTransport
from ragpipe.judge.session import JudgeSession
from ragpipe.store.call_store import CallStore
from tests.support.asking import question, settings

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test


@asynccontextmanager
async def opened(server, path, **keys):
    store = CallStore(path / "calls.sqlite", run_id="r")
    session = JudgeSession(
        identity={"model": "m"}, label="m", store=store, transport=LiveTransport(settings(server.url), run_id="r"), **keys
    )
    try:
        yield session
    finally:
        await session.drain()
        await session.close()
        store.close()


async def patiently(session, text="How good?"):
    return (await session.reply(question(text))).status


async def hastily(session):
    async with asyncio.timeout(0.05):
        await session.reply(question())


async def in_a_group_that_fails(session):
    async with asyncio.TaskGroup() as group:
        group.create_task(patiently(session))
        await asyncio.sleep(0.05)
        raise ValueError("another task of the group failed")


@pytest.mark.parametrize("impatient", [hastily, in_a_group_that_fails])
async def test_whoever_gives_up_waiting_gives_up_nothing_else(serve, tmp_path, impatient):
    server = serve(latency_ms=300)
    async with opened(server, tmp_path) as session:
        gone, other = await asyncio.gather(impatient(session), patiently(session), return_exceptions=True)
        assert isinstance(gone, TimeoutError | ExceptionGroup)
        assert other == "ok"
        assert await patiently(session, "and another") == "ok"
    assert server.tries == 2


@pytest.mark.parametrize("impatient", [hastily, in_a_group_that_fails])
async def test_a_question_that_nobody_waits_for_any_more_lands_and_is_stored(serve, tmp_path, impatient):
    server = serve(latency_ms=300)
    async with opened(server, tmp_path) as session:
        with pytest.raises((TimeoutError, ExceptionGroup)):
            await impatient(session)
        await session.drain()
        assert (session.asked, session.failed) == (1, 0)
    async with opened(server, tmp_path) as session:
        assert await patiently(session) == "ok"
    assert server.tries == 1


async def test_what_a_run_gives_up_is_an_interruption_for_whoever_waits(serve, tmp_path):
    server = serve("hang")
    async with opened(server, tmp_path) as session:
        waiting = asyncio.create_task(patiently(session))
        await asyncio.sleep(0.1)
        session.cancel()
        with pytest.raises(Interrupted):
            await waiting


async def test_a_failure_is_asked_again_once_a_start_by_all_its_processes(serve, tmp_path):
    """Three sessions stand for three processes of a start; the second of two starts asks again, and a third one does."""
    server = serve("400")
    async with opened(server, tmp_path) as session:
        assert [await patiently(session) for _ in range(2)] == ["bad_request"] * 2
    async with opened(server, tmp_path, retry_errors=False) as session:
        assert await patiently(session) == "bad_request"
    assert server.tries == 1
    for tries in (2, 3):
        began_at = time.time()
        async with AsyncExitStack() as stack:
            for _ in range(3):
                session = await stack.enter_async_context(opened(server, tmp_path, retry_errors=True))
                session._began_at = None  # the one that it is told counts
                session.set_beginning(began_at)
                assert await patiently(session) == "bad_request"
        assert server.tries == tries
