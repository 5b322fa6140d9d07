"""Requests to a store whose waits end: at a deadline for other processes, and when the store's thread ends."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from ragpipe.core.digest import sha256
from ragpipe.core.errors import JudgeError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.call_store import CallStore
from ragpipe.store.calls.ledger_rows import payment_entry
from ragpipe.store.calls.store_requests import GetOrClaimRequest, Lookup, PaymentRequest, ReleaseRequest

HELD, STORED, MINE = sha256("held"), sha256("stored"), sha256("mine")
OVER = JudgeError("run_deadline", "no time is left")


def call(key: str) -> Call:
    return Call(key, "", "judge", "ok", text="a reply")


async def test_at_the_deadline_no_other_process_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    with CallStore(path, run_id="other") as other, CallStore(path, run_id="mine") as mine:
        assert await other.get_or_claim(HELD) is None
        await other.put(call(STORED))
        waits = asyncio.create_task(mine.get_or_claim(HELD))
        await asyncio.sleep(0.1)
        assert not waits.done()
        mine.end_waiting(OVER)
        for wait in (waits, mine.get_or_claim(HELD)):  # one that waits already, and a later one
            with pytest.raises(JudgeError, match="no time is left") as raised:
                await asyncio.wait_for(wait, 10)
            assert raised.value.kind == "run_deadline"
        assert (await mine.get_or_claim(STORED)).text == "a reply"
        assert not mine._hurry.is_set(), "a database that went away is still waited for"
        await other.put(call(HELD))
        assert (await mine.get_or_claim(HELD)).text == "a reply"


async def test_at_the_deadline_a_call_in_flight_of_the_same_store_is_waited_for(tmp_path: Path) -> None:
    with CallStore(tmp_path / "calls.sqlite", run_id="mine") as store:
        assert await store.get_or_claim(MINE) is None
        before = asyncio.create_task(store.get_or_claim(MINE))
        await asyncio.sleep(0.1)
        store.end_waiting(OVER)
        after = asyncio.create_task(store.get_or_claim(MINE))
        await asyncio.sleep(0.1)
        assert not before.done()
        assert not after.done()
        await store.put(call(MINE))
        assert [(await wait).text for wait in (before, after)] == ["a reply"] * 2


async def test_a_stop_after_the_deadline_ends_every_wait(tmp_path: Path) -> None:
    with CallStore(tmp_path / "calls.sqlite", run_id="mine") as store:
        assert await store.get_or_claim(MINE) is None
        store.end_waiting(OVER)
        wait = asyncio.create_task(store.get_or_claim(MINE))
        await asyncio.sleep(0.1)
        store.abort(JudgeError("timeout", "the run was stopped"))
        with pytest.raises(JudgeError, match="was stopped"):
            await asyncio.wait_for(wait, 10)


async def _ended(store: CallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the thread of a store by a fault."""

    def fault() -> None:
        raise KeyError("whatever ends the thread")

    monkeypatch.setattr(store._worker.table, "sync", fault)
    store._worker._next_sync = 0.0
    store._worker.send(ReleaseRequest(MINE))
    await asyncio.to_thread(store._worker.join, 10)
    assert not store._worker.is_alive()


async def test_a_request_in_the_moment_of_the_end_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was made before the thread ended and is sent after it is answered all the same."""
    store = CallStore(tmp_path / "calls.sqlite", run_id="mine")
    await _ended(store, monkeypatch)
    request = GetOrClaimRequest(Lookup(HELD), future=asyncio.get_running_loop().create_future())
    store._worker.send(request)
    with pytest.raises(KeyError, match="whatever ends the thread"):
        await asyncio.wait_for(request.future, 10)


async def test_a_payment_in_the_moment_of_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = CallStore(tmp_path / "calls.sqlite", run_id="mine")
    await _ended(store, monkeypatch)
    paid = Payment("openai/m", "2026-11-22T08:00:00.000+00:00", 900, 60, 0, 0, 0, 0.25)
    store._worker.send(PaymentRequest(payment_entry(MINE, "mine", 1, paid)))
    (kept,) = tmp_path.glob("ragpipe-replies-*.jsonl")
    assert '"usd": 0.25' in kept.read_text()
