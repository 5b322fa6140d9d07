"""A local OpenAI-compatible server for tests and benchmarks: latency, faults, scripted replies, a log of its requests.

    python -m ragpipe.testing.local_server --port 0 --latency-ms 50 --log requests.jsonl --script replies.json --fault 429:rate=0.1

prints its base URL (`http://127.0.0.1:PORT/v1`) on the first line and serves until it is ended.

The log has one JSON line per request, written when the server is done with it: `body` (sha256 of the body's bytes),
`question` (sha256 of the messages alone), `n` (arrival number), `arrived` and `done` (seconds, the clock of
`time.time`), `status` (0 when the connection was broken on purpose), `in_flight` (at arrival, itself included),
`written` (whether the whole answer was handed to a connection that still stood), `usage` (that of the answer, null
without one), `auth` (first 12 hex digits of the sha256
of the Authorization header, '' without one), `fault`, `model`, `peer` (the client's port), `mode` (response format).
A kill of the client shows as `written: false`.

A script is a JSON list of `{"match": regex on the last user message, "reply": text, "finish_reason": ..., "status": ...,
"times": n, "model": regex on the model's name}`; the first that matches and is not used up wins. Everything else is answered by
`openai_faults.chat_reply`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from ragpipe.testing.openai_faults import (
    FAULTS,
    Cut,
    Drip,
    FakeResponse,
    FaultyRequest,
    Hang,
    ServerFault,
    chat_reply,
    cut_connection,
    draw_latency,
    question_hash,
)

S = TypeVar("S", bound="OpenAIServer")
SERVER = (sys.executable, "-m", "ragpipe.testing.local_server")
"""The command of the server in a process of its own, wherever ragpipe can be imported."""


class OpenAIServer:
    """The server's state. `log` holds the lines in memory too; `faults` may be changed while it runs."""

    def __init__(
        self, *, latency_ms: float = 0, jitter: float = 0, faults: Iterable[str] = (), script: list[dict[str, Any]] | None = None,
        log: Path | None = None, model: str | None = None, tls: tuple[Path, Path] | None = None,
        rps: float = 0, count: Callable[[str], int] | None = None,
    ):  # fmt: skip
        self.count = count  # the tokens of a text; None: four characters a token
        self.tls = None
        if tls:  # certificate and key
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*tls)
        self.latency_ms, self.jitter, self.model = latency_ms, jitter, model
        self.limit = RateLimit(rps) if rps else None
        self.faults = [ServerFault.read(text) for text in faults]
        self.script = [dict(entry) for entry in script or []]
        self._lines: list[dict[str, Any]] = []
        self.bodies: dict[str, dict[str, Any]] = {}  # by body hash; only kept in process (keep_bodies)
        self.keep_bodies = False
        self.peak = self.in_flight = self.arrivals = 0
        self._file = open(log, "a", encoding="utf-8", buffering=1) if log else None  # noqa: SIM115
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET" and request.path.endswith("/models"):
            return web.json_response({"object": "list", "data": [{"id": self.model or "test-model", "object": "model"}]})
        if request.method != "POST" or not request.path.endswith(("/chat/completions", "/embeddings")):
            return web.json_response({"error": {"message": f"no route {request.method} {request.path}"}}, status=404)
        arrived = time.time()
        self.arrivals += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        auth = request.headers.get("Authorization", "")
        line = {
            "n": self.arrivals, "arrived": arrived, "in_flight": self.in_flight, "status": 0, "written": False, "fault": None,
            "usage": None,
            "auth": hashlib.sha256(auth.encode()).hexdigest()[:12] if auth else "",
            "peer": (request.transport.get_extra_info("peername") or ("", 0))[1] if request.transport else 0,
        }  # fmt: skip
        try:
            return await self._answer(request, line, auth)
        finally:
            self.in_flight -= 1
            line["done"] = time.time()
            self._lines.append(line)
            if self._file:
                self._file.write(json.dumps(line) + "\n")

    async def _answer(self, request: web.BaseRequest, line: dict[str, Any], auth: str) -> web.StreamResponse:
        raw = await request.read()
        line["body"] = hashlib.sha256(raw).hexdigest()
        try:
            body = json.loads(raw)
        except ValueError:
            return await self._write(request, line, FakeResponse(400, {"error": {"message": "the body is no JSON"}}))
        if self.keep_bodies:
            self.bodies[line["body"]] = body
        line["question"], line["model"] = question_hash(body.get("messages")), body.get("model")
        line["mode"] = (body.get("response_format") or {}).get("type", "plain")
        if self.limit and (refusal := self.limit.refusal()):
            line["fault"] = "limits"
            return await self._write(request, line, refusal)
        if self.latency_ms:
            await asyncio.sleep(draw_latency(self.latency_ms, self.jitter, line["body"]))
        good = FakeResponse(200, self._good(body, line["question"]), self.limit.headers() if self.limit else {})
        action = self._script(body) or self._faulty(line, body, raw, auth) or good
        if isinstance(action, Hang):
            await asyncio.sleep(action.seconds)
            action = good
        if isinstance(action, Cut):
            assert request.transport is not None
            await cut_connection(request.transport, action)
            return web.Response()
        if isinstance(action, Drip):
            return await self._drip(request, line, json.dumps(good.body).encode(), action.every_s)
        return await self._write(request, line, action)

    def _faulty(
        self, line: dict[str, Any], body: dict[str, Any], raw: bytes, auth: str
    ) -> FakeResponse | Cut | Drip | Hang | None:
        for fault in self.faults:
            if fault.hits(line["body"], raw):
                faulty = FaultyRequest(body, auth, self._good(body, line["question"]))
                action = FAULTS[fault.name](fault, faulty)
                if action is not None:
                    line["fault"] = fault.name
                    return action
        return None

    def _script(self, body: dict[str, Any]) -> FakeResponse | None:
        if not self.script:
            return None
        user = next((str(m["content"]) for m in reversed(body.get("messages") or []) if m["role"] == "user"), "")
        for entry in self.script:
            is_asked = re.search(entry.get("model", ""), str(body.get("model")))
            if is_asked and entry.get("times", 1) > 0 and re.search(entry["match"], user, re.S):
                if "times" in entry:
                    entry["times"] -= 1
                if entry.get("status", 200) != 200:
                    return FakeResponse(entry["status"], entry.get("body", {"error": {"message": entry.get("reply", "")}}))
                return FakeResponse(
                    200, self._good(body, question_hash(body["messages"]), entry["reply"], entry.get("finish_reason", "stop"))
                )
        return None

    def _good(self, body: dict[str, Any], question: str, text: str | None = None, finish: str = "stop") -> dict[str, Any]:
        if "input" in body:
            return self._vectors(body)
        if text is None:
            text = chat_reply(body)
        messages = [str(m.get("content") or "") for m in body.get("messages") or []]
        asked, answered = sum(map(len, messages)) // 4 + 3, len(text) // 4 + 1
        if self.count:  # as OpenAI's chat format counts: four tokens around each message, three for the reply to come
            asked, answered = 3 + sum(4 + self.count(message) for message in messages), self.count(text)
        return {
            "id": f"chatcmpl-{question[:12]}", "object": "chat.completion", "created": 1_700_000_000,
            "model": self.model or body.get("model"), "system_fingerprint": "fp_test",
            "choices": [{"index": 0, "finish_reason": finish, "logprobs": None,
                         "message": {"role": "assistant", "content": text, "refusal": None}}],
            "usage": {"prompt_tokens": asked, "completion_tokens": answered,
                      "total_tokens": asked + answered, "prompt_tokens_details": {"cached_tokens": 0}},
        }  # fmt: skip

    def _vectors(self, body: dict[str, Any]) -> dict[str, Any]:
        """Embeddings: of each text the counts of its letters, so that like texts have like vectors."""
        texts = [body["input"]] if isinstance(body["input"], str) else list(body["input"])
        letters = [[float(text.lower().count(chr(97 + i))) for i in range(26)] for text in texts]
        asked = sum(len(text) for text in texts) // 4 + 1
        return {
            "object": "list", "model": self.model or body.get("model"),
            "data": [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(letters)],
            "usage": {"prompt_tokens": asked, "total_tokens": asked},
        }  # fmt: skip

    async def _write(self, request: web.BaseRequest, line: dict[str, Any], response: FakeResponse) -> web.StreamResponse:
        raw = response.raw if response.raw is not None else json.dumps(response.body).encode()
        answer = web.Response(status=response.status, body=raw, headers=response.headers, content_type=response.kind)
        line["status"] = response.status
        if response.raw is None and isinstance(response.body, dict):
            line["usage"] = response.body.get("usage")
        with suppress(ConnectionResetError):  # the client was killed
            await answer.prepare(request)
            await answer.write_eof()
        line["written"] = request.transport is not None and not request.transport.is_closing()
        return answer

    async def _drip(self, request: web.BaseRequest, line: dict[str, Any], raw: bytes, every_s: float) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(raw))})
        line["status"] = 200
        await response.prepare(request)
        for i in range(len(raw)):
            await response.write(raw[i : i + 1])
            await asyncio.sleep(every_s)
        await response.write_eof()
        line["written"] = True
        return response

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> web.ServerRunner:
        server = web.Server(self.handle, handler_cancellation=False, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.5)
        await runner.setup()
        site = web.TCPSite(runner, host, port, backlog=1024, ssl_context=self.tls)
        await site.start()
        self.url = f"http{'s' if self.tls else ''}://{host}:{runner.addresses[0][1]}/v1"
        return runner

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines so far. A reply is in its client's hands before its line is written: wait a moment for those."""
        deadline = time.monotonic() + 0.3
        while self.in_flight and time.monotonic() < deadline:
            time.sleep(0.002)
        return self._lines

    @property
    def tries(self) -> int:
        """Requests that arrived."""
        return self.arrivals


