"""Faults of providers and networks, by name: what a client meets sooner or later.

A fault is written `name[:option=value,...]`. Options of every fault: `rate` (share of requests, drawn by `seed` from the
body and its try, so that a repeat may pass), `from_s` and `for_s` (a window of time, counted from the first arrival: an
outage), `nth` (arrival numbers from 1, joined by +), `first` (only the first so
many arrivals), `after` (only arrivals after so many), `match` (a text that the body must hold), `times` (how often for
one body). Options of one fault are named where it is defined. Without options a fault hits every request.

What the test server answers: a valid instance of the schema that was asked for, a pure function of the question.

It reads the question as a dutiful judge would: claims are the sentences of the answer between the fences, verdicts come
one per item, quotes are taken from the first fenced text, grades stay in their range. The "judgement" itself is a draw
from a generator seeded by the question's hash.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import random
import re
import socket
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from typing import Any

_HTML = "<html><head><title>{0} Bad Gateway</title></head><body><h1>{0} Bad Gateway</h1><hr>nginx</body></html>"


@dataclass
class FakeResponse:
    """A whole HTTP response."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    kind: str = "application/json"


@dataclass
class Cut:
    """A connection that breaks: `head` and `part` are written first; `reset` sends RST, else it is closed."""

    part: bytes = b""
    head: bool = False
    reset: bool = True


@dataclass
class Drip:
    """A body that is sent byte by byte."""

    every_s: float


@dataclass
class Hang:
    """Not a byte for this long."""

    seconds: float


@dataclass
class ServerFault:
    """One fault of the server: its name and options as given; `seen` counts requests by the hash of their body, `began` is the
    monotonic second of the first one."""

    name: str
    options: dict[str, str]
    seen: Counter[str] = field(default_factory=Counter)
    arrivals: int = 0
    began: float | None = None

    @classmethod
    def read(cls, text: str) -> ServerFault:
        """`429:rate=0.1,seed=3` -> a fault. Raises ValueError for an unknown name."""
        name, _, rest = text.partition(":")
        if name not in FAULTS:
            raise ValueError(f"unknown fault {name!r}; known: {', '.join(sorted(FAULTS))}")
        return cls(name, dict(part.split("=", 1) for part in rest.split(",") if part))

    def number(self, option: str, default: float) -> float:
        return float(self.options.get(option, default))

    def hits(self, body_hash: str, body: bytes) -> bool:
        self.arrivals += 1
        self.seen[body_hash] += 1
        o = self.options
        self.began = time.monotonic() if self.began is None else self.began
        since = time.monotonic() - self.began - float(o.get("from_s", 0))
        if not (
            0 <= since <= float(o.get("for_s", "inf"))
            and o.get("match", "").encode() in body
            and ("nth" not in o or self.arrivals in map(int, o["nth"].split("+")))
            and int(o.get("after", 0)) < self.arrivals <= int(o.get("first", self.arrivals))
            and self.seen[body_hash] <= int(o.get("times", self.seen[body_hash]))
        ):
            return False
        if "rate" in o:
            text = f"{o.get('seed', 0)}/{body_hash}/{self.seen[body_hash]}"
            return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF < float(o["rate"])
        return True


def _error(status: int, message: str, code: str | None = None, kind: str = "error", **headers: str) -> FakeResponse:
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return FakeResponse(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def _limited(fault: ServerFault) -> dict[str, str]:
    """The Retry-After header in the form the fault asks for: seconds (default), date, ms, none."""
    seconds, form = fault.number("retry_after", 1), fault.options.get("header", "seconds")
    if form == "none":
        return {}
    if form == "ms":
        return {"retry-after-ms": str(int(seconds * 1000))}
    if form == "date":
        return {"retry-after": formatdate(time.time() + seconds, usegmt=True)}
    return {"retry-after": f"{seconds:g}"}


_PER_MINUTE = (
    "Rate limit reached for requests per minute (RPM): Limit 3, Used 3, Requested 1. Please try again in {0}. Visit "
    "https://example.org/account/rate-limits or https://example.org/account/billing to learn more."
)
_GEMINI = (
    "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: "
    "generate_content_free_tier_requests, limit: 10 Please retry in {0}."
)


def _gemini(fault: ServerFault, request: FaultyRequest) -> FakeResponse:
    """A per-minute limit in the words of Gemini: in a list, without a Retry-After. `words=no`: its message does not say the wait."""
    again = fault.options.get("again", "0.2s")
    words = _GEMINI.format(again)
    error = {
        "code": 429, "message": words.partition(" Please retry")[0] if fault.options.get("words") == "no" else words, "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": again}],
    }  # fmt: skip
    return FakeResponse(429, [{"error": error}])


