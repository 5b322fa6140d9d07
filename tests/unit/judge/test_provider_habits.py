"""Habits of providers, at the wire and with both clients: what each has on its bill, and what its reply means."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ragpipe.core.errors import ProviderUnusable
from ragpipe.judge.client import ApiResponse, AttemptError
from ragpipe.judge.http_responses import is_odd_end, parse_response
from ragpipe.judge.pricing import is_cut
from tests.support.asking import CLIENTS, ask, question, settings

PRICES = {"input": 1.0, "output": 2.0}  # dollars per million tokens
GRADE = '{"reason": "x", "score": 4}'
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
THOUGHTS = {"completion_tokens_details": {"reasoning_tokens": 200}}


def reply(content: Any = GRADE, finish: str = "stop", usage: Any = USAGE, message: Any = None, **beside: Any) -> dict[str, Any]:
    parts = {"role": "assistant", "content": content, **(message or {})}
    choice = {"index": 0, "message": parts, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "test-model-2024-07-18", "choices": [choice]}
    return {**body, **({"usage": usage} if usage is not None else {}), **beside}


@contextmanager
def provider(status: int, body: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """A server with one answer; its address, and the status of every reply that it gave."""
    given: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            content = json.dumps(body).encode()
            given.append(status)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", given
    finally:
        server.shutdown()
        server.server_close()


# habit: (status, body, status of the call, tokens in and out that the server bills for a reply; None where it does not say)
HABITS: dict[str, tuple[int, dict[str, Any], str, tuple[int, int] | None]] = {
    "plain": (200, reply(), "ok", (100, 10)),
    "thoughts within": (200, reply(usage={**USAGE, "completion_tokens": 210, "total_tokens": 310, **THOUGHTS}), "ok", (100, 210)),
    "thoughts beside (xAI)": (200, reply(usage={**USAGE, "total_tokens": 310, **THOUGHTS}), "ok", (100, 210)),
    "thoughts in the total alone (Gemini)": (200, reply(usage={**USAGE, "total_tokens": 310}), "ok", (100, 210)),
    "no completion count": (200, reply(usage={"prompt_tokens": 100, "total_tokens": 110}), "ok", (100, 10)),
    "floats": (200, reply(usage={name: float(count) for name, count in USAGE.items()}), "ok", (100, 10)),
    "texts": (200, reply(usage={name: str(count) for name, count in USAGE.items()}), "ok", (100, 10)),
    "input_tokens": (200, reply(usage={"input_tokens": 100, "output_tokens": 10}), "ok", (100, 10)),
    "zeros": (200, reply(usage=dict.fromkeys(USAGE, 0)), "ok", None),
    "no usage": (200, reply(usage=None), "ok", None),
    "half a usage": (200, reply(usage={"prompt_tokens": 100}), "ok", None),
    "created": (201, reply(), "ok", (100, 10)),
    "parts": (200, reply([{"type": "text", "text": GRADE[:9]}, {"type": "text", "text": GRADE[9:]}]), "ok", (100, 10)),
    "cut, by Gemini's word": (200, reply(finish="MAX_TOKENS"), "cut_short", (100, 10)),
    "cut, by Mistral's word": (200, reply(finish="model_length"), "cut_short", (100, 10)),
    "cut, by Anthropic's word": (200, reply(finish="max_tokens"), "cut_short", (100, 10)),
    "held back, by Gemini's word": (200, reply(finish="SAFETY"), "refused", (100, 10)),
    "an end in words of its own": (200, reply(finish="lost_patience"), "ok", (100, 10)),
    "finish_reason error": (200, reply(finish="error"), "server_error", (100, 10)),
    "error beside choices": (200, reply(error={"message": "upstream", "code": 502}), "server_error", (100, 10)),
    "refused with a usage": (400, {"error": {"message": "no"}, "usage": USAGE}, "bad_request", (100, 10)),
    "failed with a usage": (500, {"error": {"message": "no"}, "usage": USAGE}, "server_error", (100, 10)),
    "text among the thoughts": (200, reply("", message={"reasoning_content": GRADE}), "empty_reply", (100, 10)),
}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("habit", HABITS)
async def test_the_ledger_is_the_servers_bill_and_both_clients_read_alike(habit, client):
    status, body, outcome, billed = HABITS[habit]
    paid = []
    with provider(status, body) as (url, given):
        found = settings(url, client=client, prices=PRICES, retries=1)
        if outcome == "server_error":  # before any answer it ends the start
            with pytest.raises(ProviderUnusable, match=r"500|marks its reply as failed"):
                await ask(found, paid=paid.append)
        else:
            (call,) = await ask(found, paid=paid.append)
            assert call.status == outcome, call.message
    assert len(paid) == len(given)
    counts = {(payment.tokens_in, payment.tokens_out) for payment in paid}
    assert counts == {billed or (None, None)}
    price = None if billed is None else (billed[0] + 2 * billed[1]) / 1e6
    assert [payment.usd for payment in paid] == [pytest.approx(price) if price else None] * len(given)


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_price_that_a_reply_names_is_what_is_paid(client):
    paid, told = [], []
    with provider(200, reply(usage={**USAGE, "cost": 0.5})) as (url, _):
        found = settings(url, client=client, prices=PRICES, concurrency=1)
        await ask(found, question("a"), question("b"), paid=paid.append, tell=told.append)
    assert [payment.usd for payment in paid] == [0.5, 0.5]
    assert [text.count("usage.cost") for text in told] == [1]


@pytest.mark.parametrize(("message", "said"), [
    ({"reasoning_content": GRADE}, "message.reasoning_content is not empty"),
    ({"tool_calls": [{"id": "x"}], "reasoning": "y"}, "message.reasoning and message.tool_calls is not empty"),
    ({"reasoning_content": "", "tool_calls": []}, "the reply has no text"),
])  # fmt: skip
def test_where_the_text_is_that_is_not_read_is_named(message, said):
    with pytest.raises(AttemptError) as caught:
        parse_response(ApiResponse(200, {}, reply("", message=message)))
    assert said in caught.value.message
    assert caught.value.permanent is ("is not empty" in said)


@pytest.mark.parametrize(("usage", "tokens"), [
    ({**USAGE, "prompt_tokens_details": {"cached_tokens": 60}}, (100, 10, 60, None, None)),
    ({**USAGE, "prompt_cache_hit_tokens": 60}, (100, 10, 60, None, None)),
    ({**USAGE, "total_tokens": 310, "completion_tokens_details": {"reasoning_tokens": 150}}, (100, 210, None, 150, None)),
    ({**USAGE, "total_tokens": 90}, (100, 10, None, None, None)),
    ({**USAGE, "completion_tokens_details": {"reasoning_tokens": 4}}, (100, 10, None, 4, None)),
    ({**USAGE, "completion_tokens_details": {"reasoning_tokens": True}}, (100, 10, None, None, None)),
    ({**USAGE, "completion_tokens_details": {"reasoning_tokens": -1}}, (100, 10, None, None, None)),
    ({**USAGE, "completion_tokens_details": "many"}, (100, 10, None, None, None)),
    ({**USAGE, "prompt_tokens_details": {"cached_tokens": 60, "cache_creation_tokens": 30}}, (100, 10, 60, None, 30)),
    ({**USAGE, "prompt_tokens_details": {"cached_tokens": 60, "cache_creation_tokens": 41}}, (100, 10, 60, None, None)),
    ({**USAGE, "completion_tokens": 0}, (None,) * 5),
    ({**USAGE, "prompt_tokens": 0}, (None,) * 5),
    ({**USAGE, "prompt_tokens": 99.5}, (None,) * 5),
    ({**USAGE, "prompt_tokens": True}, (None,) * 5),
    ({**USAGE, "prompt_tokens": -1}, (None,) * 5),
    ({**USAGE, "prompt_tokens": float("inf")}, (None,) * 5),
])  # fmt: skip
def test_a_usage_is_read(usage, tokens):
    assert parse_response(ApiResponse(200, {}, reply(usage=usage))).tokens == tokens


@pytest.mark.parametrize(("name", "given", "read"), [
    *(("model", given, read) for given, read in (("m", "m"), ("", None), (" ", None), (None, None), (5, None))),
    *(("fingerprint", given, read) for given, read in (("fp_1", "fp_1"), ("", None), (None, None), (3, None), ("a\x00", "a\ufffd"))),
])  # fmt: skip
def test_an_empty_name_is_no_model_and_a_fingerprint_is_a_text(name, given, read):
    beside = {"model" if name == "model" else "system_fingerprint": given}
    assert getattr(parse_response(ApiResponse(200, {}, reply(**beside))), name) == read


@pytest.mark.parametrize(("text", "tokens", "cut"), [
    ("Sentence 3 says that pond 3 holds 3 fish. " * 2000, 2048, True),  # Ollama's window
    ("Sentence 3 says that pond 3 holds 3 fish. " * 2000, 24_000, False),
    ("Sentence 3 says that pond 3 holds 3 fish. " * 2000, None, False),
    ("池には魚が三匹いる。" * 4000, 2048, True),
    ("池には魚が三匹いる。" * 4000, 30_000, False),
    ("-" * 80_000, 1250, False),  # a tokenizer takes 64 of them together
    ("Short.", 3, False),
])  # fmt: skip
def test_a_prompt_that_was_cut_is_told_by_its_count(text, tokens, cut):
    assert is_cut([{"role": "user", "content": text}], tokens) is cut


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_end_that_is_not_known_is_told_once(client):
    told = []
    with provider(200, reply(finish="lost_patience")) as (url, _):
        await ask(settings(url, client=client, concurrency=1), question("a"), question("b"), tell=told.append)
    assert [text for text in told if "lost_patience" in text and "odd_end" in text] == told


@pytest.mark.parametrize(("finish", "odd"), [
    ("stop", False), ("STOP", False), ("end_turn", False), ("eos_token", False), ("COMPLETE", False), (None, False), ("", False),
    ("tool_calls", True), ("OTHER", True), ("timeout", True), ("FINISH_REASON_UNSPECIFIED", True),
])  # fmt: skip
def test_an_end_that_does_not_say_that_a_reply_is_whole_is_odd(finish, odd):
    assert is_odd_end(finish) is odd
