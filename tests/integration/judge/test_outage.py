"""The life of a call, an outage of the provider, and a limit that is used up, as the server's log saw them."""

import asyncio
import re
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace

import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.errors import Interrupted, ProviderUnusable
from ragpipe.judge.answers import Claims, Grade15
from ragpipe.judge.client import AttemptError
from ragpipe.judge.limits import OutageGate, Slots
from ragpipe.judge.live_transport import LiveTransport
from tests.support.asking import ask, nobody, question, settings
from tests.support.harness import arguments, write_cases
from tests.support.rows import first_rows
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # whole runs, several per test


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr("ragpipe.judge.attempts.backoff", lambda attempt, **_: 0.02 * attempt)


@pytest.fixture
def quick(monkeypatch):
    """Probes after 0.05, 0.1, 0.2 ... s, told from 0.2."""
    monkeypatch.setattr("ragpipe.judge.limits._FIRST", 0.05)
    monkeypatch.setattr("ragpipe.judge.limits._REPORTED_FROM", 0.2)


def answered_once(server):
    """Whether no question had two answers."""
    return set(Counter(line["body"] for line in server.log if line["status"] == 200).values()) == {1}


SILENT = [("500", 3), ("reset", 3), ("close", 3), ("html", 3), ("hang", 2), ("br", 1), ("gzip_bomb", 1)]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("client", ["direct", pytest.param("litellm", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("fault", "tries"), SILENT)
async def test_a_provider_that_never_answered_ends_the_run_with_its_first_call(serve, client, fault, tries):
    """Nobody follows the first call before one came back; a hanging server costs twice judge.timeout_s."""
    server = serve(fault)
    await ask(settings(serve().url, client=client))  # imports take longer than the deadline
    found = settings(server.url, client=client, timeout_s=0.5 if fault == "hang" else 20.0)
    with pytest.raises(ProviderUnusable, match=f"no answer came in this start, tries sent: {tries}; the last: ") as caught:
        await ask(found, *(question(f"a {i}") for i in range(20)))
    assert (server.tries, caught.value.kind) == (tries, "unreachable")


async def test_the_first_call_stays_alone_until_one_came_back(serve):
    server = serve("429_no_header:first=3", latency_ms=20)
    calls = await ask(settings(server.url, concurrency=8), *(question(f"a {i}") for i in range(8)))
    assert Counter(c.status for c in calls) == {"rate_limit": 1, "ok": 7}
    alone = sorted(server.log, key=lambda line: line["n"])[:4]  # three refusals, and the first answer
    assert [line["in_flight"] for line in alone] == [1, 1, 1, 1]
    assert server.peak > 1


async def test_a_terminal_is_told_that_nothing_has_answered_yet(serve, monkeypatch):
    monkeypatch.setattr("ragpipe.judge.call_records._NOTICE_AFTER_S", 0.1)
    told = []
    with pytest.raises(ProviderUnusable):
        await ask(settings(serve("hang").url, timeout_s=0.3), tell=told.append)
    assert len(told) == 3  # after 0.1, 0.2 and 0.4 s of 0.6
    assert "no answer yet from openai/test-model-2024-07-18 at http://127.0.0.1:" in told[0]
    assert told[0].endswith("after 0 s: try 1 of 3")
    assert told[2].endswith("try 2 of 3; the one before: no whole answer within judge.timeout_s=0.3 s")


OUTAGES = [("503", 16), ("reset", 1), ("502_html", 2)]
OUTAGES += [(fault, width) for fault in ("503", "reset", "502_html") for width in (1, 2, 16) if (fault, width) not in OUTAGES]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("fault", "width"), first_rows(OUTAGES, keep=3))
async def test_an_outage_costs_no_call_and_few_probes(serve, quick, fault, width):
    server = serve(f"{fault}:from_s=0.2,for_s=0.7", latency_ms=10)
    told = []
    calls = await ask(
        settings(server.url, concurrency=width, retries=5), *(question(f"a {i}") for i in range(60 * width)),
        tell=told.append,
    )  # fmt: skip
    assert {c.status for c in calls} == {"ok"}
    assert answered_once(server)
    failed = sum(line["status"] != 200 for line in server.log)
    assert failed <= 5 + (width - 1) + 5  # what began it, what was under way, and the probes
    assert server.peak <= width
    assert re.search(r"no answer for \d+ s, the last: .*; next probe in \d+ s, the run ends after 600 s of it", told[0]), told
    assert "answering again after 1 s" in told[-1]


async def test_one_question_that_the_provider_cannot_take_is_no_outage(serve, quick):
    """Probes go round: another question is answered, and only the odd one fails."""
    server = serve("500:match=the odd one")
    texts = [*(f"a {i}" for i in range(5)), "the odd one", *(f"b {i}" for i in range(5))]
    calls = await ask(settings(server.url, concurrency=1, retries=5), *(question(text) for text in texts))
    assert [c.status for c in calls] == [*["ok"] * 5, "server_error", *["ok"] * 5]
    assert server.tries == 10 + 6


async def test_questions_that_alone_are_left_and_fail_are_no_outage(serve, quick):
    """All others are answered, so nothing else can show whether the server answers: after `outage_s` the failures are their own."""
    server, told = serve("500:match=odd"), []
    texts = [*(f"a {i}" for i in range(5)), "odd 1", "odd 2", "odd 3"]
    found = settings(server.url, concurrency=4, retries=2, outage_s=0.5)
    calls = await ask(found, *(question(text) for text in texts), tell=told.append)
    assert [c.status for c in calls] == [*["ok"] * 5, *["server_error"] * 3]
    assert told[-1].endswith("; the 3 left to ask are given up")
    assert server.tries < 40


async def test_an_outage_that_does_not_end_ends_the_run(serve, quick):
    server = serve("500:after=3")
    start = time.monotonic()
    with pytest.raises(ProviderUnusable, match=r"no answer for 1 s \(judge\.outage_s=0\.8\), the last: status 500") as caught:
        await ask(settings(server.url, concurrency=4, outage_s=0.8), *(question(f"a {i}") for i in range(20)))
    assert caught.value.kind == "unreachable"
    assert time.monotonic() - start >= 0.8
    assert server.tries < 20


async def test_what_a_503_asks_to_wait_is_waited_for_in_an_outage(serve, quick):
    server = serve("503:after=1,first=7,retry_after=0.5", latency_ms=5)
    calls = await ask(settings(server.url, concurrency=8), *(question(f"a {i}") for i in range(20)))
    assert {c.status for c in calls} == {"ok"}
    refused = max(line["done"] for line in server.log if line["status"] == 503)
    later = [line["arrived"] for line in server.log if line["arrived"] > refused + 0.1]  # others were on their way
    assert min(later) >= refused + 0.49


async def test_a_rate_limit_is_no_outage(serve, quick):
    told = []
    server = serve("429_no_header:after=1,first=10")
    await ask(settings(server.url, concurrency=8, retries=9), *(question(f"a {i}") for i in range(12)), tell=told.append)
    assert told == []


async def test_stopping_ends_a_pause_at_once(serve, monkeypatch):
    monkeypatch.setattr("ragpipe.judge.limits._FIRST", 3600.0)
    server = serve("500:after=1")
    live = LiveTransport(settings(server.url, concurrency=4), run_id="r")
    await live.ask(question("first"), nobody)
    tasks = [asyncio.create_task(live.ask(question(f"a {i}"), nobody)) for i in range(8)]
    await asyncio.sleep(0.5)
    live.stop(Interrupted("interrupted"))
    found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), HANGS_AFTER_S)
    assert {type(f) for f in found} == {Interrupted}
    await live.close()