def _refuses(
    field_name: str, wants: Callable[[Any], bool], message: str
) -> Callable[[ServerFault, FaultyRequest], FakeResponse | None]:
    def fault(fault: ServerFault, request: FaultyRequest) -> FakeResponse | None:
        if field_name in request.body and wants(request.body[field_name]):
            refusal = _error(400, message, "unsupported_parameter", "invalid_request_error")
            refusal.body["error"]["param"] = fault.options.get("param")
            return refusal
        return None

    return fault


@dataclass
class FaultyRequest:
    """What a fault may look at. `reply` is the whole good answer, which reply faults change."""

    body: dict[str, Any]
    auth: str
    reply: dict[str, Any]


def _reply(change: Callable[[dict[str, Any], ServerFault], None]) -> Callable[[ServerFault, FaultyRequest], FakeResponse]:
    """A 200 whose only choice was changed."""

    def fault(fault: ServerFault, request: FaultyRequest) -> FakeResponse:
        change(request.reply, fault)
        return FakeResponse(200, request.reply)

    return fault


def _content(change: Callable[[str], Any]) -> Callable[[ServerFault, FaultyRequest], FakeResponse]:
    def apply(reply: dict[str, Any], fault: ServerFault) -> None:
        message = reply["choices"][0]["message"]
        message["content"] = change(message["content"])

    return _reply(apply)


def _key(change: Callable[[dict[str, Any]], Any]) -> Callable[[ServerFault, FaultyRequest], FakeResponse]:
    """A change of the JSON object in the reply; `change` works in place or returns the new value."""

    def apply(text: str) -> str:
        value = json.loads(text)
        new = change(value)
        return json.dumps(value if new is None else new)

    return _content(apply)


def _encoded(encoding: str, raw: bytes) -> FakeResponse:
    return FakeResponse(200, raw=raw, headers={"content-encoding": encoding})


@lru_cache(maxsize=2)
def _bomb(mib: int) -> bytes:
    """This many MiB of blanks, compressed to about a thousandth."""
    packer = zlib.compressobj(9, wbits=31)
    blanks = b" " * (1 << 20)
    return b"".join([*(packer.compress(blanks) for _ in range(mib)), packer.flush()])


def _first(value: Any) -> Callable[[dict[str, Any]], None]:
    """Replaces the first value that is not a text (a grade, a list)."""

    def change(reply: dict[str, Any]) -> None:
        reply[next((name for name, old in reply.items() if not isinstance(old, str)), next(iter(reply)))] = value

    return change


def _finish(
    reason: str, content: Any = ..., refusal: str | None = None
) -> Callable[[ServerFault, FaultyRequest], FakeResponse]:
    def apply(reply: dict[str, Any], fault: ServerFault) -> None:
        choice = reply["choices"][0]
        choice["finish_reason"] = reason
        if content is not ...:
            choice["message"]["content"] = content(choice["message"]["content"]) if callable(content) else content
        if refusal:
            choice["message"]["refusal"] = refusal

    return _reply(apply)


def _draft(text: str) -> str:
    """What a model might think before it writes this: another verdict."""
    opposite = {"true": "false", "false": "true", "YES": "NO", "NO": "YES"}
    text = re.sub(r"\b(?:true|false|YES|NO)\b", lambda word: opposite[word[0]], text)
    return re.sub(r"(?<=: )\d+(?:\.\d+)?(?=[,}])", lambda number: f"{(float(number[0]) + 1) % 5:g}", text)


def _small_context(fault: ServerFault, request: FaultyRequest) -> FakeResponse | None:
    """A window of `tokens` (default 4096) for prompt and longest reply together, a token being four characters."""
    window = int(fault.number("tokens", 4096))
    prompt = request.reply["usage"]["prompt_tokens"]
    reply = request.body.get("max_tokens") or request.body.get("max_completion_tokens") or 0
    if prompt + reply <= window:
        return None
    message = (
        f"This model's maximum context length is {window} tokens. However, you requested {prompt + reply} tokens "
        f"({prompt} in the messages, {reply} in the completion)."
    )
    return _error(400, message, "context_length_exceeded", "invalid_request_error")


_TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."

