"""Requests to a store whose waits end: at a deadline for other processes, and when the store's thread ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ragpipe.core.digest import sha256
from ragpipe.core.errors import JudgeError
from ragpipe.schema.call import Call
from ragpipe.store.calls.call_store import CallStore

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
