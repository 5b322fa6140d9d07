"""An HTTP endpoint as the system: GET, chat completions, streams that are refused; proxies, redirects, width, secrets; and how
failures that pass are sent again."""

import asyncio
import time
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from aiohttp import web
from pydantic import ValidationError

from ragpipe.core.errors import ConfigError, Incomplete, ProviderUnusable
from ragpipe.core.resources import conf_dir
from ragpipe.core.sample import Sample, Turn
from ragpipe.data.live_system import LiveMethod, open_methods
from ragpipe.data.system_settings import HttpSystem
from ragpipe.runs.collect_outputs import CollectStage
from ragpipe.runs.collected_outputs import collected_outputs
from tests.support.waiting import HANGS_AFTER_S

SAMPLE = Sample(id="s1", question="Capital?")


@asynccontextmanager
async def served(answer):
    app = web.Application()
    app.router.add_route("*", "/ask", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/ask"
    finally:
        await runner.cleanup()


class Endpoint:
    """Gives `answer`, but the status that `status_of` has for the requests from 1 on where it is not 200; `times` is when each came."""

    def __init__(self, status_of=lambda n: 200, answer=None, headers=None):
        self.status_of, self.answer, self.headers, self.times = status_of, answer or {"answer": "Paris"}, headers, list[float]()

    async def reply(self, _):
        self.times.append(time.monotonic())
        status = self.status_of(len(self.times))
        return web.json_response(self.answer) if status == 200 else web.Response(status=status, headers=self.headers)


async def asked(journal, url, **settings):
    """The output of one question, and what the system noted."""
    http = HttpSystem(kind="http", url=url, **settings)
    system = http.opened(())
    await CollectStage([LiveMethod(http, system)], journal).run(lambda: iter([SAMPLE]))
    return collected_outputs(journal)["s1"][0], list(system.notes)


@pytest.mark.parametrize(("header", "value", "answer", "kept"), [
    ("X-Tenant", "production", "The answer is production ready.", True),
    ("X-Source", "wikipedia", "According to wikipedia it is.", True),
    ("X-Index", "wikipedia-20181220", "The dump is wikipedia-20181220.", True),
    ("X-Api-Key", "anything", "It does not say anything wrong.", True),
    ("Authorization", "Bearer placeholder", "A placeholder of the Bearer.", True),
    ("X-Trace", "f81d4fae7dec11d0a765", "You are f81d4fae7dec11d0a765.", False),
    ("Authorization", "Bearer f81d4fae7dec11d0a765", "You are f81d4fae7dec11d0a765.", False),
    ("X-Api-Key", "dXNlcjpwYXNz", "You are dXNlcjpwYXNz.", False),
    ("Cookie", "sid-4242-4242", "You are sid-4242-4242.", False),
])  # fmt: skip
async def test_only_what_is_surely_secret_is_struck_out_of_an_answer(tmp_path, monkeypatch, header, value, answer, kept):
    async def echo(request):
        assert request.headers[header] == value
        return web.json_response({"answer": answer})

    monkeypatch.setenv("HEADER_VALUE", value)
    async with served(echo) as url:
        found, notes = await asked(tmp_path / "j.jsonl", url, headers_env={header: "HEADER_VALUE"})
    assert found.answer == (answer if kept else "You are ***.")
    assert [note.split(" value of ")[0] for note in notes] == ([] if kept else ["1 answers repeat a"])
    assert all("s1" in note and value not in note for note in notes)


@pytest.mark.parametrize(("reply", "fields", "error"), [
    ({"answer": None}, {"answer": "answer"}, "no answer at `answer`: null"),
    ({"answer": ""}, {"answer": "answer"}, None),
    ({"refused": True}, {"answer": "answer", "abstained": "refused"}, None),
    ({"hits": ["one"]}, {"contexts": "hits"}, None),
])  # fmt: skip
async def test_an_answer_may_be_null_or_empty_or_left_out(tmp_path, reply, fields, error):
    async def answer(_):
        return web.json_response(reply)

    async with served(answer) as url:
        found, _ = await asked(tmp_path / "j.jsonl", url, fields=fields)
    assert (error in (found.error or "")) if error else found.error is None


WHOLE = {
    "answer": "Paris", "chunks": [{"id": "a", "text": "It is Paris.", "score": 0.9}], "citations": [{"marker": "[1]", "chunk_id": "a"}],
    "abstained": False, "timings": {"retrieval": 12.0}, "usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}},
    "folder_mode": "on", "selected_folders": ["geo"], "version": "7",
}  # fmt: skip


async def test_without_fields_every_key_of_an_output_is_read_by_its_own_name(tmp_path):
    replies = [
        {**WHOLE, "contexts": ["left out beside chunks"], "method": "theirs", "took_s": 1, "error": None, "trace": "x"},
        {"answer": "b", "context": [{"page_content": "b it is", "metadata": {"source": "b.md"}}], "more": 1},
    ]

    async def answer(_):
        return web.json_response(replies.pop(0))

    async with served(answer) as url:
        http = HttpSystem(kind="http", url=url, concurrency=1)
        system = http.opened(())
        samples = [SAMPLE, SAMPLE.model_copy(update={"id": "s2"})]
        await CollectStage([LiveMethod(http, system)], tmp_path / "j.jsonl").run(lambda: iter(samples))
    first, second = (outputs[0] for outputs in collected_outputs(tmp_path / "j.jsonl").values())
    expected = ("default", "Paris", False, "7", "on", ["geo"])
    assert (first.method, first.answer, first.abstained, first.version, first.folder_mode, first.selected_folders) == expected
    assert [(c.id, c.text, c.score) for c in first.chunks or []] == [("a", "It is Paris.", 0.9)]
    assert [(c.marker, c.chunk_id) for c in first.citations or []] == [("[1]", "a")]
    assert first.timings["retrieval"] == 12.0
    assert first.usage == {"prompt_tokens": 7, "cached_tokens": 2}
    assert [(c.doc_id, c.text) for c in second.chunks or []] == [("b.md", "b it is")]
    (note,) = system.notes  # of the first answer alone, once
    assert note.endswith("are not read: contexts, method, took_s, trace")


def test_the_method_is_no_field_of_an_answer():
    with pytest.raises(ValidationError, match="'method' is no field of an output"):
        HttpSystem(kind="http", url="http://127.0.0.1:1/x", fields={"answer": "answer", "method": "m"})


async def test_as_many_requests_are_under_way_as_asked_for(tmp_path):
    """More than the 100 connections that aiohttp opens by itself."""
    wanted, here, all_here = 121, 0, asyncio.Event()

    async def meet(_):
        nonlocal here
        here += 1
        if here == 1:
            return web.json_response({"answer": "met"})  # the first question is asked alone
        if here == wanted:
            all_here.set()
        await asyncio.wait_for(all_here.wait(), HANGS_AFTER_S)
        return web.json_response({"answer": "met"})

    async with served(meet) as url:
        http = HttpSystem(kind="http", url=url, concurrency=120, timeout_s=600)
        system = http.opened(())
        stage = CollectStage([LiveMethod(http, system)], tmp_path / "j.jsonl")
        await stage.run(lambda: (Sample(id=f"s{i}", question="q") for i in range(wanted)))
    assert {output.answer for (output,) in collected_outputs(tmp_path / "j.jsonl").values()} == {"met"}


async def test_no_cookie_goes_from_one_case_to_the_next(tmp_path):
    """An endpoint may keep a conversation in a session's cookie. Cookies of a plain IP address are never kept, so that the
    endpoint is asked by its name."""
    seen: list[str | None] = []

    async def conversation(request):
        seen.append(request.headers.get("Cookie"))
        response = web.json_response({"answer": f"turn {len(seen)}"})
        response.set_cookie("session", f"conversation-{len(seen)}")
        return response

    async with served(conversation) as url:
        http = HttpSystem(kind="http", url=url.replace("127.0.0.1", "localhost"), concurrency=1)
        stage = CollectStage(open_methods(http, ()), tmp_path / "j.jsonl")
        await stage.run(lambda: (Sample(id=f"s{i}", question="q") for i in range(3)))
    assert seen == [None, None, None]


async def test_a_redirect_is_named_and_not_followed(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "f81d4fae7dec11d0a765")
    asked_for = []

    async def move(request):
        asked_for.append(request.path)
        return web.Response(status=307, headers={"Location": "/ask?token=f81d4fae7dec11d0a765"})

    async with served(move) as url:
        with pytest.raises(ConfigError) as refused:
            await asked(tmp_path / "j.jsonl", url, headers_env={"Authorization": "TOKEN"})
    assert asked_for == ["/ask"]
    assert "HTTP 307" in str(refused.value)
    assert "a redirect to '/ask?token=***', which is not followed" in str(refused.value)


PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def environment(monkeypatch):
    """Without the variables of the machine."""
    for name in (*PROXY_VARIABLES, *map(str.upper, PROXY_VARIABLES)):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def test_a_public_endpoint_is_asked_through_the_proxy(tmp_path, environment):
    seen = []

    async def proxy(request):
        seen.append((request.headers["Host"], request.headers.get("Proxy-Authorization")))
        return web.json_response({"answer": "through the proxy"})

    async with served(proxy) as url:
        environment.setenv("HTTP_PROXY", url.replace("http://", "http://me:pass-4242@").removesuffix("/ask"))
        found, _ = await asked(tmp_path / "j.jsonl", "http://rag.example.com/ask")
        here, _ = await asked(tmp_path / "k.jsonl", url)  # a loopback address goes straight
    assert (found.answer, here.answer) == ("through the proxy", "through the proxy")
    assert seen == [("rag.example.com", "Basic bWU6cGFzcy00MjQy"), (url.split("/")[2], None)]


def test_a_proxy_of_another_kind_is_refused_before_anything_is_asked(environment):
    environment.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigError, match="an HTTP proxy"):
        HttpSystem(kind="http", url="https://rag.example.com/ask").opened(())


