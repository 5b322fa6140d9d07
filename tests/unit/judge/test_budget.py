"""A budget holds before it sends: over random schedules the provider's bill never exceeds it, whatever fails, and through kills.

The bill is the simulated provider's own: it is written when a request arrives there, also for those whose answer never comes.
"""

import asyncio
import math
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.usage import Amount
from ragpipe.judge.budget import Budget, BudgetUsedUp
from ragpipe.judge.call_records import AttemptTally, RequestCosts
from ragpipe.judge.client import AttemptError, Completion
from ragpipe.judge.pricing import rates_for
from ragpipe.judge.settings import BudgetSettings, JudgeSettings
from ragpipe.store.journal import HoldJournal
from tests.support.asking import question
from tests.support.thoroughness import some_of
from tests.support.timer_loop import TimerLoop

OUTCOMES = ("answered",) * 10 + (
    "empty", "no usage", "refused", "rate_limit", "no connection", "server error", "timeout", "reset", "cancelled",
)  # fmt: skip


@dataclass
class Provider:
    """Bills each request that it works on, up to what its bytes and `max_tokens` allow."""

    draw: random.Random
    costs: Any = None
    prices: dict[str, float] = field(default_factory=dict)
    bill: Amount = field(default_factory=Amount)
    committed: Amount = field(default_factory=Amount)
    lag: list[Amount] = field(default_factory=list)
    greed: float = 0.5  # how often a request is billed in full

    def work(self, prompt_bound: int, max_tokens: int) -> tuple[int, int, int, int]:
        """The tokens of one request: prompt, completion, cached and reasoning."""
        full = self.draw.random() < self.greed
        tokens_in = prompt_bound if full else self.draw.randint(1, prompt_bound)
        tokens_out = max_tokens if full else self.draw.randint(0, max_tokens)
        return tokens_in, tokens_out, self.draw.randint(0, tokens_in), self.draw.randint(0, tokens_out)

    def charge(self, tokens: tuple[int, int, int, int]) -> Amount:
        tokens_in, tokens_out, cached, reasoning = tokens
        usd = (
            (tokens_in - cached) * self.prices["input"] + cached * self.prices["cached_input"]
            + (tokens_out - reasoning) * self.prices["output"] + reasoning * self.prices["reasoning"]
        ) / 1e6  # fmt: skip
        amount = Amount(usd, tokens_in + tokens_out, 1)
        self.bill += amount
        return amount

    def pay(self, amount: Amount) -> None:
        """An answered attempt enters the ledger; the last ones may not be committed yet."""
        self.lag.append(amount)
        if len(self.lag) > 3:
            self.committed += self.lag.pop(0)

    async def answer(self, tally: AttemptTally, prompt_bound: int, max_tokens: int) -> Completion:
        outcome, tokens = self.draw.choice(OUTCOMES), self.work(prompt_bound, max_tokens)
        amount = None
        if outcome in ("answered", "empty", "no usage") or (
            outcome in ("server error", "timeout", "reset", "cancelled") and self.draw.random() < 0.7
        ):
            amount = self.charge(tokens)
        await asyncio.sleep(self.draw.expovariate(1.0))
        if outcome in ("answered", "empty"):
            completion = Completion("x", tokens_in=tokens[0], tokens_out=tokens[1], tokens_cached=tokens[2], tokens_reasoning=tokens[3])  # fmt: skip
        elif outcome == "no usage":
            completion = Completion("x")
        else:
            errors = {
                "refused": AttemptError("bad_request", "400", unbilled=True),
                "rate_limit": AttemptError("rate_limit", "429", unbilled=True),
                "no connection": AttemptError("network", "refused", no_connection=True),
                "server error": AttemptError("server_error", "500"),
                "timeout": AttemptError("deadline", "late"),
                "reset": AttemptError("network", "reset"),
                "cancelled": asyncio.CancelledError(),
            }
            raise errors[outcome]
        tally.answers, tally.last_completion = tally.answers + 1, completion
        if amount is not None and completion.tokens_in is not None:
            self.pay(amount)
        if outcome == "empty":
            raise AttemptError("empty_reply", "nothing")
        return completion


class Process:
    """The journal as a process has it: once it is killed, nothing more is written."""

    def __init__(self, journal: HoldJournal):
        self.journal, self.carried, self.assumed, self.is_killed = journal, journal.carried, journal.assumed, False
        self.named = journal.named

    def hold(self, amount: Amount, name: str = "") -> int:
        if self.is_killed:
            raise asyncio.CancelledError
        return self.journal.hold(amount, name)

    def settle(self, number: int, cost: Amount) -> None:
        if not self.is_killed:
            self.journal.settle(number, cost)

    def kill(self) -> None:
        self.is_killed = True


