"""What refusals teach: the pace, the buckets and the width, by figures worked out by hand."""

from __future__ import annotations

import asyncio

import pytest

from ragpipe.judging.limits.pace import LearnedPace
from ragpipe.judging.limits.rate_limit import Bucket
from ragpipe.judging.limits.width import LearnedWidth, Slots


def answered(pace: LearnedPace, since: float, until: float, every: float, *, is_held: bool = True) -> float:
    """Answers at equal distances, which the pace held back or not; returns the time of the last one."""
    count = round((until - since) / every)
    for i in range(1, count + 1):
        now = since + i * every
        pace.free_from = now if is_held else now - 100.0
        pace.record_start(now)
        pace.record_answer(now)
    return since + count * every


def learned(rate: float) -> LearnedPace:
    """A pace that has just met a refusal at this rate, at 100 s, long after the one before."""
    pace = LearnedPace()
    pace.record_answer(100.0)
    pace.rate = rate
    pace.record_refusal(99.9, 100.0)
    return pace


def test_nothing_is_learned_before_three_answers() -> None:
    pace = LearnedPace()
    for time in (1.0, 1.1):
        pace.record_answer(time)
    pace.record_refusal(1.2, 1.3)
    assert (pace.rate, pace.free_from) == (None, 0.0)


def test_the_first_refusal_cuts_what_was_answered() -> None:
    """20 answers in the last 2 s are 10 per second; 0.87 of that."""
    pace = LearnedPace()
    end = answered(pace, 10.0, 12.0, 0.1)
    pace.record_refusal(end, end)
    assert pace.rate == pytest.approx(0.87 * 20 / 1.9, rel=0.06)


def test_starts_are_spaced_by_the_rate() -> None:
    """8.7 per second: one in 0.115 s, the first that long after the refusal."""
    pace = learned(10.0)
    assert pace.free_from == pytest.approx(100 + 1 / 8.7)
    pace.record_start(100 + 1 / 8.7)
    assert pace.free_from == pytest.approx(100 + 2 / 8.7)
    pace.record_start(105.0)
    assert pace.free_from == pytest.approx(105 + 1 / 8.7)


@pytest.mark.parametrize(("seconds", "rate"), [(0.0, 8.7), (3.5625, 9.35), (7.125, 10.0), (14.25, 11.3)])
def test_it_goes_back_in_a_straight_line(seconds: float, rate: float) -> None:
    """From 8.7 to the refused 10 in 62 starts at 8.7 per second, 7.13 s, and as fast beyond it."""
    pace = learned(10.0)
    answered(pace, 100.0, 100.0 + seconds, 0.2375)
    assert pace.rate == pytest.approx(rate, rel=0.001)


def test_after_twice_that_time_it_grows_by_15_percent_per_second() -> None:
    pace = learned(10.0)
    end = answered(pace, 100.0, 114.25, 0.1)
    answered(pace, end, end + 4.0, 0.1)
    assert pace.rate == pytest.approx(11.3 * (1 + 0.15 * 0.1) ** 40, rel=0.02)


def test_it_searches_no_further_than_twice_what_is_answered() -> None:
    """4 answers per second: at 8 it grows no more."""
    pace = learned(10.0)
    answered(pace, 100.0, 160.0, 0.25)
    assert pace.rate == pytest.approx(11.3, rel=0.005)


def test_slow_answers_grow_by_real_time() -> None:
    """One answer in 7 s: what holds for a fast server holds for a slow one."""
    pace = learned(1 / 7)
    answered(pace, 100.0, 100.0 + 42 * 7.0, 7.0)
    assert pace.rate == pytest.approx(1 / 7 * (0.87 + 0.13 * 294 / 300))  # 62 starts are 499 s; 300 at most


def test_it_does_not_grow_where_it_holds_nothing_back() -> None:
    pace = learned(10.0)
    answered(pace, 100.0, 160.0, 0.25, is_held=False)
    assert pace.rate == pytest.approx(8.7)


def test_refusals_of_what_was_in_flight_cut_once() -> None:
    pace = learned(10.0)
    for _ in range(20):
        pace.record_refusal(99.5, 100.2)
    assert pace.rate == pytest.approx(8.7)


def ask(pace: LearnedPace, start: float, until: float, every: float, refused_every: int) -> float:
    """Attempts at equal distances, of which one in `refused_every` is refused; returns the time of the last."""
    now, number = start, 0
    while now < until - 1e-9:
        now, number = now + every, number + 1
        pace.free_from = now
        pace.record_start(now)
        if number % refused_every:
            pace.record_answer(now)
        else:
            pace.record_refusal(now - 0.01, now)
    return now


def test_a_lone_refusal_below_the_limit_cuts_nothing() -> None:
    """One in 20 at 10 per second: after 2 s it is refused, and the rate goes on growing."""
    pace = learned(10.0)
    ask(pace, 100.0, 103.0, 0.1, 20)
    assert pace.rate == pytest.approx(8.7 + 1.3 * 3.0 / 7.13, rel=0.02)


