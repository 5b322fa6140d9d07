"""The width that several processes have learned together, over a real row: each of them has a part of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from ragpipe.judging.limits.attempts import AttemptRunner
from ragpipe.judging.limits.limit_rules import LimitRules
from ragpipe.judging.limits.outage import OutageGate
from ragpipe.judging.limits.rate_limit import RateLimiter
from ragpipe.judging.limits.shared_limiters import SharedWidth
from ragpipe.judging.limits.shared_limits import SharedLimits
from ragpipe.judging.limits.width import LearnedWidth, RequestSlots
from ragpipe.store.limits.sqlite_limits import SqliteLimits


class Limits:
    timeout_s, deadline_s, retries = 60.0, None, 0


class Tally:
    attempts, last_error, latency_ms = 0, "", 0.0
    demand = case_time = None


@dataclass
class State:
    width: LearnedWidth
    rate_limiter: RateLimiter = field(default_factory=RateLimiter)
    answered: bool = True


class Process:
    """One process that asks a provider: at most 16 requests over all processes, eight that want to be under way in this one."""

    def __init__(self, folder: Path):
        self.limits = SharedLimits(lambda: SqliteLimits(folder / "limits.sqlite"), print)
        self.row = row = self.limits.provider("p", LimitRules())
        self.width = SharedWidth(row)
        outage = OutageGate(600, 5, lambda _: None, lambda _: None)
        self.runner = AttemptRunner(
            Limits(), State(self.width), outage, most=16, sleep=asyncio.sleep, check=lambda: None,
            give_up=lambda *_: RuntimeError(), source=row.pool("m"),
        )  # fmt: skip

    async def ask(self) -> None:
        """One request after the other; the server answers all."""
        while True:
            await self.runner.run("question", lambda _: asyncio.sleep(0.005), Tally())


async def test_a_width_that_two_processes_share_grows_again(tmp_path: Path) -> None:
    """After a refusal among ten the width is eight; each process has four, which it uses up while others of it wait."""
    processes = [Process(tmp_path) for _ in range(2)]
    processes[0].width.record_refusal(1.0, 10, 2.0)
    asking = [asyncio.create_task(process.ask()) for process in processes for _ in range(8)]
    for _ in range(250):
        await asyncio.sleep(0.02)
        if all((process.width.limit or 0) > 10 for process in processes):
            break
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await asyncio.gather(*(asyncio.to_thread(process.limits.close) for process in processes))
    assert all((process.width.limit or 0) > 10 for process in processes)


async def test_slots_of_a_process_that_sends_nothing_but_stays_are_free(tmp_path: Path) -> None:
    """As in an outage: the first process had all slots and asks the row when the server is there again, the second sends the probe."""
    first, second = Process(tmp_path), Process(tmp_path)
    slots = RequestSlots(4, LearnedWidth(), first.row.pool("m"))
    for _ in range(4):
        await slots.acquire()
    for _ in range(4):
        slots.release()

    async def stay() -> None:
        while True:
            await first.row.ask(lambda row, _: None)
            await asyncio.sleep(0.1)

    staying = asyncio.create_task(stay())
    await asyncio.wait_for(RequestSlots(4, LearnedWidth(), second.row.pool("m")).acquire(), 5)
    staying.cancel()
    await asyncio.gather(*(asyncio.to_thread(process.limits.close) for process in (first, second)))
