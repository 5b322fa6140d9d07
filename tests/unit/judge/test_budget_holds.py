"""What a request holds, what becomes of it, and who is admitted: by hand."""

import asyncio
import json
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

import pytest

from ragpipe.cli.command_line import with_words
from ragpipe.core.errors import DataError, ProviderUnusable
from ragpipe.core.usage import Amount, Price, Tier
from ragpipe.judge.budget import Budget, BudgetUsedUp
from ragpipe.judge.call_records import AttemptTally, RequestCosts
from ragpipe.judge.client import AttemptError, Completion
from ragpipe.judge.pricing import rates_for
from ragpipe.judge.settings import BudgetSettings, JudgeSettings
from ragpipe.store.journal import HoldJournal
from tests.support.asking import question


class Memory:
    """A journal of nothing."""

    carried = assumed = Amount()
    named: ClassVar[dict[str, tuple[int, Amount]]] = {}

    def hold(self, amount: Amount, name: str = "") -> int:
        return 1

    def settle(self, number: int, cost: Amount) -> None: ...


def budget(**limits: float) -> Budget:
    return Budget(BudgetSettings(**limits), "judge", Memory())


def test_a_hold_is_bytes_and_what_a_format_adds_at_the_dearest_price() -> None:
    """64 a request, 16 a message, one per byte: `héllo` has 6 bytes, `字` 3. A schema of 20 characters brings 512 more."""
    settings = JudgeSettings(model="openai/gpt-4o-2024-08-06", max_tokens=100, prices={"input": 2.0, "output": 8.0, "reasoning": 10.0})
    costs = RequestCosts(budget(usd=1), settings, rates_for(settings), print)
    messages = [{"role": "system", "content": "héllo"}, {"role": "user", "content": "字"}]
    prompt = 64 + 2 * 16 + 6 + 3
    assert costs.bound({"messages": messages}) == Amount((prompt * 2 + 100 * 10) / 1e6, prompt + 100, 1)
    response_format = {"type": "json_schema", "json_schema": {"a": 1}}
    schema = len(json.dumps(response_format)) + 512
    assert costs.bound({"messages": messages, "response_format": response_format}).tokens == prompt + schema + 100
    assert costs.bound({"messages": messages, "response_format": {"type": "json_object"}}).tokens == prompt + 512 + 100


def test_the_dearest_price_is_that_of_any_tier_that_the_prompt_may_reach() -> None:
    rates = Price("m", "table", (Tier(0, 1.0, 4.0, 0.5, 4.0, 1.0), Tier(1000, 3.0, 2.0, 0.5, 2.0, 3.0)))
    assert rates.most_usd(1000, 10) == pytest.approx((1000 * 1 + 10 * 4) / 1e6)
    assert rates.most_usd(1001, 10) == pytest.approx((1001 * 3 + 10 * 4) / 1e6), "the output of the lower tier is dearer"
    assert Price("m", "none").most_usd(1, 1) is None


async def test_who_does_not_fit_waits_and_nobody_overtakes() -> None:
    account, order = budget(tokens=100), list[str]()

    async def ask(name: str, tokens: int, cost: int) -> None:
        hold = await account.reserve(Amount(tokens=tokens))
        order.append(name)
        await asyncio.sleep(0)
        account.settle(hold, Amount(tokens=cost))

    await asyncio.gather(ask("large", 80, 10), ask("larger", 90, 20), ask("small", 5, 5))
    assert order == ["large", "larger", "small"], "the small one would have fit beside the first"
    assert account.spent.tokens == 35
    with pytest.raises(BudgetUsedUp, match=r"35 tokens spent.* up to 66 tokens"):
        await account.reserve(Amount(tokens=66))
    with pytest.raises(BudgetUsedUp):
        await account.reserve(Amount(tokens=1))  # nothing more in this start
    assert account.used_up.raised == ("judge.budget.tokens=200",)


