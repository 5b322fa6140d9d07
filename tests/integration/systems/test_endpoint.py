"""An HTTP endpoint as the system: what of the headers is struck out of its answers, where paths lead, how wide it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from ragpipe.cli import main
from ragpipe.core.errors import ConfigError
from ragpipe.schema.sample import Output, Sample
from ragpipe.stages.collect_outputs import CollectStage
from ragpipe.stages.collected_outputs import collected_outputs
from ragpipe.systems.live_system import _Http, open_system
from ragpipe.systems.settings import HttpSystem
from tests.support.rows import first_rows

SAMPLE = Sample(id="s1", question="Capital?")


@asynccontextmanager
async def served(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/ask", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/ask"
    finally:
        await runner.cleanup()


async def asked(journal: Path, url: str, **settings: Any) -> tuple[Output, list[str]]:
    """The output of one question, and what the system noted."""
    http = HttpSystem(kind="http", url=url, **settings)
    system = open_system(http, ())
    await CollectStage(system, http, journal).run(iter([SAMPLE]))
    return collected_outputs(journal)["s1"][0], list(system.notes)


@pytest.mark.parametrize(
    ("header", "value", "answer", "kept"),
    [
        ("X-Tenant", "production", "The answer is production ready.", True),
        ("X-Source", "wikipedia", "According to wikipedia it is.", True),
        ("X-Index", "wikipedia-20181220", "The dump is wikipedia-20181220.", True),
        ("X-Api-Key", "anything", "It does not say anything wrong.", True),
        ("Authorization", "Bearer placeholder", "A placeholder of the Bearer.", True),
        ("X-Trace", "f81d4fae7dec11d0a765", "You are f81d4fae7dec11d0a765.", False),
        ("Authorization", "Bearer f81d4fae7dec11d0a765", "You are f81d4fae7dec11d0a765.", False),
        ("X-Api-Key", "dXNlcjpwYXNz", "You are dXNlcjpwYXNz.", False),
        ("Cookie", "sid-4242-4242", "You are sid-4242-4242.", False),
    ],
)
async def test_only_what_is_surely_secret_is_struck_out_of_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, value: str, answer: str, kept: bool
) -> None:
    async def echo(request: web.Request) -> web.Response:
        assert request.headers[header] == value
        return web.json_response({"answer": answer})

    monkeypatch.setenv("HEADER_VALUE", value)
    async with served(echo) as url:
        found, notes = await asked(tmp_path / "j.jsonl", url, headers_env={header: "HEADER_VALUE"})
    assert found.answer == (answer if kept else "You are ***.")
    assert [note.split(" value of ")[0] for note in notes] == ([] if kept else ["1 answers repeat a"])
    assert all("s1" in note and value not in note for note in notes)


@pytest.mark.parametrize(
    ("reply", "fields", "error"),
    [
        ({"data": {"txt": "Paris"}, "id": 7}, {"answer": "data.text"}, "no answer at `data.text`; found keys data, id"),
        ({"answer": None}, {"answer": "answer"}, "no answer at `answer`; found keys answer"),
        (["Paris"], {"answer": "answer"}, "no answer at `answer`; found list"),
        ({"answer": "Paris"}, {"answer": "length(answer[0])"}, "length"),
        ({"answer": ""}, {"answer": "answer"}, None),
        ({"refused": True}, {"answer": "answer", "abstained": "refused"}, None),
        ({"hits": ["one"]}, {"contexts": "hits"}, None),
    ],
)
async def test_a_path_that_leads_to_no_answer_is_that_cases_error(
    tmp_path: Path, reply: Any, fields: dict[str, str], error: str | None
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(reply)

    async with served(answer) as url:
        found, _ = await asked(tmp_path / "j.jsonl", url, fields=fields)
    assert (error in (found.error or "")) if error else found.error is None


@pytest.mark.parametrize(
    ("word", "told"),
    first_rows(
        [
            ("+system.fields.answr=answer", "did you mean answer"),
            ("system.fields.answer='data['", "it ends too early"),
            ("system.body.question='question['", "it ends too early"),
        ],
        keep=2,
    ),
)
def test_a_wrong_field_or_path_is_refused_before_anybody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], word: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "Why?"}\n')
    words = "dataset=jsonl dataset.path=q.jsonl metrics=[faithfulness] system=http system.url=http://127.0.0.1:1/x"
    assert main([*words.split(), word, "task=plan"]) == 2
    assert told in capfd.readouterr().err


def test_the_method_is_no_field_of_an_answer() -> None:
    with pytest.raises(ValidationError, match="'method' is no field of an output"):
        HttpSystem(kind="http", url="http://127.0.0.1:1/x", fields={"answer": "answer", "method": "m"})


async def test_as_many_requests_are_under_way_as_asked_for(tmp_path: Path) -> None:
    """More than the 100 connections that aiohttp opens by itself; and its own limit of 300 s for an answer is off."""
    wanted, here, all_here = 120, 0, asyncio.Event()

    async def meet(_: web.Request) -> web.Response:
        nonlocal here
        here += 1
        if here == wanted:
            all_here.set()
        await asyncio.wait_for(all_here.wait(), 10)
        return web.json_response({"answer": "met"})

    async with served(meet) as url:
        http = HttpSystem(kind="http", url=url, concurrency=wanted, timeout_s=600)
        system = open_system(http, ())
        stage = CollectStage(system, http, tmp_path / "j.jsonl")
        await stage.run(Sample(id=f"s{i}", question="q") for i in range(wanted))
    assert {output.answer for (output,) in collected_outputs(tmp_path / "j.jsonl").values()} == {"met"}
    assert isinstance(system, _Http)
    limits = system._session.timeout
    assert (limits.total, limits.connect, limits.sock_read, limits.sock_connect) == (None, None, None, None)


async def test_no_cookie_goes_from_one_case_to_the_next(tmp_path: Path) -> None:
    """An endpoint may keep a conversation in a session's cookie. Cookies of a plain IP address are never kept, so that the
    endpoint is asked by its name."""
    seen: list[str | None] = []

    async def conversation(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Cookie"))
        response = web.json_response({"answer": f"turn {len(seen)}"})
        response.set_cookie("session", f"conversation-{len(seen)}")
        return response

    async with served(conversation) as url:
        http = HttpSystem(kind="http", url=url.replace("127.0.0.1", "localhost"), concurrency=1)
        stage = CollectStage(open_system(http, ()), http, tmp_path / "j.jsonl")
        await stage.run(Sample(id=f"s{i}", question="q") for i in range(3))
    assert seen == [None, None, None]


async def test_a_redirect_is_named_and_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "f81d4fae7dec11d0a765")
    asked_for = []

    async def move(request: web.Request) -> web.Response:
        asked_for.append(request.path)
        return web.Response(status=307, headers={"Location": "/ask?token=f81d4fae7dec11d0a765"})

    async with served(move) as url:
        found, _ = await asked(tmp_path / "j.jsonl", url, headers_env={"Authorization": "TOKEN"})
    assert asked_for == ["/ask"]
    assert found.error is not None
    assert "HTTP 307" in found.error
    assert "a redirect to '/ask?token=***', which is not followed" in found.error


PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without the variables of the machine."""
    for name in (*PROXY_VARIABLES, *map(str.upper, PROXY_VARIABLES)):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def test_a_public_endpoint_is_asked_through_the_proxy(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    seen = []

    async def proxy(request: web.Request) -> web.Response:
        seen.append((request.headers["Host"], request.headers.get("Proxy-Authorization")))
        return web.json_response({"answer": "through the proxy"})

    async with served(proxy) as url:
        environment.setenv("HTTP_PROXY", url.replace("http://", "http://me:pass-4242@").removesuffix("/ask"))
        found, _ = await asked(tmp_path / "j.jsonl", "http://rag.example.com/ask")
        here, _ = await asked(tmp_path / "k.jsonl", url)  # a loopback address goes straight
    assert (found.answer, here.answer) == ("through the proxy", "through the proxy")
    assert seen == [("rag.example.com", "Basic bWU6cGFzcy00MjQy"), (url.split("/")[2], None)]


async def test_a_proxy_that_is_not_there_is_named_without_its_password(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("HTTP_PROXY", "http://me:pass-4242@127.0.0.1:1")
    found, _ = await asked(tmp_path / "j.jsonl", "http://rag.example.com/ask")
    assert "no connection to the proxy 127.0.0.1:1 (environment variable HTTP_PROXY)" in (found.error or "")
    assert "pass-4242" not in (tmp_path / "j.jsonl").read_text()


async def test_a_proxy_that_refuses_is_named_without_its_password(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        environment.setenv("HTTPS_PROXY", f"http://me:pass-4242@127.0.0.1:{port}")
        found, _ = await asked(tmp_path / "j.jsonl", "https://rag.example.com/ask")
    assert f"the proxy 127.0.0.1:{port} (environment variable HTTPS_PROXY) does not let this through" in (
        found.error or ""
    )
    assert "status 407" in (found.error or "")
    assert "pass-4242" not in (tmp_path / "j.jsonl").read_text()


def test_a_proxy_of_another_kind_is_refused_before_anything_is_asked(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigError, match="an HTTP proxy"):
        open_system(HttpSystem(kind="http", url="https://rag.example.com/ask"), ())


@pytest.mark.parametrize("announced", [True, False])
async def test_an_answer_over_the_limit_is_an_error(tmp_path: Path, announced: bool) -> None:
    """16 MiB is the limit; sent without its length, compressed to a thousandth."""

    async def large(request: web.Request) -> web.StreamResponse:
        response = web.Response(body=b" " * (40 << 20), content_type="application/json")
        if not announced:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    async with served(large) as url:
        found, _ = await asked(tmp_path / "j.jsonl", url)
    assert "more than 16 MiB" in (found.error or "")


async def test_a_byte_order_mark_before_the_answer_is_no_part_of_it(tmp_path: Path) -> None:
    async def marked(_: web.Request) -> web.Response:
        return web.Response(body='{"answer": "Paris"}'.encode("utf-8-sig"), content_type="application/json")

    async with served(marked) as url:
        found, _ = await asked(tmp_path / "j.jsonl", url)
    assert (found.answer, found.error) == ("Paris", None)