class Schedule:
    """One random run: its requests, its budget, and how often it is killed."""

    def __init__(self, seed: int, path: Path):
        draw = self.draw = random.Random(seed)
        self.path, self.max_tokens = path, draw.choice((1, 64, 2048))
        prices = {"input": draw.uniform(0.1, 20), "output": draw.uniform(0.1, 80)}
        prices |= {"cached_input": draw.uniform(0, 25), "reasoning": draw.uniform(0, 100)}
        self.settings = JudgeSettings(model="openai/gpt-4o-mini-2024-07-18", prices=prices, max_tokens=self.max_tokens, retries=2)
        self.provider = Provider(draw, prices=prices, greed=draw.choice((0.0, 0.3, 1.0)))
        self.width, self.requests = draw.randint(1, 32), draw.randint(1, 40)
        self.bodies = [
            {"messages": [{"role": "user", "content": draw.choice(("a", "ß", "字")) * draw.randint(1, 4000)}]} for _ in range(self.requests)
        ]
        dear = sum(len(b["messages"][0]["content"]) for b in self.bodies) + self.requests * (self.max_tokens + 80)
        share = draw.choice((0.05, 0.3, 0.8, 5.0))
        limits = {
            "usd": share * dear * max(prices.values()) / 1e6, "tokens": max(1, round(share * dear)),
            "calls": max(1, round(share * self.requests)),
        }  # fmt: skip
        chosen = draw.sample(sorted(limits), draw.randint(1, 3))
        self.limits = BudgetSettings(**{name: limits[name] for name in chosen})
        self.asked = 0
        self.used_up: BudgetUsedUp | None = None

    def run(self, loop: TimerLoop) -> None:
        for killed_after in [self.draw.expovariate(0.5) for _ in range(self.draw.choice((0, 0, 1, 3)))]:
            self.start(loop, killed_after)
        self.start(loop, math.inf)

    def start(self, loop: TimerLoop, seconds: float) -> None:
        """One process: it goes on from the journal, and may be killed."""
        journal = HoldJournal.open(self.path, self.provider.committed)
        process = self.process = Process(journal)
        budget = Budget(self.limits, "judge", process)
        costs = RequestCosts(budget, self.settings, rates_for(self.settings), pytest.fail)
        done = loop.run_for(self.all(costs), min(seconds, 1e9), process.kill)
        journal.close()
        assert budget.spent.tokens + budget.held.tokens <= (self.limits.tokens or math.inf)
        self.used_up = budget.used_up
        kept = 3 if done else self.draw.randint(0, 3)  # the payments that a killed process had not committed are lost
        self.provider.committed += sum(self.provider.lag[:kept], Amount())
        self.provider.lag = []

    async def all(self, costs: RequestCosts) -> None:
        slots, left = asyncio.Semaphore(self.width), self.bodies[self.asked :]
        await asyncio.gather(*(self.ask(costs, slots, body) for body in left))

    async def ask(self, costs: RequestCosts, slots: asyncio.Semaphore, body: dict[str, Any]) -> None:
        async with slots:
            tally = AttemptTally(question=question(), paid=lambda _: None, body=body)
            for _ in range(3):
                bound = costs.bound(body)
                answer = partial(self.provider.answer, tally, bound.tokens - self.max_tokens, self.max_tokens)
                try:
                    await costs.send(await costs.budget.reserve(bound), tally, answer)
                except BudgetUsedUp:
                    return
                except (AttemptError, asyncio.CancelledError):
                    await asyncio.sleep(self.draw.random())
                    continue
                break
            self.asked += not self.process.is_killed


def check(seeds: Sequence[int], folder: Path) -> int:
    """Run the schedules; how many of them used their budget up."""
    used_up = 0
    for seed in seeds:
        loop = TimerLoop()
        schedule = Schedule(seed, folder / f"{seed}.jsonl")
        schedule.run(loop)
        bill, limits = schedule.provider.bill, schedule.limits
        assert limits.usd is None or bill.usd <= limits.usd * (1 + 1e-12), seed
        assert limits.tokens is None or bill.tokens <= limits.tokens, seed
        assert limits.calls is None or bill.calls <= limits.calls, seed
        assert schedule.used_up or schedule.asked >= schedule.requests, f"{seed}: a request was neither sent nor refused"
        used_up += schedule.used_up is not None
        (folder / f"{seed}.jsonl").unlink()
        loop.close()
    return used_up


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the machine has one: journals are synced when they are closed, and a disk takes its time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as name:
        yield Path(name)


@pytest.mark.slow
def test_the_bill_never_exceeds_the_budget(folder: Path) -> None:
    used_up = check(range(120), folder)
    assert 40 < used_up < 115, "the schedules are of both kinds"


@pytest.mark.slow
@pytest.mark.timeout(470)
def test_the_bill_never_exceeds_the_budget_over_thousands_of_schedules(folder: Path) -> None:
    schedules = some_of(range(1000, 11_000), 300)
    assert check(schedules, folder) > 0.3 * len(schedules)