async def test_what_becomes_of_a_hold() -> None:
    account = budget(usd=1.0, tokens=1000, calls=4)
    holds = [await account.reserve(Amount(0.2, 100, 1)) for _ in range(4)]
    assert account.held == Amount(pytest.approx(0.8), 400, 4)  # type: ignore[arg-type]
    account.settle(holds[0], Amount(0.05, 30, 1))
    account.settle(holds[1], holds[1].amount)  # an answer without a usage
    account.settle(holds[2], None)
    account.settle(holds[3], Amount())
    assert (account.spent.usd, account.spent.tokens, account.spent.calls) == (pytest.approx(0.45), 230, 3)
    assert account.assumed == Amount(0.2, 100, 1)
    assert account.held == Amount()
    assert "spent $0.45 of $1, 230 tokens of 1,000 tokens, 3 calls of 4 calls" in account.line()


async def test_the_words_that_raise_a_budget_are_enough_for_the_next_call() -> None:
    account = budget(usd=0.01)
    with pytest.raises(BudgetUsedUp) as caught:
        await account.reserve(Amount(0.034567, 10, 1))
    assert caught.value.raised == ("judge.budget.usd=0.0346",)
    words = with_words(["+experiment=x", "judge.budget.usd=0.01"], caught.value.raised)
    assert words == ["+experiment=x", "judge.budget.usd=0.0346"]


ANSWERED = Completion("x", tokens_in=100, tokens_out=10)
HELD = 64 + 16 + 100 + 50  # of a message of 100 bytes, and a reply of 50 tokens at most


@pytest.mark.parametrize(("outcome", "answered", "spent", "assumed"), [
    (ANSWERED, True, 110, 0),
    (Completion("x"), True, HELD, 0),  # without a usage
    (AttemptError("empty_reply", "nothing"), True, 110, 0),  # answered all the same
    (AttemptError("rate_limit", "429", unbilled=True), False, 0, 0),
    (AttemptError("network", "refused", no_connection=True), False, 0, 0),
    (ProviderUnusable("401", "auth"), False, 0, 0),
    (AttemptError("server_error", "500"), False, HELD, HELD),
    (AttemptError("deadline", "late"), False, HELD, HELD),
    (AttemptError("network", "reset"), False, HELD, HELD),
    (asyncio.CancelledError(), False, HELD, HELD),
])  # fmt: skip
async def test_each_end_of_an_attempt_has_its_cost(outcome: Completion | BaseException, answered: bool, spent: int, assumed: int) -> None:
    settings = JudgeSettings(model="openai/gpt-4o-2024-08-06", max_tokens=50)
    costs = RequestCosts(budget(tokens=1000), settings, rates_for(settings), pytest.fail)
    body = {"messages": [{"role": "user", "content": "x" * 100}]}
    tally = AttemptTally(question=question(), paid=lambda _: None, body=body)

    async def send() -> Completion:
        tally.answers += answered
        tally.last_completion = outcome if isinstance(outcome, Completion) else ANSWERED
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    with suppress(AttemptError, ProviderUnusable, asyncio.CancelledError):
        await costs.send(await costs.budget.reserve(costs.bound(body)), tally, send)
    assert (costs.budget.spent.tokens, costs.budget.assumed.tokens) == (spent, assumed)
    assert costs.budget.held == Amount()


async def test_a_provider_that_counts_more_than_the_bytes_is_told_of_and_held_more_for() -> None:
    """200 of 180 tokens: later prompts hold 1.1 times as much more, 180 x 1.1 x 200 / 180 and one."""
    settings, told = JudgeSettings(model="openai/gpt-4o-2024-08-06", max_tokens=50), list[str]()
    costs = RequestCosts(budget(tokens=1000), settings, rates_for(settings), told.append)
    body = {"messages": [{"role": "user", "content": "x" * 100}]}

    async def send() -> Completion:
        return Completion("x", tokens_in=200, tokens_out=10)

    await costs.send(await costs.budget.reserve(costs.bound(body)), AttemptTally(question=question(), paid=lambda _: None, body=body), send)
    assert costs.bound(body).tokens == 220 + 1 + 50
    assert len(told) == 1


