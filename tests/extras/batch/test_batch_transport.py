"""Questions by batch: the same replies as live, whatever order, gaps and errors the results come in; never a batch twice."""

import asyncio
import json
import time
from unittest.mock import AsyncMock

import pytest

from ragpipe.core.call import Payment
from ragpipe.core.errors import Incomplete, Interrupted, ProviderUnusable
from ragpipe.extras.batch import job
from ragpipe.extras.batch import transport as batch_transport
from ragpipe.extras.batch.api import OpenAIBatches
from ragpipe.extras.batch.settings import BatchSettings
from ragpipe.extras.batch.transport import BatchTransport
from ragpipe.judge.settings import PriceSettings
from tests.extras.batch.batch_server import DOUBLED, EXPIRED, MISSING, OK
from tests.support.asking import SENTINEL, ask, nobody, question, questions, settings

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

PARAMS = ["openai", pytest.param("anthropic", marks=pytest.mark.slow)]  # litellm takes seconds to import
SHAPES = {"openai": "openai/test-model-2024-07-18", "anthropic": "anthropic/claude-3-5-haiku-20241022"}
PRICE = PriceSettings(input=2.0, output=10.0)


def transport(server, folder, *, shape="openai", **keys):
    batch = {name: keys.pop(name) for name in list(keys) if name in BatchSettings.model_fields}
    tell = keys.pop("tell", nobody)
    judge = settings(server.url, model=SHAPES[shape], **keys)
    return BatchTransport(judge, BatchSettings(**batch), folder, run_id="test-run", tell=tell)


def run(sender, *questions, paid=nobody):
    """Ask all at once as a session does, and close."""

    async def one(item):
        async with sender.slot():
            return await sender.ask(item, paid)

    async def everything():
        try:
            return await asyncio.gather(*map(one, questions))
        finally:
            await sender.close()

    return asyncio.run(everything())


async def made(server):
    """Wait for the first batch."""
    while not server.batches.made:  # noqa: ASYNC110  the server lives in another thread
        await asyncio.sleep(0.01)


def statuses(calls):
    return [call.status for call in calls]


def test_a_batch_gives_the_replies_and_sends_the_bodies_of_live_questions(serve, tmp_path):
    server, asked = serve(), questions(12)
    server.keep_bodies = True
    live = asyncio.run(ask(settings(server.url), *asked))
    by_batch = run(transport(server, tmp_path), *asked)
    assert [call.text for call in by_batch] == [call.text for call in live]
    bodies = dict(server.batches.made[0].lines)
    assert [call.key for call in by_batch] == [q.key for q in asked]
    assert {q.key for q in asked} == bodies.keys()
    assert sorted(map(json.dumps, bodies.values())) == sorted(map(json.dumps, server.bodies.values()))
    assert (len(server.log), len(server.batches.made)) == (12, 1)


@pytest.mark.parametrize("shape", PARAMS)
def test_expired_missing_and_failed_lines_are_asked_again_and_no_other(serve, tmp_path, shape):
    server, asked = serve(), questions(6)
    fates = [OK, EXPIRED, MISSING, "500", OK, OK]
    server.batches.fate = lambda batch, line: fates[line] if batch == 0 else OK
    calls = run(transport(server, tmp_path, shape=shape), *asked)
    first, second = server.batches.made
    assert [key for key, _ in first.lines] == [q.key for q in asked]
    assert {key for key, _ in second.lines} == {asked[i].key for i in (1, 2, 3)}
    assert [(call.status, call.attempts) for call in calls] == [("ok", tries) for tries in (1, 2, 2, 2, 1, 1)]


@pytest.mark.parametrize(("fates", "expected"), [
    ([[OK, DOUBLED, OK]], ["ok", "ok", "ok"]),  # of two lines with one key the reply counts
    ([[OK, "400", OK]], ["ok", "bad_request", "ok"]),  # a refused line is a permanent failure
    ([[OK, EXPIRED], [EXPIRED], [EXPIRED]], ["ok", "server_error"]),  # no reply at all fails: once, and two retries
])  # fmt: skip
def test_what_becomes_of_lines(serve, tmp_path, fates, expected):
    server = serve()
    server.batches.fate = lambda batch, line: fates[batch][line]
    assert statuses(run(transport(server, tmp_path, retries=2), *questions(len(expected)))) == expected
    assert len(server.batches.made) == len(fates)


