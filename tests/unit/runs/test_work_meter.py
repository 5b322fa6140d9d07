"""The state of work under way: counts, what holds requests back, and the time left, calculated by hand."""

import asyncio
import time
from typing import Any

import pytest

from ragpipe.judge.attempts import AttemptRunner, ServerState, Tally, Traffic
from ragpipe.judge.client import AttemptError
from ragpipe.judge.limits import RateLimiter
from ragpipe.runs.work_meter import WorkDone, WorkMeter, call_rate, seconds_left


@pytest.mark.parametrize(("elapsed", "fresh", "remaining", "answered", "planned", "expected"), [
    (10.0, 0, 40, 0, 100, None),  # nothing was answered
    (10.0, 0, 40, 20, None, None),  # calls without a plan and without a finished case
    (10.0, 0, 40, 20, 100, 40.0),  # 80 calls at 2 per second
    (10.0, 10, 30, 20, None, 30.0),  # 2 calls per case: 60 calls at 2 per second
    (10.0, 20, 20, 40, 100, 12.5),  # half of 40 by cases and half of 60 by the plan: 50 calls at 4 per second
    (10.0, 1, 39, 50, 150, 20.0),  # calls of open cases are no sign of more than the 100 that the plan has left
    (10.0, 30, 10, 0, None, 10 / 3),  # no call at all: by cases
    (10.0, 30, 10, 0, 100, None),  # cases of stored replies say nothing of calls that are still to come
    (10.0, 5, 5, 50, 20, 5.0),  # more calls than planned: half of 50 by cases, none by the plan, at 5 per second
    (10.0, 40, 0, 100, 100, 0.0),
])  # fmt: skip
def test_the_time_left(elapsed: float, fresh: int, remaining: int, answered: int, planned: int | None, expected: float | None) -> None:
    left = seconds_left(elapsed, fresh, remaining, answered, planned, answered / elapsed if answered else None)
    assert left == (None if expected is None else pytest.approx(expected))


def test_planned_questions_that_no_server_is_asked_leave_the_estimate_to_the_cases() -> None:
    """A judge in this process: 4 of 10 cases in 8 s, so 12 s for the other 6."""
    times = iter((0.0, 8.0))
    state = WorkMeter("judging", 10, lambda: WorkDone(4), planned_calls=60, clock=lambda: next(times)).state()
    assert state.seconds_left == pytest.approx(12.0)


def traffic(sent: int, answered: int, *, first: float, last: float, latency: float = 3.0) -> Traffic:
    """Requests of which so many were answered, in `latency` seconds each, between the seconds `first` and `last`."""
    return Traffic(sent, answered, answer_seconds=latency * answered, first_answer=first, last_answer=last)


@pytest.mark.parametrize(("requests", "now", "expected"), [
    (Traffic(sent=1), 2.0, None),  # the first call is under way
    (traffic(17, 1, first=3.0, last=3.0), 3.5, 16 / 3),  # it went alone: 16 that take 3 s each are under way now
    (traffic(17, 1, first=3.0, last=3.0), 5.9, 16 / 3),  # and the estimate does not grow while they are waited for
    (traffic(33, 17, first=3.0, last=6.0), 8.0, 16 / 3),  # one round of 16
    (traffic(113, 97, first=3.0, last=21.0), 23.0, 96 / 18),  # six rounds
    (traffic(113, 97, first=3.0, last=21.0), 39.0, 96 / 30),  # 12 s longer than two answers take
    (traffic(2, 1, first=3.0, last=3.0), 3.5, 1 / 3),
    (traffic(1, 1, first=3.0, last=3.0), 3.5, 1 / 3),  # nothing under way: one at a time
])  # fmt: skip
def test_the_rate_of_answers_to_come(requests: Traffic, now: float, expected: float | None) -> None:
    assert call_rate([requests], now) == (None if expected is None else pytest.approx(expected))


def test_a_silence_that_was_announced_says_nothing_of_the_rate() -> None:
    """97 answers in 18 s, then nothing for 18 s, because a Retry-After says so."""
    assert call_rate([traffic(97, 97, first=3.0, last=21.0)], 39.0, is_held=True) == pytest.approx(96 / 18)
    assert call_rate([traffic(97, 97, first=3.0, last=21.0)], 39.0) == pytest.approx(96 / 30)


def test_the_rate_of_two_servers_is_that_of_both() -> None:
    """96 answers of one in 18 s and 18 of another in the same 18 s, but for the very first."""
    both = [traffic(97, 97, first=3.0, last=21.0), traffic(18, 18, first=3.0, last=21.0)]
    assert call_rate(both, 21.0) == pytest.approx(114 / 18)


class Limits:
    concurrency, timeout_s, retries, outage_s = 8, 5.0, 2, 600.0


def runner(rpm: float | None = None) -> AttemptRunner:
    return AttemptRunner(Limits(), ServerState(RateLimiter(rpm), answered=True), give_up=lambda *_: RuntimeError(), tell=lambda _: None)


def meter(*runners: AttemptRunner, clock: Any = time.monotonic) -> WorkMeter:
    return WorkMeter("judging", 10, lambda: WorkDone(0), servers=runners, clock=clock)


async def waiting(attempts: AttemptRunner, calls: int = 1) -> list[asyncio.Task[None]]:
    """So many calls that are under way or wait."""

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
    """18 calls are still to come at one in 3 s, and nothing goes for 12 s."""
    attempts = runner()
    attempts.traffic = traffic(2, 2, first=time.monotonic() - 3, last=time.monotonic())
    attempts.state.rate_limiter.pause(12)
    tasks = await waiting(attempts, 3)
    state = WorkMeter("judging", 10, lambda: WorkDone(0), servers=[attempts], planned_calls=20).state()
    assert state.seconds_left == pytest.approx(18 * 3 + 12, abs=1)
    await end(tasks)


async def test_a_rate_of_ones_own() -> None:
    attempts = runner(rpm=6)
    tasks = await waiting(attempts, 3)
    hold = attempts.hold()
    assert hold is not None
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
    assert hold is not None
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
    assert hold is not None
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
    limits = meter(attempts).state().limits
    assert (limits.refused, limits.overloaded) == (1, 1)
    assert (limits.requests_per_minute, limits.tokens_per_minute) == (pytest.approx(300), None)
    assert limits.width == 1


def test_one_answer_and_a_silence_are_a_rate_all_the_same() -> None:
    """One answer of 3 s, nothing under way, and 27 s of silence: a call every 3 s may still be expected."""
    assert call_rate([traffic(1, 1, first=3.0, last=3.0)], now=30.0) == pytest.approx(1 / 3)
