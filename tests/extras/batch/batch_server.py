"""A local Batch API for tests, in OpenAI's shape (files and batches) and in Anthropic's: delays, partial errors, expiry.

A `BatchServer` has one as `batches`, which gives the server's replies: a question has the same reply by batch and live.
`log` has one entry per request (`method`, `path`, `status`), `made` the batches in the order in which they were made.
"""

from __future__ import annotations

import email
import email.policy
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from ragpipe.testing.openai_faults import question_hash
from ragpipe.testing.openai_server import OpenAIServer

OK, EXPIRED, MISSING, DOUBLED = "ok", "expired", "missing", "doubled"
"""What may become of a line, besides a status such as `500` or `400 its message`: answered, out of time, in no file, answered after an error line."""


@dataclass(slots=True)
class FakeBatch:
    """A batch that was made. `lines` are pairs of key and request body; `fate` says what becomes of each."""

    id: str
    created: float
    ends: float
    expires: float
    lines: list[tuple[str, dict[str, Any]]]
    fates: list[str]
    metadata: dict[str, str] = field(default_factory=dict)
    cancelled: bool = False

    @property
    def ended(self):
        """Whether no further reply will come."""
        return self.cancelled or time.time() >= self.ends


class BatchServer(OpenAIServer):
    """The test server with a Batch API."""

    def __init__(self, **options):
        super().__init__(**options)
        self.batches = BatchEndpoint(self._good)

    async def handle(self, request):
        return await self.batches.handle(request) or await super().handle(request)


class BatchEndpoint:
    """The Batch API of a test server. Attributes may be changed while it runs.

    `delay_s` is the time that a batch takes, `expires_in_s` the time to its `expires_at`. `fate` names what becomes of a line,
    from the number of its batch and its own, both from 0. `after_create` are statuses that are answered, one per batch, although the batch
    was made; `before_create` those without one. `refuse` is the message of a batch that fails with its input, `page` the batches on a page of the list.
    """

    def __init__(self, reply):
        self._reply = reply
        self.delay_s, self.expires_in_s, self.page, self.refuse = 0.0, 86_400.0, 20, ""
        self.fate: Callable[[int, int], str] = lambda batch, line: OK
        self.before_create: list[int] = []
        self.after_create: list[int] = []
        self.made: list[FakeBatch] = []
        self.log: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}

    def count(self, method, ending):
        """How many requests came with this method and this ending of the path."""
        return sum(line["method"] == method and line["path"].endswith(ending) for line in self.log)

    @property
    def asked(self):
        """How often each key was in a batch."""
        return Counter(key for batch in self.made for key, _ in batch.lines)

    async def handle(self, request):
        """The answer to a request for a Batch API; None for any other."""
        path = request.path.removeprefix("/v1")
        parts = path.strip("/").split("/")
        if parts[0] not in ("files", "batches") and parts[:2] != ["messages", "batches"]:
            return None
        status, data = await self._answer(request, parts)
        self.log.append({"method": request.method, "path": path, "status": status})
        if isinstance(data, bytes):
            return web.Response(status=status, body=data, content_type="application/jsonl")
        return web.json_response(data, status=status)

    async def _answer(self, request, parts):
        if parts[0] == "files":
            if request.method == "POST":
                return 200, self._upload(request.headers["Content-Type"], await request.read())
            content = self.files.get(parts[1])
            return (200, content) if content is not None else (404, _error("no such file"))
        shape: _Shape = _Anthropic(self) if parts[0] == "messages" else _OpenAI(self)
        rest = parts[2:] if parts[0] == "messages" else parts[1:]
        if not rest and request.method == "POST":
            return self._create(shape, json.loads(await request.read()))
        if not rest:
            return 200, self._list(shape, dict(request.query))
        batch = next((b for b in self.made if b.id == rest[0]), None)
        if batch is None:
            return 404, _error("no such batch")
        if rest[1:] == ["results"]:
            return 200, _lines(shape.line(batch, i) for i in _order(batch) if batch.fates[i] != MISSING)
        if rest[1:] == ["cancel"]:
            batch.cancelled = True
        return 200, shape.describe(batch)

    def _upload(self, kind, body):
        form = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body, policy=email.policy.HTTP)
        parts = {part.get_param("name", header="content-disposition"): part for part in form.iter_parts()}
        assert parts["purpose"].get_content().strip() == "batch"
        name, content = f"file-{len(self.files) + 1}", parts["file"].get_payload(decode=True)
        assert isinstance(content, bytes)
        self.files[name] = content
        return {"id": name, "object": "file", "purpose": "batch", "bytes": len(content)}

    def _create(self, shape, data):
        if self.before_create:
            return self.before_create.pop(0), _error("made on purpose")
        number, now = len(self.made), time.time()
        lines = shape.lines(data)
        fates = [self.fate(number, i) for i in range(len(lines))]
        name = f"batch_{number + 1:04d}"
        batch = FakeBatch(name, now, now + self.delay_s, now + self.expires_in_s, lines, fates, data.get("metadata") or {})
        self.made.append(batch)
        if self.after_create:
            return self.after_create.pop(0), _error("made on purpose, after the batch")
        return 200, shape.describe(batch)

    def _list(self, shape, query):
        newest = self.made[::-1]
        after = query.get("after") or query.get("after_id")
        start = next((i + 1 for i, b in enumerate(newest) if b.id == after), 0)
        page = newest[start : start + min(self.page, int(query.get("limit", 20)))]
        first, last = (page[0].id, page[-1].id) if page else (None, None)
        return {
            "object": "list", "data": [shape.describe(batch) for batch in page], "first_id": first, "last_id": last,
            "has_more": start + len(page) < len(newest),
        }  # fmt: skip

    def reply(self, body):
        """The chat completion that the server gives to this body."""
        return self._reply(body, question_hash(body["messages"]))


