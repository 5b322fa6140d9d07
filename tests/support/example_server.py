"""The example RAG over HTTP for the examples of a page: on a free port, whatever port the page names."""

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from ragpipe.example_rag.__main__ import application
from ragpipe.example_rag.system import ExampleRag
from tests.support.waiting import HANGS_AFTER_S

_PAGE_ADDRESS = "http://127.0.0.1:8123"


@contextmanager
def example_rag_served() -> Iterator[str]:
    """The address of a server in a thread of this process, until it is left."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(application(ExampleRag()), access_log=None)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> int:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    try:
        port = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
        yield f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


def asks_example_rag(line: str) -> bool:
    return _PAGE_ADDRESS in line or "system=example_http" in line


def at_address(words: list[str], address: str) -> list[str]:
    words = [word.replace(_PAGE_ADDRESS, address) for word in words]
    return words if any(word.startswith("system.url=") for word in words) else [*words, f"system.url={address}/ask"]


def run_curl(line: str, address: str) -> int:
    """Run a curl command of a page against `address`, its output to that of this process; its exit code."""
    done = subprocess.run(line.replace(_PAGE_ADDRESS, address), shell=True, capture_output=True, text=True, timeout=HANGS_AFTER_S)
    print(done.stdout, done.stderr)
    return done.returncode