async def test_a_byte_order_mark_before_the_answer_is_no_part_of_it(tmp_path):
    async def marked(_):
        return web.Response(body='{"answer": "Paris"}'.encode("utf-8-sig"), content_type="application/json")

    async with served(marked) as url:
        found, _ = await asked(tmp_path / "j.jsonl", url)
    assert (found.answer, found.error) == ("Paris", None)


TURNED = Sample(id="s1", question="Capital?", history=[Turn(role="user", text="Hi"), Turn(role="assistant", text="Yes?")])


async def answered(tmp_path, url, samples=1, **settings):
    http = HttpSystem(kind="http", url=url, **settings)
    journal = tmp_path / "j.jsonl"
    questions = [TURNED.model_copy(update={"id": f"s{i}"}) for i in range(1, samples + 1)]
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
        with pytest.raises(ConfigError, match=told):
            await answered(tmp_path, url)


async def test_chat_completions_are_asked_and_read(tmp_path, monkeypatch):
    seen: list[tuple[Any, str]] = []
    used = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    choices = [{"message": {"role": "assistant", "content": "Paris it is"}}]

    async def complete(request):
        seen.append((await request.json(), request.headers["Authorization"]))
        usage = {**used, "prompt_tokens_details": {"cached_tokens": 4}}
        return web.json_response({"choices": choices, "usage": usage, "citations": ["a.md"]})

    monkeypatch.setenv("CHAT_KEY", "f81d4fae7dec11d0a765")
    settings = yaml.safe_load((conf_dir() / "system" / "openai.yaml").read_text(encoding="utf-8"))
    del settings["defaults"]
    settings |= {"params": {"model": "my-rag", "system_prompt": "Be brief."}, "bearer_env": "CHAT_KEY"}
    settings["fields"]["citations"] = "citations[].{marker: @}"
    async with served(complete) as url:
        (output,) = await answered(tmp_path, url, **settings)
    assert (output.error, output.answer, output.usage) == (None, "Paris it is", {**used, "cached_tokens": 4})
    assert [c.marker for c in output.citations or []] == ["a.md"]
    ((body, key),) = seen
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
