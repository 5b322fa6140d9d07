"""Servers with real limits and 32 calls at once: the run ends, few requests are refused, and no Retry-After is ignored.

Everything is counted from the server's own log. Limits that change, and limits of tokens that nobody named, are tried over many seeds on a
virtual clock (tests/unit/judging/test_limit_simulations.py).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.live_transport import LiveTransport
from ragpipe.schema.call import Call
from tests.support.asking import VARIABLE, nobody, question, settings

pytestmark = pytest.mark.slow  # each for half a minute

WARM_UP_S = 10.0
WORD = "word "


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a-test-key-of-no-worth")


class Asked:
    """What came of many questions at once: the calls, the seconds, why they waited, and the server's log."""

    def __init__(self, calls: list[Call], seconds: float, reasons: set[str], log: list[dict[str, Any]]):
        self.calls, self.seconds, self.reasons = calls, seconds, reasons
        self.log = sorted(log, key=lambda line: line["arrived"])

    def refused(self, after_s: float = WARM_UP_S) -> float:
        """The share of requests refused later than so many seconds after the first."""
        began = self.log[0]["arrived"]
        late = [line for line in self.log if line["arrived"] - began > after_s]
        assert len(late) > 50, "too few requests to tell a share"
        return sum(line["status"] != 200 for line in late) / len(late)

    def check_all_answered(self) -> None:
        assert {call.status for call in self.calls} == {"ok"}
        assert sum(line["status"] == 200 for line in self.log) == len(self.calls)


async def ask_all(found: JudgeSettings, server: Any, calls: int, *, length: int = 200) -> Asked:
    """Ask so many questions of different lengths at once."""
    live = LiveTransport(found, run_id="test-run")
    reasons: set[str] = set()

    async def one(n: int) -> Call:
        async with live.slot():
            return await live.ask(question(f"a {n} {WORD * (n * 37 % length)}"), nobody)

    async def watch() -> None:
        while True:
            hold = live.attempts.hold()
            if hold is not None:
                reasons.add(hold[1])
            await asyncio.sleep(0.05)

    watcher, began = asyncio.create_task(watch()), time.monotonic()
    try:
        done = await asyncio.gather(*(one(n) for n in range(calls)))
    finally:
        watcher.cancel()
        await live.close()
    return Asked(done, time.monotonic() - began, reasons, server.log)


async def test_5_requests_per_second_with_retry_after(serve: Any) -> None:
    """200 calls at 5 per second are 39 s with 5 in reserve."""
    server = serve(limits="rps=5,retry_after=1", latency_ms=300, jitter=0.3)
    found = await ask_all(settings(server.url, concurrency=32, retries=8), server, 200)
    found.check_all_answered()
    assert found.refused() < 0.08
    assert found.seconds < 1.3 * 39
    assert "429" in found.reasons
    refused = [line["done"] for line in found.log if line["status"] == 429]
    # what had left when a refusal came may still arrive; on a busy machine that takes a while
    early = [line for line in found.log for at in refused if at + 0.3 < line["arrived"] < at + 0.99]
    assert early == []


async def test_tokens_counted_by_max_tokens(serve: Any) -> None:
    """About 170 tokens a prompt and 500 that a reply might have: 7.5 calls per second."""
    server = serve(limits="tps=5000", latency_ms=300, jitter=0.3)
    wide = settings(server.url, concurrency=32, retries=8, tpm=300_000.0, max_tokens=500)
    found = await ask_all(wide, server, 200)
    found.check_all_answered()
    assert found.refused() < 0.08
    assert found.seconds < 1.2 * (taken(server, 500) / 5000)
    assert "tpm" in found.reasons


def taken(server: Any, max_tokens: int | None) -> float:
    """The tokens that the server has counted for its good answers."""
    usages = [line["usage"] for line in server.log if line["status"] == 200]
    replies = (usage["completion_tokens"] if max_tokens is None else max_tokens for usage in usages)
    return float(sum(usage["prompt_tokens"] for usage in usages) + sum(replies))


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("status", [503, 429])
async def test_8_at_once_of_32(serve: Any, status: int) -> None:
    """600 calls of 0.3 s, eight at once: 22.5 s. No outage is said, as other requests are answered."""
    server = serve(limits=f"width=8,status={status}", latency_ms=300, jitter=0.3)
    found = await ask_all(settings(server.url, concurrency=32, retries=8), server, 600)
    found.check_all_answered()
    assert found.refused(5.0) < 0.05
    assert found.seconds < 1.3 * 22.5
    assert "overload" in found.reasons


@pytest.mark.thorough
async def test_the_limit_in_the_headers_of_a_known_provider(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure through litellm, which has always an address of its own: no request is refused once the headers are known."""
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")
    server = serve(limits="rps=5,headers=openai", latency_ms=300, jitter=0.3)
    known = settings(server.url.removesuffix("/v1"), model="azure/test-model-2024-07-18", client="litellm", concurrency=32, retries=8)
    found = await ask_all(known, server, 100)
    found.check_all_answered()
    assert [line for line in found.log if line["status"] != 200] == []
    seconds = found.log[-1]["arrived"] - found.log[0]["arrived"]  # without litellm's import
    assert seconds < 1.15 * 100 / (5 / 1.04)
    assert "request limit" in found.reasons


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("client", ["direct", "litellm"])
async def test_a_header_that_says_that_nothing_is_left(serve: Any, client: str) -> None:
    """A server of one's own with headers like OpenRouter's: until the reset nothing is sent."""
    server = serve(limits="rps=5,headers=plain", latency_ms=300, jitter=0.3)
    found = await ask_all(settings(server.url, client=client, concurrency=8, retries=8), server, 60)
    found.check_all_answered()
    seconds = found.log[-1]["arrived"] - found.log[0]["arrived"]  # without litellm's import
    assert seconds < 1.5 * 11
    assert "limit used up" in found.reasons