@dataclass
class _Shape:
    """How one provider writes batches: the `lines` of a request, a `line` of the results, and how it describes a batch."""

    endpoint: BatchEndpoint


class _OpenAI(_Shape):
    def lines(self, data):
        entries = [json.loads(line) for line in self.endpoint.files[data["input_file_id"]].splitlines() if line.strip()]
        assert all((e["method"], e["url"]) == ("POST", "/v1/chat/completions") for e in entries)
        return [(entry["custom_id"], entry["body"]) for entry in entries]

    def describe(self, batch):
        refuse, outputs = self.endpoint.refuse, [OK, DOUBLED]
        state = "failed" if refuse else "cancelled" if batch.cancelled else "completed" if batch.ended else "in_progress"
        if state == "completed" and EXPIRED in batch.fates:
            state = "expired"
        files: dict[str, str | None] = {"output_file_id": None, "error_file_id": None}
        if batch.ended and not refuse:
            good = [self.good(batch, i) for i in _order(batch) if batch.fates[i] in outputs]
            bad = [self.line(batch, i) for i in _order(batch) if batch.fates[i] not in (OK, MISSING)]
            for kind, entries in (("output", good), ("error", bad)):
                if entries:
                    name = files[f"{kind}_file_id"] = f"{batch.id}-{kind}"
                    self.endpoint.files[name] = _lines(entries)
        errors = {"object": "list", "data": [{"code": "invalid", "message": refuse}]} if refuse else None
        done = len(batch.lines) if batch.ended else 0
        return {
            "id": batch.id, "object": "batch", "endpoint": "/v1/chat/completions", "status": state, "errors": errors,
            "created_at": int(batch.created), "expires_at": int(batch.expires), "metadata": batch.metadata,
            "request_counts": {"total": len(batch.lines), "completed": done, "failed": 0}, **files,
        }  # fmt: skip

    def good(self, batch, number):
        key, body = batch.lines[number]
        response = {"status_code": 200, "request_id": f"req_{number}", "body": self.endpoint.reply(body)}
        return {"id": f"r{number}", "custom_id": key, "response": response, "error": None}

    def line(self, batch, number):
        """The line in the file of errors."""
        key, fate = batch.lines[number][0], batch.fates[number]
        if fate in (EXPIRED, DOUBLED):
            error = {"code": "batch_expired", "message": "This request could not be executed before the end of the batch."}
            return {"id": f"r{number}", "custom_id": key, "response": None, "error": error}
        status, _, words = fate.partition(" ")
        response = {"status_code": int(status), "request_id": f"req_{number}", "body": _error(words or "made on purpose")}
        return {"id": f"r{number}", "custom_id": key, "response": response, "error": None}


class _Anthropic(_Shape):
    def lines(self, data):
        return [(entry["custom_id"], entry["params"]) for entry in data["requests"]]

    def describe(self, batch):
        kinds = [self._kind(fate) for fate in batch.fates]
        counts = {kind: kinds.count(kind) if batch.ended else 0 for kind in ("succeeded", "errored", "canceled", "expired")}
        processing = 0 if batch.ended else len(kinds)
        return {
            "id": batch.id, "type": "message_batch", "processing_status": "ended" if batch.ended else "in_progress",
            "request_counts": {**counts, "processing": processing}, "created_at": _stamp(batch.created),
            "expires_at": _stamp(batch.expires), "results_url": "http://elsewhere.invalid/results" if batch.ended else None,
        }  # fmt: skip

    @staticmethod
    def _kind(fate):
        return "succeeded" if fate in (OK, DOUBLED, MISSING) else "expired" if fate == EXPIRED else "errored"

    def line(self, batch, number):
        key, params = batch.lines[number]
        kind, fate = self._kind(batch.fates[number]), batch.fates[number]
        if kind == "succeeded":
            return {"custom_id": key, "result": {"type": kind, "message": self._message(params)}}
        if kind == "expired":
            return {"custom_id": key, "result": {"type": kind}}
        error = {"type": "invalid_request_error" if fate == "400" else "api_error", "message": "made on purpose"}
        return {"custom_id": key, "result": {"type": kind, "error": {"type": "error", "error": error}}}

    def _message(self, params):
        """The message of the model, from the reply to the same question in OpenAI's shape."""
        chat = {"model": params["model"], "messages": _plain_messages(params)}
        tool = next(iter(params.get("tools") or ()), None)
        schema = tool["input_schema"] if tool else (params.get("output_format") or {}).get("schema")
        if schema:
            chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        reply = self.endpoint.reply(chat)
        text, usage = reply["choices"][0]["message"]["content"], reply["usage"]
        block = {"type": "text", "text": text}
        if tool:
            block = {"type": "tool_use", "id": "t1", "name": tool["name"], "input": json.loads(text)}
        return {
            "id": "msg_1", "type": "message", "role": "assistant", "model": params["model"], "content": [block],
            "stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
        }  # fmt: skip


def _plain_messages(params):
    """The messages as they were before they took Anthropic's form."""
    system = "".join(block["text"] for block in params.get("system") or ())
    plain = [{"role": "system", "content": system}] if system else []
    for message in params["messages"]:
        content = message["content"]
        text = content if isinstance(content, str) else "".join(block["text"] for block in content)
        plain.append({"role": message["role"], "content": text})
    return plain


def _order(batch):
    """The lines in the order of the results, which is not that of the requests."""
    numbers = list(range(len(batch.lines)))
    random.Random(batch.id).shuffle(numbers)
    return numbers


def _lines(entries):
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def _stamp(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _error(message):
    return {"error": {"message": message, "type": "error", "code": None}}
