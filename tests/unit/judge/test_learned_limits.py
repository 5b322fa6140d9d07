"""Limits of providers: headers with the names and values of their documentation, what a limiter makes of them, and what
refusals teach: the pace, the buckets and the width, by figures worked out by hand."""

import asyncio
from typing import Any

import pytest

from ragpipe.judge.client import ApiResponse, AttemptError
from ragpipe.judge.http_responses import parse_response
from ragpipe.judge.limits import Bucket, LearnedPace, LearnedWidth, LimitState, RateLimiter, Slots, TokenDemand, limit_rules, read_limits

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z
OPENAI = {
    "x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "150000", "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s",
}  # fmt: skip
GROQ = {
    "x-ratelimit-limit-requests": "14400", "x-ratelimit-limit-tokens": "18000", "x-ratelimit-remaining-requests": "14370",
    "x-ratelimit-remaining-tokens": "17997", "x-ratelimit-reset-requests": "2m59.56s", "x-ratelimit-reset-tokens": "7.66ms",
}  # fmt: skip
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "0",
    "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:22Z", "anthropic-ratelimit-input-tokens-limit": "30000",
    "anthropic-ratelimit-input-tokens-remaining": "29000", "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:13:21Z",
}  # fmt: skip
MISTRAL = {
    "x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-req-minute": "58",
    "x-ratelimit-limit-tokens-minute": "500000", "x-ratelimit-remaining-tokens-minute": "499000",
}  # fmt: skip
OPENROUTER = {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{(NOW + 40) * 1000:.0f}"}  # milliseconds


@pytest.mark.parametrize(("headers", "style", "states"), [
    (OPENAI, "openai", [("requests", 60, 59, 1.0), ("tokens", 150_000, 149_984, 360.0)]),
    (GROQ, "openai", [("requests", 14_400, 14_370, 179.56), ("tokens", 18_000, 17_997, 0.00766)]),
    (ANTHROPIC, "anthropic", [("requests", 50, 0, 2.0), ("input", 30_000, 29_000, 1.0)]),
    (MISTRAL, "mistral", [("requests", 60, 58, None), ("tokens", 500_000, 499_000, None)]),
    (OPENROUTER, "any", [("requests", 20, 0, 40.0)]),
])  # fmt: skip
def test_what_the_headers_of_a_provider_say(headers: dict[str, str], style: Any, states: list[tuple[Any, ...]]) -> None:
    expected = [LimitState(unit, limit, remaining, reset and pytest.approx(reset)) for unit, limit, remaining, reset in states]
    assert read_limits(headers, style, NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "-5", "nan", "inf", "1e99", "2m?", "12:30"])
def test_what_cannot_be_read_is_not_said(text: str) -> None:
    for state in read_limits({f"x-ratelimit-{what}-requests": text for what in ("limit", "remaining", "reset")}, "openai", NOW):
        assert (state.limit, state.remaining, state.reset_s) == (None, None, None)


def limiter(provider: str, *, own_address: bool = False) -> RateLimiter:
    return RateLimiter(rules=limit_rules(provider, own_address=own_address))


@pytest.mark.parametrize(("provider", "headers", "requests", "tokens"), [
    ("openai", OPENAI, 60, 150_000), ("groq", GROQ, None, 18_000),  # a limit of a day sets none
])  # fmt: skip
def test_the_limit_of_a_known_provider_sets_the_pace(provider, headers, requests, tokens):
    found = limiter(provider)
    found.observe(headers)
    assert found.per_minute("requests") == (requests and pytest.approx(requests / 1.04))
    assert found.per_minute("tokens") == pytest.approx(tokens / 1.04)
    assert found.counts_tokens


def test_a_server_of_ones_own_is_believed_only_what_is_used_up() -> None:
    found = limiter("openai", own_address=True)
    found.observe(OPENAI)
    assert found.per_minute("requests", "tokens") is None
    assert found.next_start(0.0) == (0.0, "")
    found.observe({**OPENAI, "x-ratelimit-remaining-requests": "0"})
    assert found.next_start(0.0)[1] == "limit used up"


