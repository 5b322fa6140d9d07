"""Slots, pauses, rate limiter, circuit breaker and call budget, counted at the server."""

import asyncio

import pytest

from ragpipe.core.errors import Incomplete, ProviderUnusable
from ragpipe.judge.attempts import seconds_before_retry
from ragpipe.judge.client import AttemptError
from ragpipe.judge.http_responses import asked_to_wait, retry_after
from ragpipe.judge.live_transport import LiveTransport
from ragpipe.judge.provider_state import ProviderRegistry
from tests.support.asking import CLIENTS, ask, nobody, question, settings

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("width", [1, 8])
async def test_peak_in_flight_is_the_limit_and_sockets_do_not_grow(serve, client, width):
    server = serve(latency_ms=30 if client == "direct" else 300)  # litellm starts its calls at some distance
    calls = await ask(settings(server.url, client=client, concurrency=width), *(question(f"a {i}") for i in range(8 * width)))
    assert {c.status for c in calls} == {"ok"}
    assert server.peak == width
    assert len({line["peer"] for line in server.log}) <= width + 1


@pytest.mark.slow
@pytest.mark.parametrize("form", ["seconds", "date", "ms"])
async def test_retry_after_holds_all_workers(serve, form):
    server = serve(f"429:nth=5,retry_after=1,header={form}", latency_ms=20)
    calls = await ask(settings(server.url, concurrency=4), *(question(f"a {i}") for i in range(16)))
    assert {c.status for c in calls} == {"ok"}
    limited = next(line for line in server.log if line["status"] == 429)
    least = 1.0 if form != "date" else 0.9  # a date has whole seconds; ragpipe waits to the end of the one that is named
    # What other workers had sent before the refusal reached the client may still arrive; on a busy machine that takes a while.
    early = [x for x in server.log if limited["done"] + 0.3 < x["arrived"] < limited["done"] + least - 0.01]
    assert early == []
    assert server.tries == 17


async def test_the_breaker_ends_a_dead_provider(serve):
    server = serve("invalid_json:after=1")
    found = settings(server.url, concurrency=2, retries=0)
    with pytest.raises(ProviderUnusable) as caught:
        await ask(found, *(question(f"a {i}") for i in range(50)))
    assert (caught.value.kind, found.breaker_after) == ("breaker", 7)
    assert server.tries <= 1 + 7 + 2


@pytest.mark.parametrize(("faults", "statuses"), [
    (("500:nth=2+3+5+6+8+9",), ["ok", *["server_error"] * 2] * 3),  # a success closes it
    (("empty_content:after=1",), ["ok", *["empty_reply"] * 9]),  # the provider lives: it is this judge that has nothing to say
    # a refusal of one question is an answer too
    (("400:nth=4+7+10", "invalid_json:after=1"), ["ok", *["not_an_api_answer", "not_an_api_answer", "bad_request"] * 3]),
])  # fmt: skip
async def test_what_leaves_the_breaker_closed(serve, monkeypatch, faults, statuses):
    monkeypatch.setattr("ragpipe.judge.settings._BREAKER", 2)
    server = serve(*faults, latency_ms=1)
    found = settings(server.url, concurrency=1, retries=0)
    assert [c.status for c in await ask(found, *(question(f"a {i}") for i in range(len(statuses))))] == statuses


async def test_a_step_none_of_whose_replies_had_a_text_ends_the_run(serve, monkeypatch):
    monkeypatch.setattr("ragpipe.judge.settings._BREAKER", 2)
    server = serve("empty_content")
    with pytest.raises(ProviderUnusable, match="none of the first 3 replies to grade / rate had a text") as caught:
        await ask(settings(server.url, concurrency=1, retries=0), *(question(f"a {i}") for i in range(10)))
    assert (caught.value.kind, server.tries) == ("breaker", 3)


async def test_transports_of_one_start_share_max_calls(serve):
    server, start = serve(), ProviderRegistry()
    for first, asked in ((0, 2), (2, 1)):
        live = LiveTransport(settings(server.url, max_calls=3), run_id="r")
        live.share_provider_state(start)
        for i in range(first, first + asked):
            await live.ask(question(f"a {i}"), nobody)
        if first:
            with pytest.raises(Incomplete, match=r"this start has asked as many.*the same command goes on"):
                await live.ask(question("one more"), nobody)
        await live.close()
    assert server.tries == 3


@pytest.mark.parametrize("client", CLIENTS)
async def test_nobody_there_fails_fast_with_address_and_cause(unused_tcp_port, client):
    with pytest.raises(ProviderUnusable, match=rf"http://127\.0\.0\.1:{unused_tcp_port}/v1.*[Cc]onnect") as caught:
        await ask(settings(f"http://127.0.0.1:{unused_tcp_port}/v1", client=client), *(question(f"{i}") for i in range(9)))
    assert caught.value.kind == "unreachable"