def serving(**options: Any) -> AbstractContextManager[OpenAIServer]:
    """The server with these options, running."""
    return running(OpenAIServer(**options))


@contextmanager
def running(server: S) -> Iterator[S]:
    """A server in a thread of this process, with a loop of its own: for sync and async tests alike."""
    loop, ready = asyncio.new_event_loop(), threading.Event()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(server.start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@contextmanager
def serving_in_subprocess(*options: str) -> Iterator[str]:
    """The server in a process of its own (its CPU time is not the client's); gives its base URL."""
    process = subprocess.Popen([*SERVER, "--port", "0", *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The request log of a server in another process."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def main() -> None:
    """Serve until interrupted, by the words of the command line; the first line printed is the address."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--jitter", type=float, default=0, help="share of the latency, 0..1")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--script", type=lambda name: json.loads(Path(name).read_text(encoding="utf-8")), metavar="FILE")
    parser.add_argument("--fault", dest="faults", action="append", default=[], help="name[:option=value,...], repeatable")
    parser.add_argument("--rps", type=float, default=0, help="requests a second, others are refused; 0: no limit")
    parser.add_argument("--model", help="the model named in replies (default: the one asked for)")
    options = vars(parser.parse_args())
    host, port = options.pop("host"), options.pop("port")
    server = OpenAIServer(**options)

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        runner = await server.start(port, host)
        print(server.url, flush=True)
        await stop.wait()
        del runner
        os._exit(0)  # requests that hang must not hold the end up; every finished line of the log is written

    asyncio.run(serve())


_RESERVE = 5.0
"""Requests that a limit of rate lets through at once."""


class RateLimit:
    """So many requests a second; every response says in its headers what is left."""

    def __init__(self, per_second: float):
        self.per_second, self._left, self._at = per_second, _RESERVE, time.monotonic()

    def refusal(self) -> FakeResponse | None:
        """The refusal of a request that arrives now; None where it is taken."""
        now = time.monotonic()
        self._left, self._at = min(_RESERVE, self._left + (now - self._at) * self.per_second), now
        if self._left >= 1:
            self._left -= 1
            return None
        message = f"Rate limit reached for test-model on requests per min (RPM): Limit {60 * self.per_second:.0f}, Requested 1."
        error = {"message": message, "type": "requests", "param": None, "code": "rate_limit_exceeded"}
        return FakeResponse(429, {"error": error}, self.headers())

    def headers(self) -> dict[str, str]:
        """What a response says of the limit now."""
        missing_s = max(0.0, 1 - self._left) / self.per_second
        return {
            "x-ratelimit-limit": f"{_RESERVE:.0f}",
            "x-ratelimit-remaining": f"{int(self._left)}",
            "x-ratelimit-reset": f"{(time.time() + missing_s) * 1000:.0f}",
        }
