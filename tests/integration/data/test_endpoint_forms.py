"""The forms of endpoints: GET, server-sent events, JSON lines, chat completions; and how failures that pass are sent again."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from ragpipe.core.errors import ConfigError, Incomplete, ProviderUnusable
from ragpipe.core.resources import conf_dir
from ragpipe.core.sample import Output, Sample, Turn
from ragpipe.data.live_system import open_methods
from ragpipe.data.system_settings import HttpSystem
from ragpipe.runs.collect_outputs import CollectStage
from ragpipe.runs.collected_outputs import collected_outputs
from tests.integration.data.test_endpoint import Endpoint, served

SAMPLE = Sample(id="s1", question="Capital?", history=[Turn(role="user", text="Hi"), Turn(role="assistant", text="Yes?")])


async def answered(tmp_path: Path, url: str, samples: int = 1, **settings: Any) -> list[Output]:
    http = HttpSystem(kind="http", url=url, **settings)
    journal = tmp_path / "j.jsonl"
    questions = [SAMPLE.model_copy(update={"id": f"s{i}"}) for i in range(1, samples + 1)]
    await CollectStage(open_methods(http, ()), journal).run(lambda: iter(questions))
    return [output for group in collected_outputs(journal).values() for output in group]


def streamed(pieces: list[bytes], content_type: str, *, pause: float = 0.0) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(pause)
        return response

    return answer


@pytest.mark.parametrize("url_tail", ["", "?lang=en"])
async def test_get_sends_the_body_as_the_query(tmp_path: Path, url_tail: str) -> None:
    seen: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(dict(request.query))
        return web.json_response({"answer": "Paris"})

    body = {"q": "question", "k": "params.k", "turns": "history[].text", "nothing": "params.nothing"}
    async with served(answer) as url:
        (output,) = await answered(tmp_path, url + url_tail, http_method="GET", body=body, params={"k": 5})
    assert output.answer == "Paris"
    language = {"lang": "en"} if url_tail else {}
    assert seen == [{**language, "q": "Capital?", "k": "5", "turns": '["Hi","Yes?"]'}]


SSE = (
    ": a comment\r\n\r\nevent: sources\r\ndata: [{\"id\": \"a\",\r\ndata: \"text\": \"Paris it is.\"}]\r\n\r\n"
    'data: {"token": "Par"}\n\ndata: {"token": "is \u00e9"}\n\ndata: {"usage": {"prompt_tokens": 7}}\n\ndata: [DONE]\n\n'
).encode()  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("form", ["auto", "sse"])
async def test_server_sent_events_are_read_in_pieces_of_any_size(tmp_path: Path, size: int, form: str) -> None:
    """Comments, two data lines of one event, all kinds of line ends, characters of two bytes, names of events."""
    pieces = [SSE[at : at + size] for at in range(0, len(SSE), size)]
    fields = {"answer": "join('', events[].token)", "contexts": "named.sources[0]", "usage": "events[].usage | [0]"}
    async with served(streamed(pieces, "text/event-stream; charset=utf-8")) as url:
        (output,) = await answered(tmp_path, url, fields=fields, stream=form)
    assert output.error is None
    assert output.answer == "Paris \u00e9"
    assert [(c.id, c.text) for c in output.chunks or []] == [("a", "Paris it is.")]
    assert output.usage == {"prompt_tokens": 7}
    assert 0 < output.timings["first_token"] <= output.timings["total"]


async def test_the_first_token_is_the_first_text_and_not_the_sources(tmp_path: Path) -> None:
    pieces = [b'data: {"sources": ["one"]}\n\n', b'data: {"token": ""}\n\n', b'data: {"token": "Paris"}\n\n', b"\n"]
    fields = {"answer": "join('', events[].token)", "contexts": "events[].sources[]"}
    async with served(streamed(pieces, "text/event-stream", pause=0.05)) as url:
        (output,) = await answered(tmp_path, url, fields=fields)
    assert output.answer == "Paris"
    assert 95 <= output.timings["first_token"] < output.timings["total"]


async def test_plain_tokens_stay_texts(tmp_path: Path) -> None:
    async with served(streamed([b"data: 42\n\ndata:  is\n\ndata: null\n\n"], "text/event-stream")) as url:
        (output,) = await answered(tmp_path, url, fields={"answer": "join('', events)"})
    assert output.answer == "42 isnull"


@pytest.mark.parametrize(("content_type", "form"), [("application/x-ndjson", "auto"), ("text/plain", "ndjson")])
async def test_json_lines_are_read(tmp_path: Path, content_type: str, form: str) -> None:
    lines = b'{"text": "Pa"}\n{"text": "ris"}\n\n{"docs": ["one"], "done": true}'
    fields = {"answer": "join('', events[].text)", "contexts": "events[].docs[]"}
    async with served(streamed([lines[:9], lines[9:]], content_type)) as url:
        (output,) = await answered(tmp_path, url, fields=fields, stream=form)
    assert (output.answer, [c.text for c in output.chunks or []]) == ("Paris", ["one"])


@pytest.mark.parametrize(("body", "content_type", "told"), [
    (b'data: {"token": "a"}\n\n', "text/plain", "system.stream=sse"),
    (b'{"a": 1}\n{"a": 2}\n', "application/json", "system.stream=ndjson"),
    (b'data: {"token": "a"}\n\ndata: {"token": "b"}\n\n', "text/event-stream", "fields: {answer: \"join('', events[].token)\"}"),
    (
        b'event: sources\ndata: [{"id": "a", "text": "one"}]\n\nevent: token\ndata: {"token": "Pa"}\n\n',
        "text/event-stream",
        "fields: {contexts: \"named.sources[0][].{id: id, text: text}\", answer: \"join('', events[].token)\"}",
    ),
    (
        b'event: sources\ndata: ["one", "two"]\n\nevent: token\ndata: Pa\n\nevent: token\ndata: ris\n\n',
        "text/event-stream",
        "fields: {answer: \"join('', named.token)\", contexts: \"named.sources[0]\"}",
    ),
    (b"<html>busy</html>", "text/html", "content type text/html"),
])  # fmt: skip
async def test_another_form_is_told_with_the_setting_to_write(tmp_path: Path, body: bytes, content_type: str, told: str) -> None:
    async with served(streamed([body], content_type)) as url:
        with pytest.raises(ConfigError) as refused:
            await answered(tmp_path, url)
    assert told in str(refused.value)


def chat(**changes: Any) -> dict[str, Any]:
    section = yaml.safe_load((conf_dir() / "system" / "openai.yaml").read_text(encoding="utf-8"))
    return {**{name: value for name, value in section.items() if name != "defaults"}, **changes}


def deltas(*texts: str) -> list[bytes]:
    first = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "model": "m-1"}
    rest = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    last = {"choices": [], "usage": USAGE, "citations": ["a.md"]}
    return [f"data: {json.dumps(event)}\n\n".encode() for event in (first, *rest, last)] + [b"data: [DONE]\n\n"]


USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4}}


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_completions_give_the_same_streamed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    seen: list[tuple[Any, str]] = []
    whole = {
        "choices": [{"message": {"role": "assistant", "content": "Paris it is"}}],
        "usage": USAGE, "citations": ["a.md"],
    }  # fmt: skip

    async def complete(request: web.Request) -> web.StreamResponse:
        seen.append((await request.json(), request.headers["Authorization"]))
        if stream:
            response: web.StreamResponse = await streamed(deltas("Paris", " it is"), "text/event-stream")(request)
            return response
        return web.json_response(whole)

    monkeypatch.setenv("CHAT_KEY", "f81d4fae7dec11d0a765")
    params = {"model": "my-rag", "stream": stream, "system_prompt": "Be brief."}
    fields = {**chat()["fields"], "citations": "citations[].{marker: @}"}
    async with served(complete) as url:
        settings = {k: v for k, v in chat(params=params, fields=fields, bearer_env="CHAT_KEY").items() if k != "url"}
        (output,) = await answered(tmp_path, url, **settings)
    assert output.error is None
    assert output.answer == "Paris it is"
    assert output.usage == {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15, "cached_tokens": 4}
    assert [c.marker for c in output.citations or []] == ["a.md"]
    assert ("first_token" in output.timings) is stream
    (body, key), *_ = seen
    assert key == "Bearer f81d4fae7dec11d0a765"
    assert body.pop("messages") == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Capital?"},
    ]  # fmt: skip
    options = {"stream_options": {"include_usage": True}} if stream else {}
    assert body == {"model": "my-rag", "stream": stream, **options}


@pytest.mark.slow
async def test_an_error_in_the_stream_is_sent_again(tmp_path: Path) -> None:
    asked = 0

    async def complete(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        events = [b'data: {"error": {"message": "overloaded"}}\n\n'] if asked == 1 else deltas("Paris")
        response: web.StreamResponse = await streamed(events, "text/event-stream")(request)
        return response

    async with served(complete) as url:
        (output,) = await answered(tmp_path, url, fields={"answer": "choices[0].message.content"})
    assert (output.answer, output.attempts, asked) == ("Paris", 2, 2)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_a_passing_status_is_sent_again_and_the_latency_is_that_of_the_answer(tmp_path, status: int, monkeypatch) -> None:
    monkeypatch.setattr("ragpipe.judge.attempts.backoff", lambda attempt: 0.02)
    endpoint = Endpoint(lambda n: status if n == 1 else 200)
    async with served(endpoint.reply) as url:
        (output,) = await answered(tmp_path, url)
    assert (output.answer, output.attempts, len(endpoint.times)) == ("Paris", 2, 2)
    assert output.timings["waited"] >= 20


@pytest.mark.parametrize("status", [400, 409, 413, 422, 501])
async def test_a_permanent_status_is_not_sent_again(tmp_path: Path, status: int) -> None:
    endpoint = Endpoint(lambda n: status)
    async with served(endpoint.reply) as url:
        (output,) = await answered(tmp_path, url)
    assert (len(endpoint.times), output.attempts) == (1, 1)
    assert f"HTTP {status}" in (output.error or "")


async def test_a_retry_after_that_is_too_long_ends_the_collection(tmp_path: Path) -> None:
    async with served(Endpoint(lambda n: 429, headers={"Retry-After": "7200"}).reply) as url:
        with pytest.raises(Incomplete, match=r"asks to wait 7,200 s, more than 120 s"):
            await answered(tmp_path, url)
    assert collected_outputs(tmp_path / "j.jsonl") == {}


@pytest.mark.slow
async def test_a_system_that_goes_down_is_waited_for_and_no_case_fails(tmp_path: Path) -> None:
    """Eight refusals in a row: four questions with one retry each would all fail."""
    endpoint = Endpoint(lambda n: 503 if 4 < n <= 12 else 200)
    async with served(endpoint.reply) as url:
        outputs = await answered(tmp_path, url, samples=12, retries=1, concurrency=4, timeout_s=5)
    assert [output.error for output in outputs] == [None] * 12
    assert len(endpoint.times) == 12 + 8


async def test_an_address_without_a_listener_is_tried_once(tmp_path: Path, unused_tcp_port: int) -> None:
    """Before the first answer another try would only make the user wait."""
    started = time.monotonic()
    with pytest.raises(ProviderUnusable, match="cannot be reached"):
        await answered(tmp_path, f"http://127.0.0.1:{unused_tcp_port}/ask", retries=100)
    assert time.monotonic() - started < 20  # the waits between 100 tries would take far longer


@pytest.mark.slow
async def test_a_system_that_stays_down_ends_the_collection_and_keeps_its_answers(tmp_path: Path) -> None:
    async with served(Endpoint(lambda n: 503 if n > 3 else 200).reply) as url:
        with pytest.raises(ProviderUnusable, match=r"no answer for \d+ s \(system\.outage_s=2\).*the same command goes on"):
            await answered(tmp_path, url, samples=20, concurrency=2, outage_s=2)
    kept = collected_outputs(tmp_path / "j.jsonl")
    assert sum(output.error is None for group in kept.values() for output in group) == 3