async def test_a_cancelled_probe_leaves_the_turn_to_another(quick):
    questions = Slots(4)
    outage = OutageGate(600, questions, lambda _: None)
    for i in range(5):
        outage.record_failure(AttemptError("server_error", "ill"), f"q{i}", probe=False)
    assert questions.most == 5

    async def acquire() -> tuple[bool, ExitStack]:
        with ExitStack() as taken:
            return await outage.acquire(taken), taken.pop_all()

    waiting, first, second = (asyncio.create_task(acquire()) for _ in range(3))
    await asyncio.sleep(0)
    waiting.cancel()
    is_probe, taken = await first
    assert is_probe
    assert not second.done()
    taken.close()  # before it says how its try went, it is given up
    is_probe, taken = await asyncio.wait_for(second, HANGS_AFTER_S)
    assert is_probe
    third, fourth = (asyncio.create_task(acquire()) for _ in range(2))
    await asyncio.sleep(0)
    outage.record_answer()
    taken.close()
    assert (await third)[0] is False
    assert (await asyncio.wait_for(fourth, HANGS_AFTER_S))[0] is False, "the third holds no turn, since the outage is over"
    assert questions.most == 4


async def test_refusals_of_one_step_in_the_same_words_end_the_run(serve, monkeypatch):
    monkeypatch.setattr("ragpipe.judge.settings._BREAKER", 3)
    server = serve("400:match=odd step")
    found = settings(server.url, concurrency=1)
    mixed = [question(f"{'odd step' if i % 2 else 'a'} {i}", Grade15 if i % 2 else Claims) for i in range(20)]
    asked = [replace(q, asker=f"case-{i} / {'odd' if i % 2 else 'even'} / rate") for i, q in enumerate(mixed)]
    with pytest.raises(ProviderUnusable, match="4 calls of odd / rate in a row were refused in the same words") as caught:
        await ask(found, *asked)
    assert caught.value.kind == "bad_request"
    assert server.tries == 8


def test_the_second_iteration_pays_for_nothing_that_the_first_has_learnt(serve, tmp_path, capfd):
    server = serve("no_json_schema")
    data = write_cases(tmp_path / "cases.jsonl", 4)
    words = arguments(data, tmp_path / "out", server.url, "iterations=2", concurrency=2, metrics="correctness")
    assert main(words) == 0
    assert server.tries == 1 + 4 + 4  # json_schema was refused once, in the first iteration
    assert capfd.readouterr().err.count("json_schema was refused for correctness / grade") == 1


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("client", ["direct", "litellm"])
async def test_a_header_that_says_that_nothing_is_left(serve, client):
    """A server of one's own with headers like OpenRouter's, five requests per second: until their reset nothing is sent, and
    the run says why it waits. Other limits: over many seeds on a virtual clock (tests/unit/judge/test_limit_simulations.py)."""
    server = serve(rps=5, latency_ms=300, jitter=0.3)
    live, reasons = LiveTransport(settings(server.url, client=client, concurrency=8, retries=8), run_id="r"), set()

    async def one(n):
        async with live.slot():
            return await live.ask(question(f"a {n}"), nobody)

    async def watch():
        while True:
            if (hold := live.attempts.hold()) is not None:
                reasons.add(hold[1])
            await asyncio.sleep(0.05)

    watcher = asyncio.create_task(watch())
    try:
        calls = await asyncio.gather(*(one(n) for n in range(60)))
    finally:
        watcher.cancel()
        await live.close()
    assert {call.status for call in calls} == {"ok"}
    assert sum(line["status"] == 200 for line in server.log) == 60
    arrived = [line["arrived"] for line in server.log]
    assert max(arrived) - min(arrived) < 1.5 * 11, "without litellm's import"
    assert "limit used up" in reasons
