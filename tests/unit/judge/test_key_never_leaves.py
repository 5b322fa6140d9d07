"""A sentinel key: in no call, no error, no log line, no output, and at no other host."""

import hashlib
import logging
import traceback

import pytest

from ragpipe.core.errors import ProviderUnusable
from ragpipe.core.secrets import looks_random
from tests.support.asking import CLIENTS, SENTINEL, VARIABLE, ask, question, settings

FAULTS = ["400", "401", "403", "404", "quota", "500", "reset", "invalid_json", "html", "refusal", "length", "context_length"]


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("client", CLIENTS)
async def test_in_no_text(serve, client, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    seen = []
    for fault in FAULTS:
        try:
            seen += await ask(settings(serve(fault).url, client=client, retries=1), question("a"), question("b"))
        except ProviderUnusable as error:
            seen.append("".join(traceback.format_exception(error)))
    assert len(seen) >= len(FAULTS)
    assert SENTINEL not in repr(seen) + caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("client", CLIENTS)
async def test_not_in_a_reply_that_repeats_it(serve, client):
    server = serve(script=[{"match": ".", "reply": f'{{"score": 4, "reason": "your key is {SENTINEL}"}}'}])
    (call,) = await ask(settings(server.url, client=client))
    assert call.text == '{"score": 4, "reason": "your key is ***"}'
    assert "replaced by ***" in call.message
    assert server.log[0]["auth"] != ""


@pytest.mark.parametrize("word", ["anything", "not-needed", "placeholder", "some-local-key"])
async def test_a_word_that_stands_for_a_key_stays_in_a_reply(serve, monkeypatch, word):
    monkeypatch.setenv(VARIABLE, word)
    text = f'{{"score": 4, "reason": "it does not say {word} wrong"}}'
    (call,) = await ask(settings(serve(script=[{"match": ".", "reply": text}]).url))
    assert (call.text, call.message) == (text, None)


@pytest.mark.parametrize(("value", "random"), [
    ("none", False), ("anything", False), ("not-needed", False), ("production", False), ("wikipedia", False),
    ("a-test-key-of-no-worth", False), ("internationalization", False), ("the 12 best answers", False), ("v1", False),
    ("sentinel-key-0123456789abcdef-SECRET", True), ("550e8400-e29b-41d4-a716-446655440000", True),
    ("sk-abcdefghijklmnop", True), ("wJalrXUtnFEMIxKMDENGbPxRfiCYEXAMPLEKEY", True),
])  # fmt: skip
def test_what_counts_as_random(value, random):
    assert looks_random(value) is random


@pytest.mark.parametrize("client", CLIENTS)
async def test_not_at_the_host_of_a_redirect(serve, client):
    other = serve()
    server = serve(f"redirect:to={other.url}/chat/completions")
    with pytest.raises(ProviderUnusable, match="redirect"):
        await ask(settings(server.url, client=client))
    assert (server.tries, other.tries) == (1, 0)


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_users_openai_key_is_not_sent_to_an_api_base_that_did_not_ask_for_it(serve, client, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SENTINEL)
    server = serve()
    await ask(settings(server.url, client=client, api_key_env=None))
    assert server.log[0]["auth"] != hashlib.sha256(f"Bearer {SENTINEL}".encode()).hexdigest()[:12]