async def test_a_missing_key_names_its_variable(serve, monkeypatch):
    monkeypatch.delenv("RAGPIPE_TEST_KEY")
    server = serve()
    with pytest.raises(ProviderUnusable, match="RAGPIPE_TEST_KEY is not set"):
        await ask(settings(server.url))
    assert server.tries == 0


@pytest.mark.slow
async def test_cancelling_leaves_no_noise(serve, caplog):
    server = serve("hang")
    live = LiveTransport(settings(server.url, concurrency=4), run_id="r")
    tasks = [asyncio.create_task(live.ask(question(f"a {i}"), nobody)) for i in range(4)]
    await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    await live.close()
    assert all(isinstance(f, asyncio.CancelledError) for f in found)
    assert caplog.text == ""


@pytest.mark.parametrize(("headers", "seconds"), [
    ({}, None), ({"retry-after": "7"}, 7.0), ({"retry-after": "0.5"}, 0.5), ({"retry-after-ms": "250"}, 0.25),
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 31.0), ({"retry-after": "soon"}, None),
    ({"retry-after-ms": "x"}, None), ({"retry-after": "-5"}, None), ({"retry-after-ms": "nan"}, None),
    ({"retry-after": "Wed, 21 Oct 2015 07:00:00 GMT"}, 0.0),
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT", "date": "Wed, 21 Oct 2015 07:27:50 GMT"}, 11.0),
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT", "date": "now"}, 31.0),
])  # fmt: skip
def test_retry_after_forms(headers, seconds):
    now = 1445412450.0  # Wed, 21 Oct 2015 07:27:30 GMT; one second is added because a date is cut to whole seconds
    assert retry_after(headers, now) == seconds


@pytest.mark.parametrize(("text", "seconds"), [
    ("Please try again in 20s.", 20.0), ("Please try again in 1m20.5s. See", 80.5), ("Please try again in 6ms", 0.006),
    ("Please retry in 36.57s", 36.57), ("retry after 2 minutes", 120.0), ("Try again in a while", None), ("", None),
])  # fmt: skip
def test_the_wait_that_words_ask_for(text, seconds):
    assert asked_to_wait(text) == seconds


@pytest.mark.parametrize(("kind", "asked_for", "has_answered", "seconds"), [
    ("server_error", None, True, 8.0), ("server_error", None, False, 2.0), ("server_error", 30.0, True, 32.0),
    ("rate_limit", None, False, 8.0), ("rate_limit", 30.0, True, 2.0),
])  # fmt: skip
def test_the_wait_before_the_third_retry(monkeypatch, kind, asked_for, has_answered, seconds):
    """Of 2, 4, 8 s: what a 503 asks for comes on top, what a 429 asks for holds all calls elsewhere; before any answer 2 s at most."""
    monkeypatch.setattr("ragpipe.judge.attempts.backoff", lambda attempt: 2.0**attempt)
    assert seconds_before_retry(AttemptError(kind, "x", retry_after=asked_for), 3, has_answered=has_answered) == seconds


async def test_judges_of_one_server_and_key_share_its_limits(serve, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "another-test-key-of-no-worth")
    url, start = serve().url, ProviderRegistry()
    first = start.state(settings(url, rpm=600.0))
    warm = start.state(settings(url, temperature=0.7, rpm=300.0))
    assert first is not warm
    assert first.rate_limiter is warm.rate_limiter
    start.state(settings(url, season="another", rpm=1200.0))
    assert first.rate_limiter.per_minute("requests") == pytest.approx(300), "the lowest holds"
    assert start.state(settings(url, model="openai/other-2024-07-18")).rate_limiter is first.rate_limiter
    assert start.state(settings(url, api_key_env="OTHER_KEY")).rate_limiter is not first.rate_limiter


def test_models_of_a_public_provider_have_limits_of_their_own(monkeypatch):
    start = ProviderRegistry()
    models = ("openai/gpt-4o-mini-2024-07-18", "openai/gpt-4o-2024-08-06")
    mini, large = (start.state(settings(None, model=model)).rate_limiter for model in models)
    assert mini is not large
    routed = (f"openrouter/{model}" for model in models)
    one, other = (start.state(settings(None, model=model)).rate_limiter for model in routed)
    assert one is other


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_delay_in_the_body_alone_is_waited_for(serve, client):
    """Google's: its words do not say how long, and no header does."""
    server = serve("429_gemini:nth=2,again=0.8s,words=no", latency_ms=5)
    calls = await ask(settings(server.url, client=client, concurrency=1), question("a 1"), question("a 2"))
    assert {c.status for c in calls} == {"ok"}
    refused, then = sorted(server.log, key=lambda line: line["n"])[1:]
    assert refused["status"] == 429
    assert then["arrived"] - refused["done"] >= 0.79
