"""The door over a real call store and the local server: what it asks for again, and how often."""

from __future__ import annotations

import pytest
from asking import VARIABLE, question, settings

from ragpipe.judging.door import Door
from ragpipe.judging.transports.live import LiveTransport
from ragpipe.store.calls import CallStore


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv(VARIABLE, "a-test-key-of-no-worth")


async def test_a_failure_is_asked_again_once_a_start_however_many_use_it(serve, tmp_path):
    server = serve("400")

    async def start(*, retry_errors: bool, uses: int) -> list[str]:
        store = CallStore(tmp_path / "calls.sqlite", run_id="r")
        door = Door(
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
