"""The ledger: what was paid is never forgotten, whatever becomes of the calls."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ragpipe.core.digest import sha256
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.call_store import CallStore, read_calls
from ragpipe.store.calls.maintenance import Choice, prune
from ragpipe.store.calls.spend import paid_by
from ragpipe.store.calls.store_requests import Freshness


def call(name: str, status: str = "ok") -> Call:
    return Call(sha256(name), "", "judge", status, text="reply", attempts=2, answers=1, fields={"iteration": sha256(1)})


def payment(usd: float | None = 0.5, tokens: int | None = 10) -> Payment:
    return Payment("openai/m", "2026-01-02T03:04:05.678+00:00", tokens, tokens, 1 if tokens else None, None, None, usd)


def ask(
    path: Path,
    run_id: str,
    *asked: tuple[Call, list[Payment]],
    freshness: Freshness = Freshness.ANY,
    iteration: int = 1,
) -> None:
    """Each call is asked and put after its payments."""

    async def work(store: CallStore) -> None:
        for one, payments in asked:
            assert await store.get_or_claim(one.key, freshness=freshness) is None
            for paid in payments:
                store.record_payment(one.key, iteration, paid)
            await store.put(one)

    with CallStore(path, run_id=run_id) as store:
        asyncio.run(work(store))


def test_every_answered_try_is_on_the_bill(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    ask(
        path, "one", (call("a", "refused"), [payment()]), (call("b", "empty_reply"), [payment(), payment(None)]),
        (call("c"), [payment(None, None), payment()]), (call("d", "rate_limit"), []),
    )  # fmt: skip
    assert paid_by(path, "one", 1).as_json() == {
        "calls": 3, "replies": 5, "tokens_in": 40, "tokens_out": 40, "tokens_cached": 4, "tokens_reasoning": 0, "tokens_written": 0, "usd": None,
        "usd_known": 1.5, "unpriced": 2, "without_usage": 1,
    }  # fmt: skip
    ask(
        path, "one", (call("a"), [payment(0.25)]), (call("b"), [payment(0.25)]), freshness=Freshness.NO_FAILURES
    )  # they were failures
    after = paid_by(path, "one", 1)
    assert (after.calls, after.replies, after.usd_known) == (3, 7, 2.0)
    assert paid_by(path, "two", 1).replies == paid_by(path, "one", 2).replies == 0
    assert paid_by(tmp_path / "missing", "one", 1).usd == 0


def test_money_is_added_exactly(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    ask(path, "one", *((call(str(n)), [payment(0.1)]) for n in range(10)))
    assert paid_by(path, "one", 1).usd == 1.0  # the sum of ten floats one by one is 0.9999999999999999


def test_a_reply_that_comes_too_late_is_paid(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"

    async def work(slow: CallStore, fast: CallStore) -> None:
        one = call("a")
        slow.record_payment(one.key, 1, payment(1.0))
        await slow.put(one)
        fast.record_payment(one.key, 1, payment(4.0))
        assert (await fast.put(one)).run_id == "slow"  # it holds no claim: the first reply stands

    with CallStore(path, run_id="slow") as slow, CallStore(path, run_id="fast") as fast:
        asyncio.run(work(slow, fast))
    assert paid_by(path, "fast", 1).usd == 4.0
    assert paid_by(path, "slow", 1).usd == 1.0


def test_what_was_paid_for_a_call_that_never_came_back_is_kept(tmp_path: Path) -> None:
    """Its task was cancelled between two tries: nothing is put."""
    path = tmp_path / "calls.sqlite"
    with CallStore(path, run_id="one") as store:
        store.record_payment(sha256("a"), 3, payment())
    assert paid_by(path, "one", 3).usd == 0.5


def test_prune_leaves_the_ledger_alone(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    ask(path, "one", (call("a"), [payment(), payment()]), (call("b", "refused"), [payment()]))
    before = paid_by(path, "one", 1)
    found = prune(path, Choice(run_id="one"))
    assert (found["calls"], found["paid"]["replies"], found["paid"]["usd"]) == (2, 3, 1.5)
    assert read_calls(path, [sha256("a"), sha256("b")], run_id="one") == {}
    assert paid_by(path, "one", 1) == before


@pytest.mark.parametrize("column", ["usd", "tokens_in", "run", "model", "mark", "at", "sum"])
@pytest.mark.parametrize("value", ["'x'", "7.25", "x'00'", "NULL"])
def test_a_damaged_payment_is_in_no_sum_and_counted(tmp_path: Path, column: str, value: str) -> None:
    path = tmp_path / "calls.sqlite"
    ask(path, "one", (call("a"), [payment()]), (call("b"), [payment()]))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"UPDATE payments SET {column} = {value} WHERE rowid = 1")
    found = paid_by(path, "one", 1)
    assert (found.replies, found.usd) == (1, 0.5)
    assert found.damaged == (column != "run")  # whose it was is not known


@pytest.mark.parametrize("gone", [False, True])
def test_a_payment_after_the_store_was_closed_is_kept_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    import tempfile

    from ragpipe.store.calls.transfer import import_calls

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    path = tmp_path / "calls.sqlite"
    store = CallStore(path, run_id="one")
    store.close()
    store.record_payment(sha256("a"), 1, payment())
    (file,) = (tmp_path / "tmp").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    for _ in range(2):  # once is enough
        assert import_calls(path, file) == (0, 0)
        assert paid_by(path, "one", 1).usd == 0.5
