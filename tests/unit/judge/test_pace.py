"""What refusals teach: the pace, the buckets and the width, by figures worked out by hand."""

import asyncio

import pytest

from ragpipe.judge.limits import Bucket, LearnedPace, LearnedWidth, Slots


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


@pytest.mark.parametrize(("seconds", "every", "is_held", "rate"), [
    # from 8.7 to the refused 10 in 62 starts at 8.7 per second, 7.13 s, and as fast beyond it
    (0.0, 0.2375, True, 8.7), (3.5625, 0.2375, True, 9.35), (7.125, 0.2375, True, 10.0), (14.25, 0.2375, True, 11.3),
    (60.0, 0.25, True, 11.3),  # 4 answers per second: no further than twice what is answered
    (60.0, 0.25, False, 8.7),  # it holds nothing back
])  # fmt: skip
def test_the_pace_goes_back_in_a_straight_line(seconds, every, is_held, rate):
    pace = learned(10.0)
    answered(pace, 100.0, 100.0 + seconds, every, is_held=is_held)
    assert pace.rate == pytest.approx(rate, rel=0.001 if seconds < 60 else 0.005)


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
