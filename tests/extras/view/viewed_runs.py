"""Output folders for the page over all runs, from literals."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from ragpipe.extras.view.view_server import ViewOptions, ViewServer
from tests.support.waiting import HANGS_AFTER_S, wait_until


@asynccontextmanager
async def client_of(root: Path, *, port: int = 8080, **options: Any) -> AsyncIterator[tuple[TestClient[Any, Any], ViewServer]]:
    """A client that keeps no cookies, and the real application over a folder; `port` names the cookie."""
    server = ViewServer(ViewOptions(root, port, **options))
    from aiohttp import DummyCookieJar

    async with TestClient(TestServer(server.application(port)), cookie_jar=DummyCookieJar()) as client:
        yield client, server


def allowed(server: ViewServer, port: int = 8080) -> Mapping[str, str]:
    return {"Cookie": f"ragpipe-view-{port}={server.token}", "Host": f"127.0.0.1:{port}"}


@dataclass
class ViewProcess:
    """`task=view` in a process of its own; `address` is what it printed, with the token."""

    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(self.address.split(":")[2].split("/")[0])

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS_AFTER_S)
        cookie = f"ragpipe-view-{self.port}={self.address.partition('token=')[2]}"
        connection.request("GET", path, headers={"Cookie": cookie})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def progress(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/progress")[1]))

    def when(self, is_so: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        return wait_until(lambda: progress if is_so(progress := self.progress()) else None)


@contextmanager
def view_process(folder: Path, *words: str) -> Iterator[ViewProcess]:
    """Serve a folder; at the end the process gets Ctrl-C, and must end by itself with 0."""
    command = [sys.executable, "-m", "ragpipe", "task=view", f"output_dir={folder}", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert "http://" in line, line + process.stdout.read()
        yield ViewProcess(process, line.split()[-1])
        process.send_signal(signal.SIGINT)
        assert process.wait(HANGS_AFTER_S) == 0
    finally:
        process.kill()
        process.wait()
