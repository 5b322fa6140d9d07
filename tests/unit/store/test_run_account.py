"""The account of a run as a process uses it, over a real row: what waits holds back nothing that ends."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ragpipe.core.errors import DataError
from ragpipe.judging.limits.shared_limits import SharedLimits, open_limits
from ragpipe.schema.amount import Amount
from ragpipe.store.limits.account_row import HeldAmount
from tests.support.waiting import HANGS_AFTER_S

_TEN_CALLS = {"usd": None, "tokens": None, "calls": 10.0}
_MANY_TOKENS = {"usd": None, "tokens": 1e9, "calls": None}


@pytest.fixture
def limits(tmp_path: Path) -> Iterator[SharedLimits]:
    with open_limits(tmp_path / "calls.sqlite", print) as opened:
        yield opened


@pytest.mark.slow
def test_more_holds_than_one_transaction_takes_may_wait(limits: SharedLimits) -> None:
    """Two requests fit at a time, 300 ask: those that wait stand in front of what makes room for them."""
    account = limits.account("run")
    account.balance(Amount())

    async def request() -> None:
        hold = HeldAmount(Amount(calls=5))
        assert await account.hold(hold, _TEN_CALLS)
        await asyncio.sleep(0)
        account.settle(hold, Amount())

    async def run() -> set[float]:
        first = [HeldAmount(Amount(calls=5)) for _ in range(2)]
        for hold in first:
            assert await account.hold(hold, _TEN_CALLS)
        asking = [asyncio.create_task(request()) for _ in range(300)]
        due = set()
        for _ in range(20):
            await asyncio.sleep(0.02)
            due.add(account.due)
        for hold in first:
            account.settle(hold, Amount())
        await asyncio.wait_for(asyncio.gather(*asking), HANGS_AFTER_S)
        return due

    due = asyncio.run(run())
    account.close()
    assert due - {0.0, math.inf}, "they are tried again 20 times a second, and not all the time"


def test_what_ended_before_an_account_is_closed_has_cost_what_it_has_cost(limits: SharedLimits) -> None:
    account = limits.account("run")
    account.balance(Amount())
    holds = [HeldAmount(Amount(tokens=1000, calls=1)) for _ in range(600)]

    async def run() -> None:
        assert all(await asyncio.gather(*(account.hold(hold, _MANY_TOKENS) for hold in holds)))

    asyncio.run(run())
    for hold in holds:
        account.settle(hold, Amount(tokens=10, calls=1))
    account.close()
    again = limits.account("run")
    again.refresh()
    assert (again.figures.spent.tokens, again.figures.assumed.tokens) == (6000, 0)
    again.close()


def test_a_damaged_row_says_what_to_do_in_a_file_and_in_a_database(limits: SharedLimits, tmp_path: Path) -> None:
    limits.account("run").balance(Amount())
    with closing(sqlite3.connect(tmp_path / "limits.sqlite")) as db, db:
        assert db.execute("UPDATE limits SET state = '{' WHERE name = 'account run'").rowcount == 1
    with pytest.raises(DataError, match="the account of the run is damaged") as caught:
        limits.account("run").balance(Amount())
    assert caught.value.problems[0].fix == (
        "end all runs over this store, then remove its limits.sqlite files, or with store.url delete all rows of the table "
        "limits of its schema: what was paid is in its ledger"
    )
