"""A server whose headers say that nothing is left: until their reset nothing is sent, and the run says why it waits.

Other limits are tried over many seeds on a virtual clock (tests/unit/judge/test_limit_simulations.py).
"""

import asyncio
from typing import Any

import pytest

from ragpipe.core.call import Call
from ragpipe.judge.live_transport import LiveTransport
from tests.support.asking import nobody, question, settings


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("client", ["direct", "litellm"])
async def test_a_header_that_says_that_nothing_is_left(serve: Any, client: str) -> None:
    """A server of one's own with headers like OpenRouter's, five requests per second."""
    server = serve(rps=5, latency_ms=300, jitter=0.3)
    live, reasons = LiveTransport(settings(server.url, client=client, concurrency=8, retries=8), run_id="r"), set[str]()

    async def one(n: int) -> Call:
        async with live.slot():
            return await live.ask(question(f"a {n}"), nobody)

    async def watch() -> None:
        while True:
            hold = live.attempts.hold()
            if hold is not None:
                reasons.add(hold[1])
            await asyncio.sleep(0.05)

    watcher = asyncio.create_task(watch())
    try:
        calls = await asyncio.gather(*(one(n) for n in range(60)))
    finally:
        watcher.cancel()
        await live.close()
    assert {call.status for call in calls} == {"ok"}
    assert sum(line["status"] == 200 for line in server.log) == 60
    arrived = [line["arrived"] for line in server.log]
    assert max(arrived) - min(arrived) < 1.5 * 11, "without litellm's import"
    assert "limit used up" in reasons
