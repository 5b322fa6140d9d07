"""The forms of endpoints: GET, chat completions, a stream that is refused; and how failures that pass are sent again."""

import time
from typing import Any

import pytest
import yaml
from aiohttp import web

from ragpipe.core.errors import ConfigError, Incomplete, ProviderUnusable
from ragpipe.core.resources import conf_dir
from ragpipe.core.sample import Sample, Turn
from ragpipe.data.live_system import open_methods
from ragpipe.data.system_settings import HttpSystem
from ragpipe.runs.collect_outputs import CollectStage
from ragpipe.runs.collected_outputs import collected_outputs
from tests.integration.data.test_endpoint import Endpoint, served

SAMPLE = Sample(id="s1", question="Capital?", history=[Turn(role="user", text="Hi"), Turn(role="assistant", text="Yes?")])


async def answered(tmp_path, url, samples=1, **settings):
    http = HttpSystem(kind="http", url=url, **settings)
    journal = tmp_path / "j.jsonl"
    questions = [SAMPLE.model_copy(update={"id": f"s{i}"}) for i in range(1, samples + 1)]
    await CollectStage(open_methods(http, ()), journal).run(lambda: iter(questions))
    return [output for group in collected_outputs(journal).values() for output in group]


@pytest.mark.parametrize("url_tail", ["", "?lang=en"])
async def test_get_sends_the_body_as_the_query(tmp_path, url_tail):
    seen: list[dict[str, str]] = []

    async def answer(request):
        seen.append(dict(request.query))
        return web.json_response({"answer": "Paris"})

    body = {"q": "question", "k": "params.k", "turns": "history[].text", "nothing": "params.nothing"}
    async with served(answer) as url:
        (output,) = await answered(tmp_path, url + url_tail, http_method="GET", body=body, params={"k": 5})
    assert output.answer == "Paris"
    language = {"lang": "en"} if url_tail else {}
    assert seen == [{**language, "q": "Capital?", "k": "5", "turns": '["Hi","Yes?"]'}]


@pytest.mark.parametrize(("body", "content_type", "told"), [
    (b'data: {"token": "a"}\n\n', "text/plain", "the endpoint streams: ask it for a whole answer"),
    (b'data: {"token": "a"}\n\ndata: {"token": "b"}\n\n', "text/event-stream; charset=utf-8", "the endpoint streams"),
    (b"<html>busy</html>", "text/html", "content type text/html"),
])  # fmt: skip
async def test_another_form_is_told_with_what_to_do(tmp_path, body, content_type, told):
    async def answer(request):
        return web.Response(body=body, headers={"Content-Type": content_type})

    async with served(answer) as url:
        with pytest.raises(ConfigError) as refused:
            await answered(tmp_path, url)
    assert told in str(refused.value)


def chat(**changes):
    section = yaml.safe_load((conf_dir() / "system" / "openai.yaml").read_text(encoding="utf-8"))
    return {**{name: value for name, value in section.items() if name != "defaults"}, **changes}


USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4}}


async def test_chat_completions_are_asked_and_read(tmp_path, monkeypatch):
    seen: list[tuple[Any, str]] = []
    whole = {
        "choices": [{"message": {"role": "assistant", "content": "Paris it is"}}],
        "usage": USAGE, "citations": ["a.md"],
    }  # fmt: skip

    async def complete(request):
        seen.append((await request.json(), request.headers["Authorization"]))
        return web.json_response(whole)

    monkeypatch.setenv("CHAT_KEY", "f81d4fae7dec11d0a765")
    params = {"model": "my-rag", "system_prompt": "Be brief."}
    fields = {**chat()["fields"], "citations": "citations[].{marker: @}"}
    async with served(complete) as url:
        settings = {k: v for k, v in chat(params=params, fields=fields, bearer_env="CHAT_KEY").items() if k != "url"}
        (output,) = await answered(tmp_path, url, **settings)
    assert output.error is None
    assert output.answer == "Paris it is"
    assert output.usage == {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15, "cached_tokens": 4}
    assert [c.marker for c in output.citations or []] == ["a.md"]
    (body, key), *_ = seen
    assert key == "Bearer f81d4fae7dec11d0a765"
    assert body.pop("messages") == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Capital?"},
    ]  # fmt: skip
    assert body == {"model": "my-rag", "stream": False}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_a_passing_status_is_sent_again_and_the_latency_is_that_of_the_answer(tmp_path, status, monkeypatch):
    monkeypatch.setattr("ragpipe.judge.attempts.backoff", lambda attempt: 0.02)
    endpoint = Endpoint(lambda n: status if n == 1 else 200)
    async with served(endpoint.reply) as url:
        (output,) = await answered(tmp_path, url)
    assert (output.answer, output.attempts, len(endpoint.times)) == ("Paris", 2, 2)
    assert output.timings["waited"] >= 20


@pytest.mark.parametrize("status", [400, 409, 413, 422, 501])
async def test_a_permanent_status_is_not_sent_again(tmp_path, status):
    endpoint = Endpoint(lambda n: status)
    async with served(endpoint.reply) as url:
        (output,) = await answered(tmp_path, url)
    assert (len(endpoint.times), output.attempts) == (1, 1)
    assert f"HTTP {status}" in (output.error or "")


async def test_a_retry_after_that_is_too_long_ends_the_collection(tmp_path):
    async with served(Endpoint(lambda n: 429, headers={"Retry-After": "7200"}).reply) as url:
        with pytest.raises(Incomplete, match=r"asks to wait 7,200 s, more than 120 s"):
            await answered(tmp_path, url)
    assert collected_outputs(tmp_path / "j.jsonl") == {}


@pytest.mark.slow
async def test_a_system_that_goes_down_is_waited_for_and_no_case_fails(tmp_path):
    """Eight refusals in a row: four questions with one retry each would all fail."""
    endpoint = Endpoint(lambda n: 503 if 4 < n <= 12 else 200)
    async with served(endpoint.reply) as url:
        outputs = await answered(tmp_path, url, samples=12, retries=1, concurrency=4, timeout_s=5)
    assert [output.error for output in outputs] == [None] * 12
    assert len(endpoint.times) == 12 + 8


async def test_an_address_without_a_listener_is_tried_once(tmp_path, unused_tcp_port):
    """Before the first answer another try would only make the user wait."""
    started = time.monotonic()
    with pytest.raises(ProviderUnusable, match="cannot be reached"):
        await answered(tmp_path, f"http://127.0.0.1:{unused_tcp_port}/ask", retries=100)
    assert time.monotonic() - started < 20  # the waits between 100 tries would take far longer


@pytest.mark.slow
async def test_a_system_that_stays_down_ends_the_collection_and_keeps_its_answers(tmp_path):
    async with served(Endpoint(lambda n: 503 if n > 3 else 200).reply) as url:
        with pytest.raises(ProviderUnusable, match=r"no answer for \d+ s \(system\.outage_s=2\).*the same command goes on"):
            await answered(tmp_path, url, samples=20, concurrency=2, outage_s=2)
    kept = collected_outputs(tmp_path / "j.jsonl")
    assert sum(output.error is None for group in kept.values() for output in group) == 3