def test_a_refused_schema_is_asked_in_another_form_in_the_next_round(serve, tmp_path):
    server, notices = serve(), list[str]()
    refusal = "400 Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
    server.batches.fate = lambda batch, line: refusal if batch == 0 else OK
    calls = run(transport(server, tmp_path, tell=notices.append), *questions(2))
    assert [(call.status, call.output_mode) for call in calls] == [("ok", "json_object")] * 2
    assert sum("json_schema was refused" in notice for notice in notices) == 1


@pytest.mark.parametrize("shape", PARAMS)
def test_an_error_after_the_batch_was_made_makes_no_second_one(serve, tmp_path, shape):
    server = serve()
    server.batches.after_create = [500]
    assert statuses(run(transport(server, tmp_path, shape=shape), *questions(4))) == ["ok"] * 4
    assert len(server.batches.made) == 1


def test_an_error_before_the_batch_was_made_is_followed_by_another_try(serve, tmp_path):
    server = serve()
    server.batches.before_create = [503, 429]
    run(transport(server, tmp_path), *questions(2))
    assert len(server.batches.made) == 1
    assert (server.batches.count("POST", "/batches"), server.batches.count("POST", "/files")) == (3, 1)


def test_the_list_is_read_page_by_page_back_to_the_intent(serve, tmp_path):
    server = serve()
    server.batches.page = 2
    for number in range(5):
        run(transport(server, tmp_path), question(f"another run's {number}"))
    for batch in server.batches.made[:2]:
        batch.created -= 86_400
    server.batches.log.clear()
    api = OpenAIBatches(settings(server.url), SENTINEL)

    async def listed(since):
        try:
            return await api.batches_since(since)
        finally:
            await api.close()

    batches = asyncio.run(listed(time.time() - 60))
    assert [status.id for status in batches] == ["batch_0005", "batch_0004", "batch_0003"]
    assert [status.token for status in batches] == [b.metadata["ragpipe"] for b in server.batches.made[:1:-1]]
    assert server.batches.count("GET", "/batches") == 2