FAULTS: dict[str, Callable[[ServerFault, FaultyRequest], FakeResponse | Cut | Drip | Hang | None]] = {
    # statuses
    "429": lambda f, a: FakeResponse(
        429, {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}, _limited(f)
    ),
    "429_no_header": lambda f, a: FakeResponse(429, {"error": {"message": "Rate limit reached", "code": None}}),
    "429_per_minute": lambda f, a: _error(
        429, _PER_MINUTE.format(f.options.get("again", "200ms")), "rate_limit_exceeded", "requests"
    ),
    "429_gemini": _gemini,
    "quota_words": lambda f, a: FakeResponse(429, {"error": {"message": "See Plans & Billing"}}, _limited(f)),
    "429_out_of_money": lambda f, a: _error(429, "Your credit balance is too low; see Plans & Billing."),
    "quota": lambda f, a: _error(
        429, "You exceeded your current quota, please check your plan.", "insufficient_quota", "insufficient_quota"
    ),
    "500": lambda f, a: _error(500, "The server had an error", None, "server_error"),
    "502_html": lambda f, a: FakeResponse(502, raw=_HTML.format(502).encode(), kind="text/html"),
    "503": lambda f, a: _error(503, "Service overloaded", None, "server_error", **_limited(f))
    if "retry_after" in f.options
    else _error(503, "Service overloaded", None, "server_error"),
    "504": lambda f, a: _error(504, "Gateway timeout"),
    "529": lambda f, a: _error(529, "Overloaded", None, "overloaded_error"),
    "408": lambda f, a: _error(408, "Request timeout"),
    "400": lambda f, a: _error(400, "Invalid value for 'messages[0].content'", "invalid_value", "invalid_request_error"),
    "422": lambda f, a: FakeResponse(422, {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}),
    "context_length": lambda f, a: _error(400, _TOO_LONG, "context_length_exceeded", "invalid_request_error"),
    "content_filter_400": lambda f, a: _error(
        400, "The response was filtered due to the prompt triggering content management policy.", "content_filter"
    ),
    "401": lambda f, a: _error(401, f"Incorrect API key provided: {a.auth.removeprefix('Bearer ')}.", "invalid_api_key"),
    "403": lambda f, a: _error(403, f"Key {a.auth.removeprefix('Bearer ')} has no access to this model", "forbidden"),
    "404": lambda f, a: _error(404, f"The model `{a.body.get('model')}` does not exist", "model_not_found"),
    # the network
    "reset": lambda f, a: Cut(),
    "close": lambda f, a: Cut(reset=False),
    "reset_body": lambda f, a: Cut(json.dumps(a.reply).encode()[:60], head=True),
    "close_body": lambda f, a: Cut(json.dumps(a.reply).encode()[:60], head=True, reset=False),
    "hang": lambda f, a: Hang(f.number("seconds", 3600)),
    "drip": lambda f, a: Drip(f.number("every", 0.5)),
    "redirect": lambda f, a: FakeResponse(307, {}, {"location": f.options.get("to", "http://127.0.0.2:9/v1/chat/completions")}),
    "redirect_loop": lambda f, a: FakeResponse(308, {}, {"location": "/v1/chat/completions"}),
    # a 200 that is not an API response
    "invalid_json": lambda f, a: FakeResponse(200, raw=b'{"id": "x", "choices": [{"mess'),
    "bad_utf8": lambda f, a: FakeResponse(200, raw=b'{"id": "\xff\xfe"}'),
    "empty_body": lambda f, a: FakeResponse(200, raw=b""),
    "html": lambda f, a: FakeResponse(200, raw=b"<html><body>Please log in to the proxy</body></html>", kind="text/html"),
    "null_body": lambda f, a: FakeResponse(200, raw=b"null"),
    "list_body": lambda f, a: FakeResponse(200, raw=b"[1, 2]"),
    "no_choices": _reply(lambda r, f: r.update(choices=[])),
    "no_message": _reply(lambda r, f: r["choices"][0].pop("message")),
    "error_200": lambda f, a: FakeResponse(200, {"error": {"message": "upstream failed", "code": 502}}),
    # bodies that are too large, or in an encoding of their own
    "gzip_bomb": lambda f, a: _encoded("gzip", _bomb(int(f.number("mib", 300)))),
    "gigantic": lambda f, a: FakeResponse(200, raw=b'{"choices": [' + b" " * (int(f.number("mib", 40)) << 20) + b"]}"),
    "long_text": _content(lambda t: t + " " * 5_000_000),
    "gzip": lambda f, a: _encoded("gzip", gzip.compress(json.dumps(a.reply).encode())),
    "deflate": lambda f, a: _encoded("deflate", zlib.compress(json.dumps(a.reply).encode())),
    "no_gzip": lambda f, a: _encoded("gzip", json.dumps(a.reply).encode()),
    "br": lambda f, a: _encoded("br", b"\x8b\x02\x80{}\x03"),
    "zstd": lambda f, a: _encoded("zstd", b"\x28\xb5\x2f\xfd"),
    # a reply without content
    "null_content": _content(lambda _: None),
    "empty_content": _content(lambda _: ""),
    "blank_content": _content(lambda _: " \n\t "),
    "content_filter": _finish("content_filter", ""),
    "refusal": _finish("stop", None, "I cannot help with that."),
    "length": _finish("length", lambda text: text[: max(1, len(text) // 2)]),
    # JSON as models write it
    "fenced": _content(lambda t: f"```json\n{t}\n```"),
    "prose": _content(lambda t: f"Sure! Here is my verdict:\n\n{t}\n\nLet me know if you need more."),
    "bom": _content(lambda t: "\ufeff" + t),
    "not_json": _content(lambda _: "I think the answer is rather good."),
    "nan": _content(lambda t: '{"' + next(iter(json.loads(t))) + '": NaN}'),
    "wrong_type": _key(_first({"unexpected": True})),
    "null_value": _key(_first(None)),
    "out_of_range": _key(_first(1_000_000_000)),
    "missing_keys": _key(lambda v: {}),
    "wrapped": _key(lambda v: {"result": v}),
    "nul": _key(lambda v: v.update(reason="a\x00b")),
    "surrogate": _content(lambda t: t[:-1].rstrip() + ', "reason2": "x\ud800y"}' if t.endswith("}") else t + "\ud800"),
    # usage and model
    "no_usage": _reply(lambda r, f: r.pop("usage")),
    "other_model": _reply(lambda r, f: r.update(model=f.options.get("name", "another-model-2020-01-01"))),
    # parameters that a model refuses
    "no_json_schema": _refuses("response_format", lambda v: v.get("type") == "json_schema",
                               "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."),
    "no_response_format": _refuses("response_format", lambda v: True, "Unknown parameter: 'response_format'."),
    "no_temperature": _refuses("temperature", lambda v: v != 1, "Unsupported value: 'temperature' does not support 0 with "
                               "this model. Only the default (1) value is supported."),
    "no_seed": _refuses("seed", lambda v: True, "Unsupported parameter: 'seed' is not supported with this model."),
    "no_system_role": _refuses("messages", lambda v: any(m.get("role") == "system" for m in v), "System role not supported"),
    "small_context": _small_context,
    "thinks": _content(lambda t: f"<think>\nPerhaps {_draft(t)}? No.\n</think>\n\n{t}"),
    "no_max_tokens": _refuses("max_tokens", lambda v: True, "Unsupported parameter: 'max_tokens' is not supported with this "
                              "model. Use 'max_completion_tokens' instead."),
}  # fmt: skip


def draw_latency(latency_ms: float, jitter: float, seed: str) -> float:
    """Seconds to wait: `latency_ms` give or take the share `jitter`, drawn from the seed."""
    return latency_ms / 1000 * (1 + jitter * (2 * random.Random(seed).random() - 1))


async def cut_connection(transport: asyncio.Transport, fault: Cut) -> None:
    """Break the connection as the fault says."""
    if fault.head:
        transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n" + fault.part)
        await asyncio.sleep(0.02)
    if fault.reset:
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()


_FENCE = re.compile(r"<([0-9a-f]{12})>(?P<space>[\n ])(?P<text>.*?)(?P=space)</\1>", re.S)
_HEADING = re.compile(r"^[A-Z][\w ]*:$", re.M)
_BRACKETED = re.compile(r"^\[(\d{1,4})\]$", re.M)
_ITEM = re.compile(r"^[ \t]*(?:[-*][ \t]*)?[\[(]?(\d{1,3})[\]).:](?!\d)", re.M)


def question_hash(messages: Any) -> str:
    """sha256 of the messages alone: equal whichever client or parameters sent them."""
    return hashlib.sha256(json.dumps(messages, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def answer_schema_of(body: dict[str, Any]) -> dict[str, Any] | None:
    """The answer schema: from `response_format`, or the last JSON schema in the messages; None for a text answer."""
    form = body.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        schema: dict[str, Any] = form["json_schema"]["schema"]
        return schema
    for message in reversed(body.get("messages") or []):
        text = _FENCE.sub("", str(message.get("content") or ""))
        decoder, place, last_schema = json.JSONDecoder(), 0, None
        while (place := text.find("{", place)) >= 0:
            try:
                value, place = decoder.raw_decode(text, place)
            except ValueError:
                place += 1
                continue
            if isinstance(value, dict) and value.get("type") == "object" and isinstance(value.get("properties"), dict):
                last_schema = value
        if last_schema is not None:
            return last_schema
    return None


def chat_reply(body: dict[str, Any]) -> str:
    """The reply to a chat completion request."""
    messages = body.get("messages") or []
    draw = random.Random(question_hash(messages))
    user = next((str(m.get("content") or "") for m in reversed(messages) if m.get("role") == "user"), "")
    schema = answer_schema_of(body)
    if schema is not None:
        return json.dumps(_Instance(draw, user, schema).value(schema), ensure_ascii=False)
    words = _FENCE.sub("", "\n".join(str(m.get("content") or "") for m in messages))
    if re.search(r"\bYES\b", words) and re.search(r"\bNO\b", words):
        return draw.choice(["YES", "NO"])
    if re.search(r"\b(score|grade|rate|rating)\b", words, re.I):
        return f"{draw.choice(['3', '3.5', '4', '4.5', '5'])}\nThe answer says what the reference says."
    return "This is the answer of the test server."


class _Instance:
    def __init__(self, draw: random.Random, user: str, root: dict[str, Any]):
        self.draw, self.root = draw, root
        self.fenced = [match["text"] for match in _FENCE.finditer(user)]
        self.outside = _FENCE.sub("\n\x00\n", user)

    def value(self, schema: dict[str, Any], name: str = "", index: int = 0) -> Any:
        if "$ref" in schema:
            return self.value(self.root["$defs"][schema["$ref"].rsplit("/", 1)[1]], name, index)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.draw.choice(schema["enum"])
        if "anyOf" in schema:
            return self.value(schema["anyOf"][0], name, index)
        kind = schema.get("type")
        if kind == "object":
            return {k: self.value(v, k, index) for k, v in schema.get("properties", {}).items()}
        if kind == "array":
            return self._array(schema, name)
        if kind in ("integer", "number"):
            return index if name in ("index", "id", "number") and index else self._number(schema, kind)
        if kind == "boolean":
            return self.draw.random() < 0.8
        return self._text(name)

    def _array(self, schema: dict[str, Any], name: str) -> list[Any]:
        items = schema.get("items", {"type": "string"})
        if "claim" in items.get("properties", {}):
            return [self.value(items, "", i) | {"claim": claim} for i, claim in enumerate(self._last_sentences(), 1)]
        if items.get("type") == "string" and "enum" not in items:
            sentences = self._last_sentences()
            if name.startswith("unsupported"):
                return sentences[:1] if self.draw.random() < 0.2 else []
            return sentences
        return [self.value(items, "", i) for i in self._numbers()]

    def _numbers(self) -> list[int]:
        """The numbers of the items: those in brackets under the first heading where the question asks for these, else from 1."""
        if "as in its brackets" in self.outside:
            return [int(number) for number in _BRACKETED.findall(_HEADING.split(self.outside)[1])]
        return list(range(1, max(1, self._asked()) + 1))

    def _asked(self) -> int:
        """How many items the question asks about: the longest list 1, 2, 3 ... outside the fences, or a fenced JSON list."""
        for text in reversed(self.fenced):
            try:
                value = json.loads(text)
            except ValueError:
                continue
            if isinstance(value, list):
                return len(value)
        last = run = 0
        for item in _ITEM.finditer(self.outside):
            number = int(item[1])
            run = number if number == run + 1 else (1 if number == 1 else 0)
            if run:
                last = run
        return last

    def _number(self, schema: dict[str, Any], kind: str) -> float | int:
        low: float = schema.get("minimum", schema.get("ge", 0))
        high: float = schema.get("maximum", schema.get("le", low + 4))
        if kind == "integer":
            return self.draw.randint(int(low), int(high))
        return low + self.draw.randint(0, int((high - low) * 2)) / 2

    def _text(self, name: str) -> str:
        if name in ("evidence", "quote", "span") and self.fenced:
            return self.draw.choice(self._sentences(self.fenced[0]))
        return "by the test server"

    def _last_sentences(self) -> list[str]:
        return self._sentences(self.fenced[-1] if self.fenced else "Nothing was said.")

    @staticmethod
    def _sentences(text: str) -> list[str]:
        sentences = [s.strip() for s in re.split(r"(?<=[.!?])\s+", text) if s.strip()]
        return sentences[:20] or [text[:200]]