def test_a_share_that_is_refused_at_any_rate_stops_no_growth() -> None:
    pace = learned(10.0)
    ask(pace, 100.0, 160.0, 0.05, 20)
    assert pace.rate is not None
    assert pace.rate > 15


@pytest.mark.parametrize(("share", "rate"), [(3, 0.6), (2, 0.45), (1, 0.35)])
def test_repeated_refusals_cut_to_what_is_answered(share: int, rate: float) -> None:
    """The limit fell, and of 17.4 every third is refused, every second, or all: 0.9 of what is answered, and no less than 0.35 at once."""
    pace = learned(20.0)
    pace.record_answer(100.0)
    ask(pace, 100.0, 100.0 + 4 * share / 17.4, 1 / 17.4, share)  # until the fourth refusal
    assert pace.rate == pytest.approx(rate * 0.87 * 20, rel=0.03)


@pytest.mark.parametrize("every", [4, 2])
def test_refusals_that_no_cut_avoids_bring_the_proven_rate_back(every: int) -> None:
    """Every fourth attempt, or every second, is refused at 40 per second and at 5: four cuts, and the rate goes back up."""
    pace = LearnedPace()
    now, lowest = answered(pace, 100.0, 110.0, 1 / 40, is_held=False), 40.0
    for _ in range(60):
        distance = 1 / min(40.0, pace.rate or 40.0)
        now = ask(pace, now, now + every * distance, distance, every)
        lowest = min(lowest, pace.rate or 40.0)
    assert 1 <= lowest < 20
    assert pace.rate is not None
    assert pace.rate >= 30


def test_a_limit_behind_chance_is_learned_again() -> None:
    """What counted as chance then refuses four of five: that is a limit, and the rate falls."""
    pace = LearnedPace()
    now = answered(pace, 100.0, 110.0, 1 / 40, is_held=False)
    for _ in range(60):
        now = ask(pace, now, now + 4 / 40, 1 / 40, 4)
    for _ in range(20):
        for number in range(5):
            now += 1 / 40
            pace.record_start(now)
            if number:
                pace.record_refusal(now - 0.001, now)
            else:
                pace.record_answer(now)
    assert pace.rate is not None
    assert pace.rate < 10


def test_refusals_without_an_answer_between_them_are_one_outage() -> None:
    """A minute of refusals, one per second, at 10 per second: four cuts at most, and the first answer brings the proven rate back."""
    pace = learned(10.0)
    for second in range(60):
        pace.record_start(120.0 + second)
        pace.record_refusal(120.0 + second - 0.01, 120.0 + second)
    assert pace.rate is not None
    assert pace.rate >= 10 * 0.87 * 0.35
    pace.record_answer(180.0)
    assert pace.rate == pytest.approx(10 * 0.87 * 0.87)  # it held until the first of them, which looked like a limit


def test_a_bucket_spaces_and_settles() -> None:
    """600 tokens per second: 1,200 take 2 s. What the server did not count shortens the next."""
    bucket = Bucket(600.0)
    bucket.take(1200.0, 50.0)
    assert bucket.free_from == 52.0
    bucket.settle(-300.0)
    bucket.take(1200.0, 52.0)
    assert bucket.free_from == pytest.approx(53.5)
    bucket.settle(60.0)
    bucket.take(600.0, 53.5)
    assert bucket.free_from == pytest.approx(53.5 + 1.1)


def test_credit_of_a_bucket_is_limited() -> None:
    bucket = Bucket(600.0)
    bucket.settle(-100_000.0)
    bucket.take(1800.0, 10.0)
    assert bucket.free_from == pytest.approx(11.0)  # 1,200 tokens, 2 s, were credit


def test_the_width_is_cut_to_four_fifths_and_grows_again() -> None:
    width = LearnedWidth()
    width.record_answer()
    assert width.limit is None
    width.record_refusal(1.0, 10, 1.5)
    width.record_refusal(1.2, 10, 1.6)  # in flight when the width was cut
    assert width.limit == 8.0
    for _ in range(24):  # three rounds of eight
        width.record_answer()
    assert width.limit == pytest.approx(9.0, abs=0.1)


async def test_slots_follow_the_width() -> None:
    width = LearnedWidth()
    slots = Slots(4, width)
    for _ in range(4):
        await slots.acquire()
    width.record_refusal(0.0, 4, 1.0)  # 3.2: three at once
    slots.release()
    assert (slots.taken, slots.limit, slots.is_narrowed) == (3, 3, False)
    waiting = asyncio.create_task(slots.acquire())
    await asyncio.sleep(0)
    assert slots.is_narrowed
    slots.release()
    await waiting
    assert slots.taken == 3


async def test_slots_are_given_in_order_of_arrival_and_a_cancelled_wait_takes_none() -> None:
    slots, order = Slots(1), list[str]()

    async def take(name: str) -> None:
        async with slots:
            order.append(name)

    await slots.acquire()
    tasks = {name: asyncio.create_task(take(name)) for name in "abc"}
    await asyncio.sleep(0)
    tasks["a"].cancel()
    slots.release()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert (order, slots.taken) == (["b", "c"], 0)
