"""Two transports with rows of their own over one file, as two processes have them: what one meets, the other obeys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import OutputError
from ragpipe.judging.limits.shared_limits import SharedLimits, SharedUse
from ragpipe.judging.transports.live_transport import LiveTransport
from ragpipe.judging.transports.provider_state import ProviderRegistry
from ragpipe.store.limits.sqlite_limits import SqliteLimits
from tests.support.asking import nobody, question, settings
from tests.support.waiting import HANGS_AFTER_S


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "a-test-key-of-no-worth")
    monkeypatch.setattr("ragpipe.judging.limits.retries.backoff", lambda attempt, **_: 0.02 * attempt)
    monkeypatch.setattr("ragpipe.judging.limits.outage._FIRST", 0.05)


@contextmanager
def process(file: Path, url: str, said: list[str], **judge: Any) -> Iterator[LiveTransport]:
    """A transport, with the rows of another process."""
    limits = SharedLimits(lambda: SqliteLimits(file), said.append)
    with ExitStack() as stack:
        stack.callback(limits.close)
        account = stack.enter_context(closing(limits.account("run")))
        live = LiveTransport(settings(url, **judge), run_id="r", tell=said.append, shared=SharedUse(limits, account))
        live.share_provider_state(ProviderRegistry("start"))
        yield live


async def ask(live: LiveTransport, name: str, count: int) -> list[str]:
    """The states of so many questions, asked at once."""

    async def one(number: int) -> str:
        async with live.slot():
            return (await live.ask(question(f"{name} {number}"), nobody)).status

    return list(await asyncio.gather(*(one(number) for number in range(count))))


async def _until_paused(told: list[str]) -> None:
    async with asyncio.timeout(HANGS_AFTER_S):
        while True:
            if any("paused" in text for text in told):
                return
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_an_outage_pauses_the_other_and_its_end_is_seen(serve: Any, tmp_path: Path) -> None:
    down = "+".join(str(number) for number in range(5, 16))  # six at once, then five probes
    server, told, told_too = serve(f"500:nth={down}", latency_ms=5), list[str](), list[str]()
    with (
        process(tmp_path / "l", server.url, told, concurrency=6) as busy,
        process(tmp_path / "l", server.url, told_too, concurrency=2) as quiet,
    ):
        assert await ask(busy, "a", 2) == ["ok"] * 2
        assert await ask(quiet, "b", 2) == ["ok"] * 2
        outage = asyncio.create_task(ask(busy, "c", 20))
        await _until_paused(told)
        await asyncio.sleep(0.3)
        before = server.tries
        assert await ask(quiet, "d", 2) == ["ok"] * 2
        assert await outage == ["ok"] * 20
        await busy.close()
        await quiet.close()
    assert any("another process has no answer" in text for text in told_too)
    assert before < 15, "it was asked in the outage"
    assert server.tries == 4 + 11 + 22, "no question was sent in vain but those that met the outage, and its probes"


@pytest.mark.thorough
@pytest.mark.slow
async def test_the_first_call_goes_alone_over_all_processes(serve: Any, tmp_path: Path) -> None:
    server = serve(latency_ms=200)
    with ExitStack() as stack:
        lives = [stack.enter_context(process(tmp_path / "l", server.url, [])) for _ in range(3)]
        await asyncio.gather(*(ask(live, f"{number}", 2) for number, live in enumerate(lives)))
        for live in lives:
            await live.close()
    first, second = sorted(server.log, key=lambda line: line["n"])[:2]
    assert second["arrived"] >= first["done"] - 0.01


async def test_limits_that_cannot_be_written_hold_here_and_questions_are_refused(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "l").mkdir()  # a folder where the file should be
    said: list[str] = []
    with process(tmp_path / "l", serve().url, said) as live:
        with pytest.raises(OutputError, match="limits of all processes"):
            await ask(live, "a", 1)
        live._shared = None  # counted here alone: what is left are the limits of the provider
        assert await ask(live, "a", 3) == ["ok"] * 3
        await live.close()
    assert sum("limits hold in this process alone" in text for text in said) == 1