async def test_a_cancelled_wait_gives_its_place_to_the_next() -> None:
    account = budget(calls=1)
    first = await account.reserve(Amount(calls=1))
    waiting = [asyncio.create_task(account.reserve(Amount(calls=1))) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    account.settle(first, Amount())
    assert isinstance((await asyncio.gather(*waiting, return_exceptions=True))[0], asyncio.CancelledError)
    assert waiting[1].result().amount == Amount(calls=1)
    assert account.under_way == 1


def test_a_journal_goes_on_from_costs_open_holds_and_a_ledger_that_gained_more(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    with closing(HoldJournal.open(path, Amount(1.0, 100, 10))) as journal:
        assert journal.carried == Amount(1.0, 100, 10), "what was paid before there was a budget"
        numbers = [journal.hold(Amount(0.5, 50, 1)) for _ in range(3)]
        journal.settle(numbers[0], Amount(0.1, 10, 1))
        journal.settle(numbers[1], Amount())  # the third is under way: a kill
    with closing(HoldJournal.open(path, Amount(1.05, 105, 10))) as journal:  # the ledger lacks a part of the first
        assert journal.carried == Amount(1.0 + 0.1 + 0.5, 160, 12)
        assert journal.assumed == Amount(0.5, 50, 1)
    with closing(HoldJournal.open(path, Amount(3.05, 305, 30))) as journal:  # a start without a budget paid 2.0
        assert journal.carried == Amount(pytest.approx(3.6), 360, 32)  # type: ignore[arg-type]


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    HoldJournal.open(path, Amount()).close()
    with open(path, "ab") as file:
        file.write(b'{"event": "cost", "hold": 9, "name": "", "usd": 1.0, "tokens": 1, "calls": 1}\n')
    with pytest.raises(DataError, match="'cost' of hold 9"):
        HoldJournal.open(path, Amount())


def test_an_open_hold_with_a_name_waits_for_who_takes_it_over(tmp_path: Path) -> None:
    """A batch goes on without its process: two of its requests were held, one is collected by the next start, one by that after."""
    path, amount, paid = tmp_path / "b.jsonl", Amount(0.0, 100, 1), Amount(0.0, 30, 1)
    with closing(HoldJournal.open(path, Amount())) as journal:
        first = Budget(BudgetSettings(calls=3), "judge", journal)
        assert all(first.reserve_now(amount, name) for name in ("t/a", "t/b"))
    with closing(HoldJournal.open(path, Amount())) as journal:
        second = Budget(BudgetSettings(calls=2), "judge", journal)
        assert (second.spent.calls, second.held.calls) == (2, 0)
        with pytest.raises(BudgetUsedUp):
            second.reserve_now(amount, "u/c")
        hold = second.reserve_now(amount, "t/a")
        assert hold is not None
        assert (second.spent.calls, second.held.calls) == (1, 1)
        second.settle(hold, paid)
    with closing(HoldJournal.open(path, paid)) as journal:
        third = Budget(BudgetSettings(calls=3), "judge", journal)
        assert (third.spent.calls, third.spent.tokens) == (2, 130)
        third.drop("t/b")  # it was never sent
        assert (third.spent.calls, third.spent.tokens, third.assumed.tokens) == (1, 30, 0)
    with closing(HoldJournal.open(path, paid)) as journal:
        assert (journal.carried, dict(journal.named)) == (paid, {})


@pytest.mark.parametrize(("limits", "amount", "named", "raised"), [
    ({"usd": 1.0, "tokens": 1000}, Amount(0.1, 1001, 1), "judge.budget.tokens=1000 is used up", ["judge.budget.tokens=2000"]),
    ({"usd": 1.0, "tokens": 1000}, Amount(2.00001, 10, 1), "judge.budget.usd=1 is used up", ["judge.budget.usd=2.0001"]),
    ({"usd": 1.0, "tokens": 1000}, Amount(3, 2500, 1), "judge.budget.usd=1 is", ["judge.budget.usd=3", "judge.budget.tokens=2500"]),
    ({"calls": 1}, Amount(0, 0, 2), "judge.budget.calls=1 is used up", ["judge.budget.calls=2"]),
])  # fmt: skip
async def test_the_raised_limit_admits_the_call_that_was_refused(limits, amount, named, raised) -> None:
    """What a stopped user types lets that very call pass: rounded up, never down."""
    with pytest.raises(BudgetUsedUp, match=named) as caught:
        await budget(**limits).reserve(amount)
    assert list(caught.value.raised) == raised
    wider = {word.split("=")[0].rsplit(".", 1)[1]: float(word.split("=")[1]) for word in raised}
    enough = {part: int(value) if part != "usd" else value for part, value in {**limits, **wider}.items()}
    await budget(**enough).reserve(amount)
