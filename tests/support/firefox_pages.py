"""A page of ours in the Firefox of the machine, by the standard WebDriver BiDi: no driver program, no patched browser."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
"""The Firefox of the machine; its tests are skipped without one."""
_LIMIT_S = 60.0


class FirefoxPage:
    """One tab. `faults` are the messages of its console, exceptions included."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: aiohttp.ClientWebSocketResponse):
        self._loop, self._socket, self._numbers = loop, socket, itertools.count(1)
        self.faults: list[str] = []
        self.requests: list[str] = []
        self._send("session.new", capabilities={"alwaysMatch": {"unhandledPromptBehavior": {"default": "dismiss"}}})
        self._send("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._tab = self._send("browsingContext.create", type="tab")["context"]

    def open(self, file: Path, ready: str) -> None:
        """Load the file and wait until this JavaScript expression is true."""
        self._send("browsingContext.navigate", context=self._tab, url=file.as_uri(), wait="complete")
        self.wait_until(ready)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression as JSON gives it; a promise is waited for."""
        wrapped = f"(async () => JSON.stringify(await ({script})))()"
        reply = self._send("script.evaluate", expression=wrapped, target={"context": self._tab}, awaitPromise=True)
        assert reply["type"] == "success", reply["exceptionDetails"]["text"]
        return json.loads(reply["result"].get("value", "null"))

    def load(self, script: str) -> None:
        self._send("script.evaluate", expression=script + "\n;0", target={"context": self._tab}, awaitPromise=False)

    def wait_until(self, condition: str) -> None:
        end = time.monotonic() + _LIMIT_S
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"never true in {_LIMIT_S:g} s: {condition}"
            time.sleep(0.05)

    def resize(self, width: int, height: int) -> None:
        self._send("browsingContext.setViewport", context=self._tab, viewport={"width": width, "height": height})

    def _send(self, method: str, **params: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(self._asked(method, params), _LIMIT_S))

    async def _asked(self, method: str, params: dict[str, Any]) -> Any:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json()
            if message.get("id") == number:
                assert message["type"] == "success", f"{method}: {message['message']}"
                return message["result"]
            if message.get("method") == "log.entryAdded":
                self.faults.append(str(message["params"].get("text")))
            elif message.get("method") == "network.beforeRequestSent":
                self.requests.append(message["params"]["request"]["url"])


@contextmanager
def firefox() -> Iterator[FirefoxPage]:
    """A headless Firefox with a new profile."""
    assert FIREFOX
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, asyncio.Runner() as runner:
        said = Path(profile, "stderr")
        command = [FIREFOX, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0", "about:blank"]
        with said.open("wb") as stderr, subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL) as process:
            try:
                loop = runner.get_loop()
                session, socket = loop.run_until_complete(_connected(said))
                try:
                    yield FirefoxPage(loop, socket)
                finally:
                    loop.run_until_complete(session.close())
            finally:
                process.terminate()


async def _connected(said: Path) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    end = time.monotonic() + _LIMIT_S
    while (found := re.search(r"listening on (ws://\S+)", said.read_text(errors="replace"))) is None:
        assert time.monotonic() < end, "Firefox opened no port"
        await asyncio.sleep(0.05)
    session = aiohttp.ClientSession()
    return session, await session.ws_connect(f"{found[1]}/session", max_msg_size=0)
