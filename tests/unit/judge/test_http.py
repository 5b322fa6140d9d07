"""What comes over the wire beneath both clients: sizes, encodings, proxies, TLS."""

import asyncio
import os
import shutil
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from ragpipe.core.errors import ProviderUnusable
from ragpipe.judge.http import proxy_for
from ragpipe.judge.litellm_client import LitellmClient
from ragpipe.judge.settings import JudgeSettings
from tests.support.asking import CLIENTS, SENTINEL, ask, question, settings
from tests.support.rows import first_rows

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("client", first_rows(CLIENTS))
@pytest.mark.parametrize(("fault", "status", "piece"), [
    ("gzip_bomb", "not_an_api_answer", "more than 33,554,432 bytes"),
    ("gigantic", "not_an_api_answer", "an answer of 41,943,055 bytes"),
    ("long_text", "unparsable", "more than 1,000,000 are not read"),
])  # fmt: skip
async def test_an_answer_is_never_held_beyond_the_limit(serve, client, fault, status, piece):
    server = serve(f"{fault}:after=1")
    found = settings(server.url, client=client, concurrency=1)
    await ask(settings(serve().url, client=client))  # imports are no part of what is measured
    tracemalloc.start()
    try:
        first, call = await ask(found, question("a"), question("b"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (first.status, call.status, call.attempts, server.tries) == ("ok", status, 1, 2)
    assert piece in call.message
    assert peak < 200 << 20  # the server's own 40 MiB among them; the bomb holds 300 MiB


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", ["gzip", "deflate"])
async def test_encodings_that_are_asked_for_are_read(serve, client, fault):
    (clean,) = await ask(settings(serve().url, client=client))
    (call,) = await ask(settings(serve(fault).url, client=client))
    assert (call.status, call.text) == ("ok", clean.text)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("fault", "tries", "says"), [("no_gzip", 3, ""), ("br", 2, "(br)"), ("zstd", 2, "(zstd)")])
async def test_a_stream_that_is_not_in_its_encoding_is_asked_for_again_and_another_encoding_not(serve, client, fault, tries, says):
    server = serve(f"{fault}:after=1")
    _, call = await ask(settings(server.url, client=client, concurrency=1, retries=1), question("a"), question("b"))
    assert (call.status, server.tries) == ("not_an_api_answer", tries)
    assert says in call.message


HERE = {"HTTPS_PROXY": "http://proxy.example:3128", "HTTP_PROXY": "proxy.example:80"}


@pytest.mark.parametrize(("url", "environ", "variable"), [
    ("https://api.openai.com/v1", HERE, "HTTPS_PROXY"),
    ("http://judge.example/v1", HERE, "HTTP_PROXY"),
    ("https://api.openai.com/v1", {"https_proxy": "http://a:1", **HERE}, "https_proxy"),
    ("https://api.openai.com/v1", {"ALL_PROXY": "http://a:1"}, "ALL_PROXY"),
    ("https://api.openai.com/v1", {"HTTP_PROXY": "http://a:1"}, None),
    ("https://api.openai.com/v1", {**HERE, "NO_PROXY": "openai.com"}, None),
    ("https://api.openai.com/v1", {**HERE, "NO_PROXY": "*"}, None),
    ("https://openai.com:8443/v1", {**HERE, "no_proxy": "openai.com:8443"}, None),
    ("https://openai.com/v1", {**HERE, "no_proxy": "openai.com:8443"}, "HTTPS_PROXY"),
    ("http://judge.example/v1", {**HERE, "REQUEST_METHOD": "GET"}, None),
    # this machine: never
    ("http://127.0.0.1:8000/v1", HERE, None),
    ("http://[::1]:8000/v1", HERE, None),
    # a private network: as NO_PROXY says where there is one, else not
    ("http://10.1.2.3:8000/v1", HERE, None),
    ("http://gpu-server:8000/v1", HERE, None),
    ("http://10.1.2.3:8000/v1", {**HERE, "NO_PROXY": "192.168.0.0/16"}, "HTTP_PROXY"),
])  # fmt: skip
def test_which_proxy(url, environ, variable):
    found = proxy_for(url, environ)
    assert (found.variable if found else None) == variable


def test_a_proxys_password_is_never_shown():
    found = proxy_for("https://api.openai.com", {"HTTPS_PROXY": f"http://me:{SENTINEL}@proxy.example:3128"})
    assert "proxy.example:3128" in str(found)
    assert SENTINEL not in str(found) + repr(found)


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_public_address_is_asked_through_the_proxy(serve, monkeypatch, client):
    proxy = serve()  # in plain HTTP a proxy gets the whole URL, and this one answers itself
    monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
    (call,) = await ask(settings("http://judge.example.invalid/v1", client=client))
    assert (call.status, proxy.tries) == ("ok", 1)
    own = serve()
    (call,) = await ask(settings(own.url, client=client))
    assert (call.status, proxy.tries, own.tries) == ("ok", 1, 1)


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("model", [
    "anthropic/claude-3-5-haiku-20241022", "cohere_chat/m-2024-07-18", "ollama/m-2024-07-18", "gemini/gemini-1.5-pro-002",
    "bedrock/anthropic.claude-3-haiku-20240307-v1:0",
])  # fmt: skip
async def test_every_provider_of_litellms_goes_the_same_way(serve, monkeypatch, model):
    """The proxy knows no route of theirs and says 404: that a request came to it is what counts."""
    monkeypatch.setenv("HTTP_PROXY", serve().url.removesuffix("/v1"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION_NAME"):
        monkeypatch.setenv(name, "us-east-1")
    asked = JudgeSettings(model=model, api_base="http://judge.example.invalid/v1", allow_unpinned=True)
    client = LitellmClient(asked, "a-test-key-of-no-worth")
    found = await client.send(client.prepare({"messages": [{"role": "user", "content": "How good?"}]})[0])
    await client.close()
    assert found.status == 404


async def test_litellm_has_its_own_connections_back_when_the_last_client_closes(serve):
    import litellm

    before = litellm.aclient_session, litellm.in_memory_llm_clients_cache
    with ThreadPoolExecutor(3) as pool:  # each in an event loop of its own
        url = serve(latency_ms=50).url
        asking = [
            pool.submit(asyncio.run, ask(settings(url, client="litellm"), *(question(f"{i} {k}") for k in range(4)))) for i in range(3)
        ]
        assert {call.status for one in asking for call in one.result()} == {"ok"}
    assert (litellm.aclient_session, litellm.in_memory_llm_clients_cache) == before


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("url", ["http://judge.example.invalid/v1", "https://judge.example.invalid/v1"])
async def test_a_dead_proxy_is_named_with_its_variable(unused_tcp_port, monkeypatch, client, url):
    monkeypatch.setenv("ALL_PROXY", f"http://me:{SENTINEL}@127.0.0.1:{unused_tcp_port}")
    with pytest.raises(ProviderUnusable) as caught:
        await ask(settings(url, client=client))
    said = str(caught.value)
    assert f"no connection to the proxy 127.0.0.1:{unused_tcp_port} (environment variable ALL_PROXY)" in said
    assert SENTINEL not in said


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_proxy_that_refuses_or_is_of_another_kind_is_named(serve, monkeypatch, client):
    refusing = serve().url.removesuffix("/v1")  # it knows no CONNECT: status 404
    for variable, proxy, says in (
        ("HTTPS_PROXY", refusing, r"HTTPS_PROXY.* does not let this through: status 404"),
        ("ALL_PROXY", "socks5://127.0.0.1:1080", r"127\.0\.0\.1:1080 .*ALL_PROXY.* is no HTTP proxy"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(variable, proxy)
            with pytest.raises(ProviderUnusable, match=says):
                await ask(settings("https://judge.example.invalid/v1", client=client))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of nobody's for 127.0.0.1, and its key."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.mark.parametrize("client", CLIENTS)
async def test_tls_that_cannot_be_trusted_and_https_at_a_plain_port_end_at_once(serve, client, certificate):
    server = serve(tls=certificate)
    with pytest.raises(ProviderUnusable, match=r"TLS: .*certificate verify failed.*SSL_CERT_FILE"):
        await ask(settings(server.url, client=client))
    assert server.tries == 0
    with pytest.raises(ProviderUnusable, match=r"TLS: .*a server without TLS\? Its address then begins with http://"):
        await ask(settings(serve().url.replace("http:", "https:"), client=client))


def test_an_authority_of_ones_own_is_named_by_a_variable(serve, certificate):
    server = serve(tls=certificate)
    program = (
        "import asyncio, sys; from tests.support.asking import ask, settings\nprint(asyncio.run(ask(settings(sys.argv[1])))[0].status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, server.url], capture_output=True, text=True,
        env={**os.environ, "SSL_CERT_FILE": str(certificate[0])},
    )  # fmt: skip
    assert done.stdout.strip() == "ok", done.stderr
