"""What refusals teach: the cubic pace, the buckets and the width, by figures worked out by hand."""

from __future__ import annotations

import pytest

from ragpipe.judging.limits.pace import Bucket, LearnedPace
from ragpipe.judging.limits.width import LearnedWidth, RequestSlots


def answered(pace: LearnedPace, since: float, until: float, every: float, *, is_held: bool = True) -> float:
    """Answers at equal distances; returns the time of the last one."""
    count = round((until - since) / every)
    for i in range(1, count + 1):
        pace.record_answer(since + i * every, is_held=is_held)
    return since + count * every


def learned(rate: float) -> LearnedPace:
    """A pace that has just met a refusal at this rate, at 100 s, long after the one before."""
    pace = LearnedPace()
    pace.record_answer(100.0, is_held=True)
    pace.rate = rate
    pace.record_refusal(99.9, 100.0)
    return pace


def test_nothing_is_learned_before_three_answers() -> None:
    pace = LearnedPace()
    for time in (1.0, 1.1):
        pace.record_answer(time, is_held=False)
    pace.record_refusal(1.2, 1.3)
    assert pace.rate is None


def test_the_first_refusal_cuts_what_was_answered() -> None:
    """20 answers in the last 2 s are 10 per second; 0.87 of that."""
    pace = LearnedPace()
    end = answered(pace, 10.0, 12.0, 0.1)
    pace.record_refusal(end, end)
    assert pace.rate == pytest.approx(0.87 * 20 / 1.9, rel=0.06)


@pytest.mark.parametrize(
    ("seconds", "rate"),
    [
        (0.0, 8.7),
        (6.0, 10 * (1 - 0.13 / 8)),
        (12.0, 10.0),
        (18.0, 10 * (1 + 0.13 / 8)),
        (24.0, 11.3),
    ],
)
def test_the_cubic_curve(seconds: float, rate: float) -> None:
    """10 (1 + 0.13 (t / 12 - 1)^3): back at the refused rate after 12 s."""
    pace = learned(10.0)
    answered(pace, 100.0, 100.0 + seconds, 0.25)
    assert pace.rate == pytest.approx(rate)


def test_after_twice_that_time_it_grows_by_15_percent_per_second() -> None:
    pace = learned(10.0)
    end = answered(pace, 100.0, 124.0, 0.25)
    answered(pace, end, end + 10.0, 0.25)
    assert pace.rate == pytest.approx(11.3 * (1 + 0.15 * 0.25) ** 40, rel=1e-6)


def test_at_a_low_rate_the_curve_is_longer() -> None:
    """At 0.435 starts per second 30 starts take 69 s."""
    pace = learned(0.5)
    answered(pace, 100.0, 100.0 + 30 / 0.435, 30 / 0.435 / 60)
    assert pace.rate == pytest.approx(0.5)


def test_it_does_not_grow_where_it_holds_nothing_back() -> None:
    pace = learned(10.0)
    answered(pace, 100.0, 160.0, 0.25, is_held=False)
    assert pace.rate == pytest.approx(8.7)


def test_refusals_of_what_was_in_flight_cut_once() -> None:
    pace = learned(10.0)
    for _ in range(20):
        pace.record_refusal(99.5, 100.2)
    assert pace.rate == pytest.approx(8.7)


def test_repeated_refusals_cut_to_what_is_answered() -> None:
    """The limit fell from 20 to 5 per second: 0.9 of 5, no more than a half at a time."""
    pace = learned(20.0)
    now = answered(pace, 100.0, 102.0, 0.2)
    pace.record_refusal(now - 0.1, now)
    assert pace.rate == pytest.approx(0.5 * 20 * (1 - 0.13 * (10 / 12) ** 3))  # the half of the curve after 2 s
    for _ in range(2):
        now = answered(pace, now, now + 2.0, 0.2)
        pace.record_refusal(now - 0.1, now)
    assert pace.rate == pytest.approx(0.9 * 5, rel=0.12)


def ask(pace: LearnedPace, start: float, until: float, every: float, refused_every: int) -> float:
    """Attempts at equal distances, of which one in `refused_every` is refused; returns the time of the last."""
    now, number = start, 0
    while now < until:
        now, number = now + every, number + 1
        if number % refused_every:
            pace.record_answer(now, is_held=True)
        else:
            pace.record_refusal(now - 0.01, now)
    return now


def refused_by_chance(rounds: int) -> tuple[LearnedPace, float, float]:
    """40 per second are answered for 10 s. Then every fourth attempt is refused, at the pace's own rate. Returns the pace, the time
    and the lowest rate."""
    pace = LearnedPace()
    now, lowest = answered(pace, 100.0, 110.0, 1 / 40, is_held=False), 40.0
    for _ in range(rounds):
        every = 1 / min(40.0, pace.rate or 40.0)
        now = ask(pace, now, now + 4 * every, every, 4)
        lowest = min(lowest, pace.rate or 40.0)
    return pace, now, lowest


def test_refusals_below_a_proven_rate_are_chance() -> None:
    """Every fourth attempt is refused at 40 per second and at 20: no limit does that, and the rate goes back up."""
    pace, _, lowest = refused_by_chance(60)
    assert 10 <= lowest < 30
    assert pace.rate is not None
    assert pace.rate >= 30


def test_a_limit_behind_chance_is_learned_again() -> None:
    """What counted as chance then refuses every attempt: that is a limit, and the rate falls."""
    pace, now, _ = refused_by_chance(60)
    for _ in range(200):
        now += 1 / max(5.0, pace.rate or 40.0)
        pace.record_refusal(now - 0.001, now)
    assert pace.rate is not None
    assert pace.rate < 5


def test_a_bucket_spaces_and_settles() -> None:
    """600 tokens per second: 1,200 take 2 s. What the server did not count shortens the next."""
    bucket = Bucket(600.0, "tpm")
    bucket.take(1200.0, 50.0)
    assert bucket.next_start(50.0) == 52.0
    bucket.settle(-300.0)
    bucket.take(1200.0, 52.0)
    assert bucket.next_start(52.0) == pytest.approx(53.5)
    bucket.settle(60.0)
    bucket.take(600.0, 53.5)
    assert bucket.next_start(53.5) == pytest.approx(53.5 + 1.1)


def test_credit_of_a_bucket_is_limited() -> None:
    bucket = Bucket(600.0, "tpm")
    bucket.settle(-100_000.0)
    bucket.take(1800.0, 10.0)
    assert bucket.next_start(10.0) == pytest.approx(11.0)  # 1,200 tokens, 2 s, were credit


def test_the_width_is_cut_to_four_fifths_and_grows_again() -> None:
    width = LearnedWidth()
    width.record_answer(is_held=True)
    assert width.limit is None
    width.record_refusal(1.0, 10, 1.5)
    width.record_refusal(1.2, 10, 1.6)  # in flight when the width was cut
    assert width.limit == 8.0
    for _ in range(24):  # three rounds of eight
        width.record_answer(is_held=True)
    assert 9.0 <= width.limit < 9.3
    before = width.limit
    width.record_answer(is_held=False)
    assert width.limit == before


async def test_slots_follow_the_width() -> None:
    learned_width = LearnedWidth()
    slots = RequestSlots(4, learned_width)
    for _ in range(4):
        await slots.acquire()
    learned_width.record_refusal(0.0, 4, 1.0)  # 3.2: three at once
    slots.release()
    assert (slots.taken, slots.limit) == (3, 3)
    assert not slots.is_narrowed
