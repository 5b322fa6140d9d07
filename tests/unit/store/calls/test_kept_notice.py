"""The user is told once, by each store, where what was paid for and could not be stored is kept."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from ragpipe.core.digest import sha256
from ragpipe.core.errors import OutputError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.call_store import CallStore
from ragpipe.store.calls.last_resort import LastResortFile

KEYS = [sha256(f"key {number}") for number in range(2)]
PAID = Payment("openai/m", "2026-11-22T08:00:00.000+00:00", 900, 60, 0, 0, 0, 0.25)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return []


def full_store(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> CallStore:
    """A store whose disk is full."""

    def refuse(*_: object) -> None:
        raise OutputError("the disk is full")

    store = CallStore(tmp_path / "calls.sqlite", run_id="mine", say=said.append)
    monkeypatch.setattr(store._worker.table, "write", refuse)
    return store


def expected_notice(tmp_path: Path) -> str:
    (kept,) = tmp_path.glob("ragpipe-replies-*.jsonl")
    command = f"task=store action=import from={kept}"
    return f"what was paid for and could not be stored is kept in {kept}: `{command}` takes it in"


async def test_replies_that_cannot_be_stored_are_told_of_once(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = full_store(tmp_path, said, monkeypatch)
    for key in KEYS:
        with pytest.raises(OutputError, match="the disk is full"):
            await store.put(Call(key, "", "judge", "ok", text="a reply"))
        assert said == [expected_notice(tmp_path)]
    store.close()
    assert said == [expected_notice(tmp_path)]


def test_payments_that_cannot_be_stored_are_told_of_at_the_end(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event loop runs any more when the file is made."""
    store = full_store(tmp_path, said, monkeypatch)

    async def pay() -> None:
        await store.get_or_claim(KEYS[0])
        store.record_payment(KEYS[0], 1, PAID)

    asyncio.run(pay())
    with pytest.raises(OutputError, match="the disk is full"):
        store.close()
    assert said == [expected_notice(tmp_path)]


async def test_a_store_that_loses_nothing_says_nothing(tmp_path: Path, said: list[str]) -> None:
    with CallStore(tmp_path / "calls.sqlite", run_id="mine", say=said.append) as store:
        await store.put(Call(KEYS[0], "", "judge", "ok", text="a reply"))
    assert said == []


def test_the_host_is_named_where_there_may_be_several(said: list[str]) -> None:
    file = LastResortFile("store.url=postgresql://db/x", host="node-7")
    assert file.take_notice() is None
    file.add_call(Call(KEYS[0], "", "judge", "ok", text="a reply"))
    command = f"task=store action=import from={file.file} store.url=postgresql://db/x"
    place = f"{file.file} on the host node-7"
    assert (
        file.take_notice() == f"what was paid for and could not be stored is kept in {place}: `{command}` takes it in"
    )
    assert file.take_notice() is None
