"""Rate-limit headers, with the names and values that the providers' documentation shows, and what a limiter makes of them."""

from typing import Any

import pytest

from ragpipe.judge.client import ApiResponse, AttemptError
from ragpipe.judge.http_responses import parse_response
from ragpipe.judge.limits import LimitState, RateLimiter, TokenDemand, limit_rules, read_limits

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
    headers = {"x-ratelimit-limit-requests": text, "x-ratelimit-remaining-requests": text,
               "x-ratelimit-reset-requests": text}  # fmt: skip
    for state in read_limits(headers, "openai", NOW):
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
    start, why = found.next_start(0.0)
    assert (start, why) == (0.0, "")
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


@pytest.mark.parametrize(
    ("provider", "counts"),
    [("openai", "max_tokens"), ("azure", "max_tokens"), ("anthropic", "used"), ("gemini", "used"), ("x", "max_tokens")],
)
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


GEMINI = "https://generativelanguage.googleapis.com: quota exceeded for metric"


def gemini(delay: str, quota: str) -> ApiResponse:
    """A 429 in the shape of Google's documentation of its error model."""
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota, "quotaValue": "15"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]  # fmt: skip
    return ApiResponse(429, {}, {"error": {"code": 429, "message": GEMINI, "status": "RESOURCE_EXHAUSTED", "details": details}})


def failure(response: ApiResponse) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        parse_response(response)
    return caught.value


def test_googles_delay_is_in_the_body() -> None:
    error = failure(gemini("45.83s", "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"))
    assert (error.kind, error.retry_after, error.overload) == ("rate_limit", 45.83, False)


def test_a_google_quota_of_a_day_ends_the_run() -> None:
    error = failure(gemini("45.83s", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"))
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
    error = failure(ApiResponse(status, {}, {"error": {"message": message}}))
    assert (error.kind, error.overload) == (kind, overload)
