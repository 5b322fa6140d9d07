"""What a run paid never shrinks: failures that are asked again, replies that came too late."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ragpipe.digest import sha256
from ragpipe.schema.call import Call
from ragpipe.store.calls import CallStore
from ragpipe.store.paid import paid_by


def call(key: str, status: str = "ok", usd: float | None = 0.5, tokens: int | None = 10, iteration: int = 1) -> Call:
    return Call(
        sha256(key), "payload", "judge", status, text="reply", tokens_in=tokens, tokens_out=tokens, cost_usd=usd,
        attempts=2, fields={"iteration": sha256(iteration)},
    )  # fmt: skip


def put(path: Path, run_id: str, *calls: Call, fresh: bool = False) -> None:
    async def work(store: CallStore) -> None:
        for one in calls:
            assert await store.take(one.key, fresh=fresh) is None
            await store.put(one)

    with CallStore(path, run_id=run_id) as store:
        asyncio.run(work(store))


def test_a_retried_failure_stays_on_the_bill(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    put(path, "one", call("a", "refused"), call("b", "refused", usd=None, tokens=None), call("c"))
    before = paid_by(path, "one", 1)
    assert (before["calls"], before["attempts"], before["tokens_in"], before["usd"]) == (3, 6, 20, 1.0)
    assert "replaced" not in before
    put(path, "one", call("a", "refused", usd=0.25), call("b"), fresh=True)
    put(path, "two", call("a", usd=2.0))  # another run's reply takes the failure's place: it was paid all the same
    after = paid_by(path, "one", 1)
    # a: .5 and .25, both gone; b: unknown (gone), then .5; c: .5
    assert (after["calls"], after["attempts"], after["tokens_in"], after["usd"]) == (5, 10, 40, 1.75)
    assert (after["calls_without_price"], after["calls_without_usage"]) == (1, 1)
    assert after["replaced"] == {
        "calls": 3, "attempts": 6, "tokens_in": 20, "tokens_out": 20, "tokens_cached": 0, "usd": 0.75,
        "calls_without_price": 1, "calls_without_usage": 1,
    }  # fmt: skip
    assert paid_by(path, "two", 1)["usd"] == 2.0
    assert paid_by(path, "one", 2)["calls"] == 0


def test_a_reply_that_comes_too_late_is_paid(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"

    async def work(slow: CallStore, fast: CallStore) -> None:
        await slow.put(call("a", usd=1.0))
        assert (await fast.put(call("a", usd=4.0))).cost_usd == 1.0  # it holds no claim: the first reply stands

    with CallStore(path, run_id="slow") as slow, CallStore(path, run_id="fast") as fast:
        asyncio.run(work(slow, fast))
    assert paid_by(path, "fast", 1)["usd"] == 4.0
    assert paid_by(path, "slow", 1)["usd"] == 1.0
