"""A budget over batches: what is held before a batch is sent, what its results cost, and what a start leaves to the next one.

The bill is the server's: the usage of all lines that its batches have answered.
"""

import asyncio
import random
from contextlib import suppress

import pytest

from ragpipe.core.call import Call
from ragpipe.core.errors import Interrupted, ProviderUnusable
from ragpipe.core.usage import Amount, Price, Tier
from ragpipe.extras.batch import transport as batch_transport
from ragpipe.extras.batch.settings import BatchSettings
from ragpipe.extras.batch.transport import BatchTransport
from ragpipe.judge.budget import Budget
from ragpipe.judge.settings import BudgetSettings, PriceSettings
from ragpipe.store.journal import HoldJournal
from ragpipe.testing.openai_faults import question_hash
from tests.extras.batch.batch_server import EXPIRED, MISSING, OK
from tests.support.asking import questions, settings

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

PRICE = PriceSettings(input=2.0, output=10.0)
RATES = Price("m", "test", (Tier(0, 2.0, 10.0, 2.0, 10.0, 2.0),))


class Account:
    """A run with a budget: its journal on disk, its batches, and what its ledger has."""

    def __init__(self, server, folder, batches, **limits):
        self.server, self.path, self.batches, self.limits = server, folder / "budget.jsonl", batches, limits
        self.ledger = Amount()

    def start(self, *asked, kill_after=None, once_made=False):
        """One start of the run, which may be ended after some seconds: with `once_made` those after it has made a batch."""
        journal = HoldJournal.open(self.path, self.ledger)
        budget = Budget(BudgetSettings(**self.limits), "judge", journal)
        judge = settings(self.server.url, max_tokens=64)
        sender = BatchTransport(judge, BatchSettings(prices=PRICE), self.batches, run_id="run", budget=budget)

        async def one(item):
            async with sender.slot():
                return await sender.ask(item, self.pay)

        async def everything():
            made = len(self.server.batches.made)
            tasks = [asyncio.create_task(one(item)) for item in asked]
            try:
                if kill_after is not None:
                    if once_made:
                        await self.batch_after(made)
                    await asyncio.wait(tasks, timeout=kill_after)
                    sender.stop(Interrupted("by a signal"))
                return await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                await sender.close()

        try:
            return budget, asyncio.run(everything())
        finally:
            journal.close()

    async def batch_after(self, made):
        """Wait until the server has more batches than so many."""
        for _ in range(2000):
            if len(self.server.batches.made) > made:
                return
            await asyncio.sleep(0.005)
        raise AssertionError("no batch was made")

    def pay(self, payment, *, alone=False):
        self.ledger += Amount(payment.usd or 0.0, (payment.tokens_in or 0) + (payment.tokens_out or 0), 1)

    def bill(self):
        """What the server's batches have answered."""
        total = Amount()
        for batch in self.server.batches.made:
            for (_, body), fate in zip(batch.lines, batch.fates, strict=True):
                if fate in (OK, MISSING):
                    usage = self.server._good(body, question_hash(body["messages"]))["usage"]
                    usd = RATES.usd(usage["prompt_tokens"], usage["completion_tokens"])
                    total += Amount(usd or 0.0, usage["total_tokens"], 1)
        return total


def states(calls):
    return [call.status if isinstance(call, Call) else type(call).__name__ for call in calls]


def test_a_batch_has_what_fits_in_the_order_of_the_questions(serve, tmp_path):
    account = Account(serve(), tmp_path, tmp_path / "batches", calls=5)
    budget, calls = account.start(*questions(12))
    assert states(calls) == ["ok"] * 5 + ["budget"] * 7
    assert (account.bill().calls, budget.spent.calls, budget.held.calls) == (5, 5, 0)
    assert len(account.server.batches.made) == 1


@pytest.mark.slow
def test_what_a_batch_leaves_of_its_holds_goes_to_the_next_round(serve, tmp_path):
    """A hold is a bound, several times the cost: the rounds come nearer to the budget, and never exceed it."""
    account = Account(serve(), tmp_path, tmp_path / "batches", tokens=3000)
    budget, calls = account.start(*questions(40))
    made = account.server.batches.made
    assert len(made) > 1
    assert len({key for batch in made for key, _ in batch.lines}) == sum(len(batch.lines) for batch in made)
    assert account.bill().tokens == budget.spent.tokens <= 3000
    assert states(calls).count("ok") == account.bill().calls