def test_a_round_is_divided_by_the_number_of_its_questions(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(batch_transport, "MAX_REQUESTS", 3)
    server = serve()
    assert statuses(run(transport(server, tmp_path), *questions(8))) == ["ok"] * 8
    assert sorted(len(batch.lines) for batch in server.batches.made) == [2, 3, 3]  # they are sent side by side


def test_a_round_is_divided_by_its_bytes(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(batch_transport, "MAX_BYTES", 10_000)
    server = serve()
    assert statuses(run(transport(server, tmp_path), *(question("word " * 500 + str(i)) for i in range(8)))) == ["ok"] * 8
    made = [batch.lines for batch in server.batches.made]
    assert len(made) > 1
    assert sum(map(len, made)) == 8
    assert all(len(json.dumps([body for _, body in lines])) < 10_000 for lines in made)


def test_a_batch_past_its_end_is_cancelled_and_collected(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "GRACE_S", 0.1)
    server = serve()
    server.batches.delay_s, server.batches.expires_in_s = 3600, -5
    assert statuses(run(transport(server, tmp_path), *questions(3))) == ["ok"] * 3
    assert (server.batches.count("POST", "/cancel"), len(server.batches.made)) == (1, 1)


def test_a_refused_input_ends_the_run_and_leaves_nothing_to_pick_up(serve, tmp_path):
    server = serve()
    server.batches.refuse = "This model has no batches."
    with pytest.raises(ProviderUnusable, match=r"the batch was refused: invalid: This model has no batches\."):
        run(transport(server, tmp_path), *questions(2))
    assert list(tmp_path.iterdir()) == []


def test_a_server_without_a_batch_api_is_named(serve, tmp_path):
    server = serve()
    server.batches.handle = AsyncMock(return_value=None)  # type: ignore[method-assign]
    with pytest.raises(ProviderUnusable, match="no Batch API at this address"):
        run(transport(server, tmp_path), *questions(1))


def test_replies_are_paid_at_the_batch_price(serve, tmp_path):
    payments: list[Payment] = []
    server = serve()
    calls = run(transport(server, tmp_path, prices=PRICE), *questions(3), paid=lambda payment, **_: payments.append(payment))
    usages = [server.batches.reply(body)["usage"] for _, body in server.batches.made[0].lines]
    expected = [(u["prompt_tokens"] * 2.0 + u["completion_tokens"] * 10.0) / 1e6 for u in usages]
    for paid in ([payment.usd or 0 for payment in payments], [call.paid_usd or 0 for call in calls]):
        assert sorted(paid) == pytest.approx(sorted(expected))


@pytest.mark.slow
def test_nothing_is_sent_while_texts_are_embedded(serve, tmp_path):
    server, free_at = serve(), time.monotonic() + 0.4
    sender = transport(server, tmp_path)
    sender.is_busy = lambda: time.monotonic() < free_at
    run(sender, *questions(2))
    assert server.batches.made[0].created > time.time() - 5
    assert time.monotonic() >= free_at
    assert len(server.batches.made) == 1


@pytest.mark.slow
def test_a_stopped_start_ends_at_once_and_the_next_one_picks_its_batch_up(serve, tmp_path):
    server, asked, notices = serve(), questions(5), list[str]()
    server.batches.delay_s = 3600.0

    async def stopped():
        sender = transport(server, tmp_path)
        tasks = [asyncio.create_task(sender.ask(q, nobody)) for q in asked]
        await made(server)
        sender.stop(Interrupted("by a signal"))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, Interrupted) for result in results)
        await sender.close()

    asyncio.run(stopped())
    server.batches.made[0].ends = 0
    assert statuses(run(transport(server, tmp_path, tell=notices.append), *asked[:3])) == ["ok"] * 3
    assert statuses(run(transport(server, tmp_path), *asked[3:])) == ["ok"] * 2  # by a later start: the replies are on disk
    assert len(server.batches.made) == 1
    assert any("is picked up" in notice for notice in notices)
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in folder.iterdir()] == ["batch.json"]


@pytest.mark.slow
def test_two_transports_over_one_folder_share_a_batch(serve, tmp_path):
    server, asked = serve(), questions(4)
    server.batches.delay_s = 0.5

    async def both():
        first, second = transport(server, tmp_path), transport(server, tmp_path)
        tasks = [asyncio.create_task(first.ask(q, nobody)) for q in asked[:2]]
        await made(server)
        other = asyncio.create_task(second.ask(asked[0], nobody))
        await asyncio.gather(*tasks)
        await first.close()
        assert (await other).status == "ok"
        await second.close()

    asyncio.run(both())
    assert len(server.batches.made) == 1


def test_the_key_is_in_no_file(serve, tmp_path):
    server, asked = serve(), questions(2)
    server.batches.fate = lambda batch, line: f"400 the key {SENTINEL} is wrong" if line else OK
    server.batches.delay_s = 0.2

    async def killed_before_delivery():
        sender = transport(server, tmp_path)
        tasks = [asyncio.create_task(sender.ask(q, nobody)) for q in asked]
        calls = await asyncio.gather(*tasks)  # without a slot nothing is noted as delivered
        assert SENTINEL not in "".join(call.message or "" for call in calls)
        await sender.close()

    asyncio.run(killed_before_delivery())
    kept = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"body", "batch.json", "lines.json", "results-1", "results-2"} <= kept.keys()
    assert not [name for name, data in kept.items() if SENTINEL.encode() in data]


def test_max_calls_counts_questions_by_batch(serve, tmp_path):
    with pytest.raises(Incomplete, match=r"judge\.max_calls=2 is used up"):
        run(transport(serve(), tmp_path, max_calls=2), *questions(3))
