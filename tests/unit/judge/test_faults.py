"""Every fault of a provider over the wire: how often it is tried, as the server's log saw it, and what comes of it."""

import traceback

import pytest

from ragpipe.core.errors import ProviderUnusable
from tests.support.asking import CLIENTS, SENTINEL, VARIABLE, ask, question, settings

pytestmark = pytest.mark.usefixtures("short_waits")

# fault, tries seen by the server (retries = 2), status of the call, a piece of its message
FAILURES = [
    ("429_no_header", 3, "rate_limit", "429"),
    ("500", 3, "server_error", "status 500: The server had an error"),
    ("502_html", 3, "server_error", "502"),
    ("503", 3, "server_error", "503"),
    ("504", 3, "server_error", "504"),
    ("529", 3, "server_error", "529"),
    ("408", 3, "server_error", "408"),
    ("400", 1, "bad_request", "Invalid value for 'messages[0].content'"),
    ("422", 1, "bad_request", "422"),
    ("context_length", 1, "too_long", "tokens by our own count"),
    ("content_filter_400", 1, "refused", "content management policy"),
    ("invalid_json", 3, "not_an_api_answer", "not an API answer (a proxy?)"),
    ("bad_utf8", 3, "not_an_api_answer", "not an API answer (a proxy?)"),
    ("empty_body", 3, "not_an_api_answer", "not an API answer (a proxy?)"),
    ("html", 3, "not_an_api_answer", "Please log in to the proxy"),
    ("null_body", 3, "not_an_api_answer", "not an API answer (a proxy?)"),
    ("list_body", 3, "not_an_api_answer", "not an API answer (a proxy?)"),
    ("no_choices", 3, "not_an_api_answer", "not an API answer (a proxy?)"),
    ("no_message", 3, "not_an_api_answer", "not an API answer (a proxy?)"),
    ("error_200", 3, "not_an_api_answer", "upstream failed"),
    ("null_content", 3, "empty_reply", "no text"),
    ("empty_content", 3, "empty_reply", "no text"),
    ("blank_content", 3, "empty_reply", "no text"),
    ("content_filter", 1, "refused", "content filter"),
    ("refusal", 1, "refused", "I cannot help with that."),
    ("length", 1, "cut_short", "judge.max_tokens=2048"),
]


@pytest.mark.thorough(tried=8)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("fault", "tries", "status", "piece"), FAILURES, ids=[row[0] for row in FAILURES])
async def test_a_fault_is_tried_so_often_and_becomes_that_kind(serve, client, fault, tries, status, piece):
    server = serve(f"{fault}:after=1")
    found = settings(server.url, client=client, concurrency=1)
    _, call = await ask(found, question("answered"), question())
    assert (server.tries - 1, call.status, call.attempts) == (tries, status, tries)
    assert piece in call.message
    assert "<html" not in call.message or fault == "html"
    assert call.message.startswith("case-1/default / grade / rate: ")


FATAL = [
    ("quota", "quota", "You exceeded your current quota"),
    ("429_out_of_money", "quota", "credit balance is too low"),
    ("429_per_minute:again=2h", "rate_limit", "it asks to wait 7,200 s"),
    ("401", "auth", f"comes from the environment variable {VARIABLE}"),
    ("403", "auth", f"comes from the environment variable {VARIABLE}"),
    ("404", "model_not_found", "openai/test-model-2024-07-18 at http://127.0.0.1:"),
    ("redirect:to=http://other.invalid/v1", "unreachable", "http://other.invalid/v1"),
    ("redirect_loop", "unreachable", "redirect"),
    ("no_temperature", "bad_request", "judge.temperature: null"),
    ("no_seed", "bad_request", "judge.seed: null"),
    ("429:retry_after=86400", "rate_limit", "come back after"),
    ("429:retry_after=86400,header=date", "rate_limit", "come back after"),
    ("429:retry_after=86400,header=ms", "rate_limit", "come back after"),
]


@pytest.mark.thorough(tried=4)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("fault", "kind", "piece"), FATAL, ids=[row[0] for row in FATAL])
async def test_a_fatal_fault_is_tried_once_and_stops_everything(serve, client, fault, kind, piece):
    server = serve(fault, latency_ms=5)
    with pytest.raises(ProviderUnusable) as caught:
        await ask(settings(server.url, client=client, seed=7), *(question(f"answer {i}") for i in range(20)))
    assert (server.tries, caught.value.kind) == (1, kind)
    assert piece in str(caught.value)
    assert SENTINEL not in "".join(traceback.format_exception(caught.value))


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", ["reset", "close", "reset_body", "close_body"])
async def test_a_broken_connection_is_a_network_fault(serve, client, fault):
    server = serve(f"{fault}:after=1")
    first, call = await ask(settings(server.url, client=client, concurrency=1), question("a"), question("b"))
    assert first.status == "ok"
    assert (server.tries, call.status) == (4, "network")


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", ["hang:after=1", "drip:after=1,every=0.05"])
async def test_the_deadline_is_total(serve, client, fault):
    server = serve(fault)
    await ask(settings(server.url, client=client))  # imports take longer than the deadline
    server.faults[0].options["after"] = "2"
    found = settings(server.url, client=client, timeout_s=0.3, retries=1, concurrency=1)
    _, call = await ask(found, question("answered"), question())
    assert (call.status, call.attempts) == ("deadline", 2)
    assert 150 <= call.latency_ms < 1500  # on a busy machine the deadline begins well before the request is sent


@pytest.mark.thorough(tried=4)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", [
    "500:first=1", "429_no_header:first=1", "reset:first=1", "empty_content:first=1", "invalid_json:first=1",
    # no used-up account, whatever they say of billing
    "429_per_minute:first=1", "429_gemini:first=1", "429_gemini:first=1,again=0.1s", "quota_words:first=1,retry_after=0.1",
])  # fmt: skip
async def test_a_passing_fault_or_limit_costs_one_more_try(serve, client, fault):
    server = serve(fault)
    (call,) = await ask(settings(server.url, client=client))
    assert (server.tries, call.status, call.attempts) == (2, "ok", 2)


async def test_an_empty_reply_after_refusals_has_its_own_retries(serve):
    server = serve("429_no_header:first=2", "empty_content:first=2")
    (call,) = await ask(settings(server.url, retries=5))
    assert (server.tries, call.status) == (5, "ok")


@pytest.mark.parametrize("client", CLIENTS)
async def test_replaced_characters_are_noted(serve, client):
    (call,) = await ask(settings(serve("surrogate").url, client=client))
    assert "replaced" in call.message