@pytest.mark.parametrize(("reset", "seconds"), [("30s", 30.0), ("23h59m", 0.0)])
def test_a_limit_that_is_used_up_is_waited_for_unless_it_takes_hours(reset: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragpipe.judge.limits.time.monotonic", lambda: 1000.0)
    found = limiter("openai", own_address=True)
    found.observe({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": reset})
    assert found.next_start(1000.0)[0] == 1000.0 + seconds


def test_of_a_known_limit_one_request_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 per minute, at 1/1.04 of it: one is back after 1.248 s, all of them after 60."""
    monkeypatch.setattr("ragpipe.judge.limits.time.monotonic", lambda: 1000.0)
    found = limiter("anthropic")
    found.observe({"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "0"})
    assert found.next_start(1000.0)[0] == pytest.approx(1001.248)


def test_the_lowest_of_a_header_and_the_users_own_holds() -> None:
    found = RateLimiter(40.0, rules=limit_rules("openai", own_address=False))
    found.observe(OPENAI)  # 60 per minute
    assert found.per_minute("requests") == pytest.approx(40)


def test_attempts_after_a_refusal_are_spaced_by_the_learned_pace() -> None:
    """At 0.87 of 4 per second the next starts 0.287 s after the refusal, and each one after it 0.287 s later."""
    found = RateLimiter()
    found.pace.rate = 4.0
    found.pace.record_refusal(999.0, 1000.0)
    for number in range(1, 4):
        start, why = found.next_start(1000.0)
        assert (start, why) == (pytest.approx(1000 + number / (0.87 * 4)), "429")
        found.take(start)


def test_attempts_are_spaced_by_rpm() -> None:
    found, now = RateLimiter(rpm=3000.0), 1000.0
    for number in range(12):
        now, why = found.next_start(now)
        assert (now, why) == (pytest.approx(1000 + number / 50), "rpm" if number else "")
        found.take(now)


COUNTS = {"openai": "max_tokens", "azure": "max_tokens", "anthropic": "used", "gemini": "used", "x": "max_tokens"}


@pytest.mark.parametrize(("provider", "counts"), COUNTS.items())
def test_what_a_server_counts(provider: str, counts: str) -> None:
    assert limit_rules(provider, own_address=False).counts == counts
    assert limit_rules(provider, own_address=True).counts == ("max_tokens" if provider != "azure" else counts)


def test_a_demand_learns_from_usage() -> None:
    """First 3.5 bytes per token; after a reply its ratio. A message counts 8 bytes more than its text."""
    demands = TokenDemand("max_tokens", 500)
    first = demands.of([{"content": "x" * 3492}])
    assert first.tokens == {"tokens": 1000 + 500, "input": 1000, "output": 256}
    assert demands.record(first, 700, 40) == {"tokens": -300, "input": -300, "output": 40 - 256}
    again = demands.of([{"content": "x" * 3492}])
    assert again.tokens == {"tokens": pytest.approx(700 + 500), "input": pytest.approx(700), "output": 40}


def test_a_demand_of_what_is_used_learns_the_length_of_replies() -> None:
    demands = TokenDemand("used", 500)
    first = demands.of([{"content": "x" * 692}])
    assert first.tokens["tokens"] == 200 + 256
    assert demands.record(first, 200, 60)["tokens"] == 260 - 456
    assert demands.of([{"content": "x" * 692}]).tokens["tokens"] == pytest.approx(260)


def failure(http_status: int, message: str, **error: Any) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        parse_response(ApiResponse(http_status, {}, {"error": {"message": message, **error}}))
    return caught.value


def google_failure(quota: str) -> AttemptError:
    """A 429 in the shape of Google's documentation of its error model."""
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota, "quotaValue": "15"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "45.83s"},
    ]
    message = "https://generativelanguage.googleapis.com: quota exceeded for metric"
    return failure(429, message, code=429, status="RESOURCE_EXHAUSTED", details=details)


def test_googles_delay_is_in_the_body_and_a_quota_of_a_day_ends_the_run() -> None:
    error = google_failure("GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
    assert (error.kind, error.retry_after, error.overload) == ("rate_limit", 45.83, False)
    error = google_failure("GenerateRequestsPerDayPerProjectPerModel-FreeTier")
    assert error.kind == "quota"
    assert "GenerateRequestsPerDayPerProjectPerModel-FreeTier" in error.message


@pytest.mark.parametrize(("status", "message", "kind", "overload"), [
    (429, "Too many concurrent requests", "rate_limit", True),
    (429, "Number of request tokens has exceeded your concurrent connections limit", "rate_limit", True),
    (429, "Rate limit reached for gpt-4o on requests per min (RPM): Limit 500", "rate_limit", False),
    (503, "The engine is currently overloaded, please try again later", "server_error", True),
    (529, "Overloaded", "server_error", True),
    (500, "Internal server error", "server_error", False),
    (504, "Gateway timeout", "server_error", False),
])  # fmt: skip
def test_which_failures_are_of_concurrency(status: int, message: str, kind: str, overload: bool) -> None:
    error = failure(status, message)
    assert (error.kind, error.overload) == (kind, overload)


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