@pytest.mark.slow
def test_the_next_start_takes_the_holds_of_its_batch_over(serve, tmp_path):
    account = Account(serve(), tmp_path, tmp_path / "batches", calls=6)
    account.server.batches.delay_s = 0.3
    _, calls = account.start(*questions(6), kill_after=0.15, once_made=True)
    assert states(calls) == ["Interrupted"] * 6
    budget, calls = account.start(*questions(6))
    assert states(calls) == ["ok"] * 6
    assert (budget.spent.calls, budget.assumed.calls, account.bill().calls) == (6, 0, 6)
    assert len(account.server.batches.made) == 1


@pytest.mark.slow
def test_a_reply_that_another_run_has_sent_for_needs_room_too(serve, tmp_path):
    server, batches = serve(), tmp_path / "batches"
    server.batches.delay_s = 0.3
    sender = Account(server, tmp_path / "a", batches, calls=6)
    sender.start(*questions(6), kill_after=0.15, once_made=True)
    collector = Account(server, tmp_path / "b", batches, calls=2)
    budget, calls = collector.start(*questions(6))
    assert states(calls).count("ok") == budget.spent.calls == collector.ledger.calls == 2
    assert states(calls).count("budget") == 4
    _, calls = sender.start(*questions(6)[2:])  # the rest waits on disk for who can pay
    assert states(calls) == ["ok"] * 4
    assert len(server.batches.made) == 1


def test_a_refused_batch_costs_nothing(serve, tmp_path):
    account = Account(serve(), tmp_path, tmp_path / "batches", calls=3)
    account.server.batches.refuse = "no such model"
    budget, calls = account.start(*questions(3))
    assert all(isinstance(call, ProviderUnusable) for call in calls)
    assert (budget.spent, budget.held) == (Amount(), Amount())
    account.server.batches.refuse = ""
    budget, calls = account.start(*questions(3))
    assert (states(calls), budget.spent.calls) == (["ok"] * 3, 3)


def test_an_expired_line_costs_nothing_and_a_lost_one_its_hold(serve, tmp_path):
    account = Account(serve(), tmp_path, tmp_path / "batches", calls=9)
    account.server.batches.fate = lambda batch, line: (EXPIRED if line else MISSING) if batch == 0 else OK
    budget, calls = account.start(*questions(4))
    assert states(calls) == ["ok"] * 4
    assert (budget.spent.calls, budget.assumed.calls) == (5, 1)  # the lost one may have been billed


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 200), marks=pytest.mark.slow)])
def test_the_bill_never_exceeds_the_budget(serve, tmp_path, seeds, monkeypatch):
    """Random budgets, sizes of batches, fates of lines, and ends of a start in the middle."""
    server = serve()
    for seed in seeds:
        draw = random.Random(seed)
        limit: dict[str, float] = draw.choice(
            [{"calls": draw.randint(1, 12)}, {"tokens": draw.randint(400, 9000)}, {"usd": draw.uniform(0.001, 0.03)}]
        )
        folder = tmp_path / str(seed)
        server.batches.made.clear()
        server.batches.delay_s = draw.choice([0.0, 0.03])
        fates = random.Random(seed)
        server.batches.fate = lambda batch, line, fates=fates: fates.choice([OK, OK, OK, EXPIRED, MISSING, "500"])  # type: ignore[misc]
        account, asked = Account(server, folder, folder / "batches", **limit), questions(draw.randint(1, 16))
        for start in range(3):
            kill_after = draw.uniform(0.01, 0.12) if start < 2 else None
            monkeypatch.setattr(batch_transport, "MAX_REQUESTS", draw.choice([1, 4, 100]))
            with suppress(Interrupted):
                budget, _ = account.start(*asked, kill_after=kill_after)
            bill = account.bill()
            assert all(getattr(bill, part) <= most + 1e-9 for part, most in limit.items()), (seed, limit, bill)
            assert all(getattr(budget.spent, part) <= most + 1e-9 for part, most in limit.items()), (seed, limit)
            assert all(account.ledger.as_json()[part] <= budget.spent.as_json()[part] + 1e-9 for part in limit), seed
