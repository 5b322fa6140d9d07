"""The example RAG over HTTP.

    POST /ask  {"question": "...", "folder_mode": "off", "stream": false}
    GET  /ask?question=...&folder_mode=off
    POST /v1/chat/completions  {"messages": [{"role": "user", "content": "..."}], "stream": false}
    GET  /health

`/ask` answers with the JSON object of `ExampleRag.answer`. Streamed, it sends server-sent events: pieces of the answer as `{"delta": "..."}`, then the
object, then `[DONE]`. The chat endpoint has the shape of OpenAI's, with the object under `output` beside the choices; the question is the
last message of the user.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiohttp import web

from ragpipe.example_rag.system import ExampleRag

RETRY_AFTER_S = 1
_DONE = "[DONE]"


@dataclass
class RagServer:
    """The server's state. `latency_ms` is waited before every answer; of all requests for an answer, `fail_rate` (0 to 1, drawn with a
    fixed seed) are answered by 503 with Retry-After. `asked` and `failed` count them."""

    rag: ExampleRag
    latency_ms: float = 0.0
    fail_rate: float = 0.0
    asked: int = 0
    failed: int = 0
    _random: Random = field(default_factory=lambda: Random(13))

    def application(self) -> web.Application:
        """The routes as an application for aiohttp."""
        application = web.Application(client_max_size=1 << 20, middlewares=[self._trouble])
        application.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ask", self._ask),
                web.post("/ask", self._ask),
                web.post("/v1/chat/completions", self._chat),
            ]
        )
        return application

    @web.middleware
    async def _trouble(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Wrong requests are answered by 400 with a reason; the latency and the failures that were asked for."""
        if request.path == "/health":
            return await handler(request)  # type: ignore[no-any-return]
        self.asked += 1
        await asyncio.sleep(self.latency_ms / 1000)
        if self._random.random() < self.fail_rate:
            self.failed += 1
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            return web.json_response(
                _error("the example RAG fails on purpose (--fail-rate)"), status=503, headers=headers
            )
        try:
            return await handler(request)  # type: ignore[no-any-return]
        except ValueError as error:
            return web.json_response(_error(str(error)), status=400)

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "version": self.rag.version, "chunks": len(self.rag.index.chunks)})

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        fields: dict[str, Any] = await _fields(request) if request.method == "POST" else dict(request.query)
        output = self.rag.answer(_question(fields.get("question")), fields.get("folder_mode") or "off")
        if not fields.get("stream"):
            return web.json_response(output)
        return await _stream(request, [*({"delta": piece} for piece in _pieces(output["answer"])), output])

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        fields = await _fields(request)
        turns = fields.get("messages")
        asked = (
            [turn for turn in turns if isinstance(turn, Mapping) and turn.get("role") == "user"]
            if isinstance(turns, list)
            else []
        )
        question = _question(asked[-1].get("content") if asked else None)
        output = self.rag.answer(question, fields.get("folder_mode") or "off")
        head = {
            "id": f"chatcmpl-{hashlib.sha256(question.encode()).hexdigest()[:12]}",
            "model": f"example-rag-{self.rag.version}",
        }
        if fields.get("stream"):
            return await _stream(request, [{**head, **event} for event in _chat_events(output)])
        message = {"role": "assistant", "content": output["answer"]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({**head, "object": "chat.completion", "choices": [choice], "output": output})


def _chat_events(output: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind = "chat.completion.chunk"
    for piece in _pieces(output["answer"]):
        yield {"object": kind, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}
    yield {"object": kind, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "output": output}


async def _stream(request: web.Request, events: list[dict[str, Any]]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    for text in (*(json.dumps(event, ensure_ascii=False) for event in events), _DONE):
        await response.write(f"data: {text}\n\n".encode())
    await response.write_eof()
    return response


async def _fields(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request. Raises ValueError for anything else."""
    try:
        fields = json.loads(await request.text())
    except json.JSONDecodeError as error:
        raise ValueError(f"the body is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("the body is no JSON object")
    return fields


def _question(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError('no question; expected {"question": "a text"}')
    return value


def _pieces(text: str) -> Iterator[str]:
    """The words of a text with the white space after each."""
    start = 0
    for place, character in enumerate(text):
        if character.isspace() and not text[place + 1 : place + 2].isspace():
            yield text[start : place + 1]
            start = place + 1
    if start < len(text):
        yield text[start:]


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}
