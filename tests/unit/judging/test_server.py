"""The test server itself: deterministic replies, scripts, a log that counts from outside, and enough speed."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter

import aiohttp
import pytest

from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import read_log, serving, serving_in_subprocess
from tests.support.asking import ask, question, settings
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "a-test-key-of-no-worth")


async def test_the_same_question_gets_the_same_reply_from_every_server(serve):
    one, two = [await ask(settings(serve().url), question("a"), question("b")) for _ in range(2)]
    assert [c.text for c in one] == [c.text for c in two]
    assert one[0].wire_hash != one[1].wire_hash


async def test_a_script_comes_before_everything_else(serve):
    server = serve("500", script=[{"match": "special", "reply": "4.5\nfine", "finish_reason": "stop", "times": 1}])
    special, again = await ask(settings(server.url, retries=0, concurrency=1), question("special"), question("special 2"))
    assert (special.status, special.text) == ("ok", "4.5\nfine")
    assert again.status == "server_error"


@pytest.mark.slow
def test_from_the_command_line_with_log_and_fault(tmp_path):
    log = tmp_path / "requests.jsonl"
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"match": "special", "reply": "done"}]))
    with serving_in_subprocess("--log", str(log), "--script", str(script), "--fault", "400:nth=2", "--latency-ms", "5") as url:
        calls = asyncio.run(ask(settings(url, concurrency=1), question("a"), question("b"), question("special")))
    assert [c.status for c in calls] == ["ok", "bad_request", "ok"]
    lines = read_log(log)
    assert [line["status"] for line in lines] == [200, 400, 200]
    assert [line["body"] for line in lines] == [c.wire_hash for c in calls]
    assert all(line["written"] and line["done"] - line["arrived"] >= 0.005 for line in lines)


@pytest.mark.slow
def test_a_killed_client_shows_as_not_written(tmp_path):
    log = tmp_path / "requests.jsonl"
    code = (
        "import sys, asyncio; from tests.support import asking; "
        "asyncio.run(asking.ask(asking.settings(sys.argv[1], api_key_env=None), asking.question()))"
    )
    with serving(log=log, latency_ms=5000) as server:
        client = subprocess.Popen([sys.executable, "-c", code, server.url])
        wait_until(lambda: server.arrivals, client)
        client.send_signal(signal.SIGKILL)
        client.wait()
        wait_until(log.read_text)
    (line,) = read_log(log)
    assert (line["written"], line["in_flight"]) == (False, 1)


@pytest.mark.parametrize("text", ["no_such_fault", "429:rate"])
def test_a_wrong_fault_is_refused(text):
    with pytest.raises(ValueError, match=r"unknown fault|sequence element"):
        ServerFault.read(text)


@pytest.mark.slow
async def test_it_serves_256_clients_at_once():
    statuses = Counter()
    with serving_in_subprocess() as url:
        body = {"model": "m", "messages": [{"role": "user", "content": "grade " + "word " * 1200}]}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as session:

            async def worker(share: range) -> None:
                for i in share:
                    async with session.post(url + "/chat/completions", json={**body, "seed": i}) as response:
                        await response.read()
                        statuses[response.status] += 1

            await asyncio.gather(*(worker(range(4)) for _ in range(256)))
    assert statuses == {200: 256 * 4}
