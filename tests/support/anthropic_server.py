"""A local server with Anthropic's Messages API, which caches as the provider documents it: what a request marks is written when the
request is answered, and found by a later one that is marked at the same place. Beginnings of fewer than 1,024 tokens are not kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from ragpipe.testing.openai_answers import chat_reply

LEAST = 1024
PER_TOKEN = 4  # characters


class AnthropicServer:
    """`log` has one usage per answered request, `bodies` the requests."""

    def __init__(self, latency_s: float = 0.02):
        self.url, self.latency_s = "", latency_s
        self.log: list[dict[str, int]] = []
        self.bodies: list[dict[str, Any]] = []
        self._cache: set[str] = set()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.json()
        found = self._found(body)
        await asyncio.sleep(self.latency_s)
        blocks = list(_blocks(body))
        text = "".join(text for text, _ in blocks)
        marked = [end for end in _marked_ends(blocks) if end // PER_TOKEN >= LEAST]
        write = max(marked, default=0)
        self._cache |= {text[:end] for end in marked}
        reply = chat_reply({"messages": _as_chat(body)})
        usage = {
            "input_tokens": len(text) // PER_TOKEN - max(write, found) // PER_TOKEN,
            "cache_read_input_tokens": found // PER_TOKEN,
            "cache_creation_input_tokens": max(0, write // PER_TOKEN - found // PER_TOKEN),
            "output_tokens": len(reply) // PER_TOKEN + 1,
        }
        self.log.append(usage)
        self.bodies.append(body)
        message = {
            "id": f"msg_{len(self.log)}", "type": "message", "role": "assistant", "model": body["model"], "stop_reason": "end_turn",
            "stop_sequence": None, "content": [{"type": "text", "text": reply}], "usage": usage,
        }  # fmt: skip
        return web.json_response(message)

    def _found(self, body: dict[str, Any]) -> int:
        """The characters of the longest marked beginning that is in the cache."""
        blocks = list(_blocks(body))
        text = "".join(text for text, _ in blocks)
        return max((end for end in _marked_ends(blocks) if text[:end] in self._cache), default=0)


def _blocks(body: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """The texts of a request in the order of the cache, each with whether it is marked."""
    contents = [body.get("system") or "", *(message["content"] for message in body["messages"])]
    for content in contents:
        for part in [{"text": content}] if isinstance(content, str) else content:
            assert part["text"].strip() or isinstance(content, str), "the provider refuses blank parts"
            yield part["text"], part.get("cache_control") == {"type": "ephemeral"}


def _marked_ends(blocks: list[tuple[str, bool]]) -> Iterator[int]:
    end = marks = 0
    for text, is_marked in blocks:
        end, marks = end + len(text), marks + is_marked
        if is_marked:
            yield end
    assert marks <= 4, "the provider refuses more than four marks"


def _as_chat(body: dict[str, Any]) -> list[dict[str, str]]:
    """The request as messages of a chat completion."""

    def text(content: Any) -> str:
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    return [
        {"role": "system", "content": text(body.get("system") or "")},
        *({"role": m["role"], "content": text(m["content"])} for m in body["messages"]),
    ]


@contextmanager
def serving_anthropic(**options: Any) -> Iterator[AnthropicServer]:
    """The server in a thread of its own."""
    server, loop, ready = AnthropicServer(**options), asyncio.new_event_loop(), threading.Event()

    async def start() -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(server.handle))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        return runner

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
