"""Every try that was answered is paid for: what a transport tells of it, against the server's own log."""

import asyncio
from datetime import datetime, timedelta

import pytest

from ragpipe.core.errors import ProviderUnusable
from ragpipe.judging.clients.client import ApiResponse
from ragpipe.judging.clients.http_responses import parse_response
from ragpipe.judging.transports.live_transport import LiveTransport
from ragpipe.schema.call import Payment
from tests.support.asking import ask, question, settings

pytestmark = pytest.mark.usefixtures("key")
CLIENTS = ["direct", pytest.param("litellm", marks=pytest.mark.slow)]
PRICES = {"input": 1.0, "output": 2.0}  # dollars per million tokens


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "a-test-key-of-no-worth")


def billed(server):
    """What the server has on its bill: the tokens in and out of every answer that named a usage."""
    usages = [line["usage"] for line in server.log if line["usage"]]
    return sum(u["prompt_tokens"] for u in usages), sum(u["completion_tokens"] for u in usages), len(usages)


def total(payments):
    named = [p for p in payments if p.tokens_in is not None]
    return sum(p.tokens_in for p in named), sum(p.tokens_out for p in named), len(named)


@pytest.mark.thorough(tried=5)
@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("faults", [
    (), ("empty_content:first=2",), ("empty_content",), ("length",), ("content_filter",), ("500:first=1",),
    ("empty_content:nth=2", "500:first=1"),
])  # fmt: skip
async def test_the_payments_are_the_servers_bill(serve, client, faults):
    server, payments = serve(*faults), []
    (call,) = await ask(settings(server.url, client=client, prices=PRICES), paid=payments.append)
    assert total(payments) == billed(server)
    assert billed(server)[2] > 0
    tokens_in, tokens_out, _ = billed(server)
    assert sum(p.usd for p in payments) == pytest.approx((tokens_in + 2 * tokens_out) / 1e6)
    assert {p.model for p in payments} == {"openai/test-model-2024-07-18"}
    assert all(datetime.fromisoformat(p.at).utcoffset() == timedelta(0) for p in payments)
    assert (call.tokens_in, call.tokens_out) == (payments[-1].tokens_in, payments[-1].tokens_out)


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_answer_without_a_message_that_names_a_usage_is_paid(serve, client):
    server, payments = serve("no_message:first=1"), []
    await ask(settings(server.url, client=client), paid=payments.append)
    assert total(payments) == billed(server)
    assert len(payments) == 2


async def test_a_call_has_the_tokens_of_the_reply_that_stands(serve):
    (clean,) = await ask(settings(serve().url))
    (call,) = await ask(settings(serve("empty_content:first=1").url))
    assert (call.status, call.attempts) == ("ok", 2)
    assert (call.tokens_in, call.tokens_out) == (clean.tokens_in, clean.tokens_out)


async def test_a_too_long_wait_after_a_paid_try_forgets_nothing(serve):
    server, payments = serve("empty_content:first=1", "429:retry_after=900"), []
    with pytest.raises(ProviderUnusable, match="retry_after_cap_s"):
        await ask(settings(server.url), paid=payments.append)
    assert total(payments) == billed(server)
    assert len(payments) == 1


@pytest.mark.slow
async def test_a_fatal_fault_after_a_paid_try_forgets_nothing(serve):
    server, payments = serve("empty_content:first=1", "401"), []
    with pytest.raises(ProviderUnusable):
        await ask(settings(server.url), paid=payments.append)
    assert total(payments) == billed(server)
    assert len(payments) == 1


async def test_a_stop_or_a_cancelling_between_tries_forgets_nothing(serve):
    for end in ("stop", "cancel"):
        server, payments, answered = serve("empty_content:first=1", "hang"), [], asyncio.Event()
        live = LiveTransport(settings(server.url), run_id="r")

        def paid(payment: Payment, to=payments, answered=answered) -> None:
            to.append(payment)
            answered.set()

        task = asyncio.create_task(live.ask(question(), paid))
        await answered.wait()
        if end == "stop":
            live.stop(ProviderUnusable("the user wants to end", "stopped"))
        else:
            task.cancel()
        with pytest.raises((ProviderUnusable, asyncio.CancelledError)):
            await task
        await live.close()
        assert total(payments) == billed(server)
        assert len(payments) == 1


async def test_an_answer_without_a_usage_is_paid_by_unknown_tokens(serve):
    payments = []
    await ask(settings(serve("no_usage").url, prices=PRICES), paid=payments.append)
    assert [(p.tokens_in, p.tokens_out, p.usd) for p in payments] == [(None, None, None)]


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["500:first=1", "invalid_json:first=1", "html:first=1", "reset:first=1"])
async def test_what_is_no_answer_is_not_paid(serve, fault):
    payments = []
    await ask(settings(serve(fault).url), paid=payments.append)
    assert len(payments) == 1


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_fingerprint_is_the_providers(serve, client):
    (call,) = await ask(settings(serve().url, client=client))
    assert call.fingerprint == "fp_test"


def answer(**beside):
    message = {"finish_reason": "stop", "message": {"content": "4"}}
    return ApiResponse(200, {}, {"choices": [message], **beside})


@pytest.mark.parametrize(("details", "expected"), [
    ({"reasoning_tokens": 64}, 64), ({"reasoning_tokens": 0}, 0), ({"reasoning_tokens": 101}, 101),
    ({"reasoning_tokens": True}, None), ({"reasoning_tokens": -1}, None), ({}, None), (None, None), ("many", None),
])  # fmt: skip
def test_reasoning_tokens_are_a_part_of_the_tokens_out(details, expected):
    usage = {"prompt_tokens": 7, "completion_tokens": 100, "completion_tokens_details": details}
    assert parse_response(answer(usage=usage)).tokens_reasoning == expected


@pytest.mark.parametrize(("details", "cached", "written"), [
    ({"cached_tokens": 60, "cache_creation_tokens": 30}, 60, 30), ({"cached_tokens": 60}, 60, None),
    ({"cache_creation_tokens": 100}, None, 100), ({"cached_tokens": 60, "cache_creation_tokens": 41}, 60, None), ({}, None, None),
])  # fmt: skip
def test_tokens_found_in_a_cache_and_written_to_it_are_parts_of_the_tokens_in(details, cached, written):
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": details}
    completion = parse_response(answer(usage=usage))
    assert (completion.tokens_cached, completion.tokens_written) == (cached, written)


@pytest.mark.parametrize(("given", "expected"), [("fp_1", "fp_1"), ("", None), (None, None), (3, None), ("a\x00", "a\ufffd")])
def test_a_fingerprint_is_a_text(given, expected):
    assert parse_response(answer(system_fingerprint=given)).fingerprint == expected
