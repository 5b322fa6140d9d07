"""The state of work under way: counts, what holds requests back, and the time left, calculated by hand."""

import asyncio
import time
from typing import Any

import pytest

from ragpipe.core.usage import Usage
from ragpipe.judge.attempts import AttemptRunner, ServerState, Tally
from ragpipe.judge.client import AttemptError
from ragpipe.judge.limits import RateLimiter
from ragpipe.runs.work_meter import WorkDone, WorkMeter


@pytest.mark.parametrize(("done", "resumed", "total", "expected"), [
    (0, 0, 40, None),  # no case is finished
    (5, 5, 40, None),  # none by this start
    (14, 10, 20, 12.0),  # 4 cases in 8 s, so 12 s for the other 6
    (40, 30, 40, 0.0),
])  # fmt: skip
def test_the_time_left(done: int, resumed: int, total: int, expected: float | None) -> None:
    times = iter((0.0, 8.0))
    state = WorkMeter("judging", total, lambda: WorkDone(done, resumed), clock=lambda: next(times)).state()
    assert state.seconds_left == (None if expected is None else pytest.approx(expected))


def test_the_money_is_that_of_all_starts_of_the_run() -> None:
    state = WorkMeter("judging", 10, lambda: WorkDone(4, 3), spent_before=Usage(tokens_in=7, tokens_out=3, usd_known=0.25)).state()
    assert (state.usd, state.tokens) == (0.25, 10)


class Limits:
    concurrency, timeout_s, retries, outage_s = 8, 5.0, 2, 600.0


def runner(rpm: float | None = None) -> AttemptRunner:
    return AttemptRunner(Limits(), ServerState(RateLimiter(rpm), answered=True), give_up=lambda *_: RuntimeError(), tell=lambda _: None)


async def waiting(attempts: AttemptRunner, calls: int = 1) -> list[asyncio.Task[None]]:
    async def send(seconds: float) -> None:
        await attempts.traffic.count(asyncio.sleep(60))

    tasks = [asyncio.create_task(attempts.run(str(n), send, Tally())) for n in range(calls)]
    await asyncio.sleep(0.01)
    return tasks


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_time_left_includes_the_wait_where_nothing_is_under_way() -> None:
    """8 cases are left after 2 in 6 s, and nothing goes for 12 s."""
    attempts = runner()
    attempts.state.rate_limiter.pause(12)
    tasks = await waiting(attempts, 3)
    times = iter((0.0, 6.0))
    state = WorkMeter("judging", 10, lambda: WorkDone(2), servers=[attempts], clock=lambda: next(times)).state()
    assert state.seconds_left == pytest.approx(24 + 12, abs=1)
    await end(tasks)


async def test_a_rate_of_ones_own() -> None:
    attempts = runner(rpm=6)
    tasks = await waiting(attempts, 3)
    hold = attempts.hold()
    assert (attempts.traffic.waiting, hold[1]) == (2, "rpm")
    assert hold[0] - time.monotonic() <= 10, "one of them goes every ten seconds"
    await end(tasks)


@pytest.mark.parametrize(("kind", "reason"), [("server_error", "server error"), ("network", "no connection")])
async def test_a_pause_before_a_retry(kind: Any, reason: str) -> None:
    attempts = runner()

    async def send(seconds: float) -> None:
        raise AttemptError(kind, "x", retry_after=30)

    task = asyncio.create_task(attempts.run("a", send, Tally()))
    await asyncio.sleep(0.01)
    hold = attempts.hold()
    assert hold[1] == reason
    assert 29 < hold[0] - time.monotonic() < 31
    await end([task])
    assert not attempts.traffic.pauses


async def test_an_outage() -> None:
    attempts = runner()

    async def send(seconds: float) -> None:
        raise AttemptError("network", "refused")

    tasks = [asyncio.create_task(attempts.run(str(n), send, Tally())) for n in range(6)]
    for _ in range(200):
        await asyncio.sleep(0.01)
        if (hold := attempts.hold()) is not None and hold[1] == "no answer":
            break
    assert hold[1] == "no answer"
    await end(tasks)


@pytest.mark.slow
async def test_what_limits_did_to_the_requests() -> None:
    """At 300 per minute a refusal and an overload are counted."""
    attempts = runner(rpm=300)
    failures = [AttemptError("rate_limit", "too fast"), AttemptError("server_error", "too many", overload=True)]

    async def send(seconds: float) -> None:
        if failures:
            raise failures.pop()
        await attempts.traffic.count(asyncio.sleep(0))

    await attempts.run("a", send, Tally())
    limits = WorkMeter("judging", 10, lambda: WorkDone(0), servers=[attempts]).state().limits
    assert (limits.refused, limits.overloaded) == (1, 1)
    assert (limits.requests_per_minute, limits.tokens_per_minute) == (pytest.approx(300), None)
    assert limits.width == 1
