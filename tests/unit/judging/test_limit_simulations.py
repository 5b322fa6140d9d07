"""Simulated servers with limits, on a virtual clock: the share of refused requests, and the time against the ideal one.

The figures are those of the experiment that chose the pace; the ideal time is that of a client that knows the limit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ragpipe.judging.limits.limit_headers import LimitRules
from tests.support.thoroughness import some_of
from tests.support.virtual_time import Simulated, SimulatedServer, run_virtually, simulate

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

WARM_UP_S = 20.0
MEAN_TOKENS_IN = 1500.0  # drawn evenly from 400 to 2,600
MEAN_TOKENS_OUT = 170.0  # from 40 to 300
MAX_TOKENS = 512


def five(_: float) -> float:
    return 5.0


def rising(seconds: float) -> float:
    return 5.0 if seconds < 50 else 20.0


def falling(seconds: float) -> float:
    return 20.0 if seconds < 50 else 5.0


def stated(server: SimulatedServer) -> dict[str, str]:
    return {"x-ratelimit-limit-requests": "300", "x-ratelimit-remaining-requests": f"{int(server.left)}"}


TPS_MAX = 5 * (MEAN_TOKENS_IN + MAX_TOKENS)
TPS_USED = 5 * (MEAN_TOKENS_IN + MEAN_TOKENS_OUT)
Make = Callable[[int], SimulatedServer]
CASES: dict[str, tuple[Make, dict[str, Any], int, float, float, float]] = {
    # server by seed; client; calls; ideal seconds; most refused of those after the warm-up; most time, in ideal times
    **{
        f"5 per second, {latency} s": (
            lambda seed, latency=latency: SimulatedServer(latency, five, 5, seed=seed), {}, 1000, 200.0, 0.03, 1.2,
        )
        for latency in (0.2, 1.0, 5.0)
    },
    "5 per second, Retry-After": (
        lambda seed: SimulatedServer(1.0, five, 5, retry_after=1.0, seed=seed), {}, 1000, 200.0, 0.03, 1.1,
    ),
    "one in 3 s": (lambda seed: SimulatedServer(1.0, lambda _: 1 / 3, 1, seed=seed), {}, 150, 450.0, 0.05, 1.2),
    "5 to 20": (lambda seed: SimulatedServer(1.0, rising, 5, seed=seed), {}, 1250, 100.0, 0.02, 1.25),
    "20 to 5": (lambda seed: SimulatedServer(1.0, falling, 5, seed=seed), {}, 1500, 150.0, 0.05, 1.3),
    "8 at once of 32": (lambda seed: SimulatedServer(1.0, width=8, seed=seed), {}, 1000, 125.0, 0.04, 1.15),
    "the limit of a known provider's header": (
        lambda seed: SimulatedServer(1.0, five, 5, seed=seed),
        {"rules": LimitRules(trusts_limits=True), "headers": stated}, 1000, 200.0, 0.003, 1.06,
    ),
    "tokens, counted by max_tokens": (
        lambda seed: SimulatedServer(1.0, tps=TPS_MAX, seed=seed), {"tpm": TPS_MAX * 60}, 1000, 200.0, 0.01, 1.06,
    ),
    "tokens, counted as used": (
        lambda seed: SimulatedServer(1.0, tps=TPS_USED, counts="used", seed=seed),
        {"tpm": TPS_USED * 60, "counts": "used"}, 1000, 200.0, 0.01, 1.06,
    ),
    "tokens as used, the client takes max_tokens": (
        lambda seed: SimulatedServer(1.0, tps=TPS_USED, counts="used", seed=seed), {"tpm": TPS_USED * 60}, 1000, 200.0, 0.001, 1.3,
    ),
    "tokens by max_tokens, the client takes what is used": (
        lambda seed: SimulatedServer(1.0, tps=TPS_MAX, seed=seed), {"tpm": TPS_MAX * 60, "counts": "used"}, 1000, 200.0, 0.05, 1.1,
    ),
    "tokens, nothing set": (lambda seed: SimulatedServer(1.0, tps=TPS_MAX, seed=seed), {}, 1000, 200.0, 0.06, 1.1),
}  # fmt: skip


def simulated(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    make, client, calls, *_ = CASES[name]
    random.seed(seed)  # the back-off of calls
    found = run_virtually(monkeypatch, simulate(make(seed), calls, 32, max_tokens=MAX_TOKENS, **client))
    assert isinstance(found, Simulated)
    return found


def check(name: str, found: Simulated) -> None:
    _, _, calls, ideal, most_refused, most_time = CASES[name]
    assert found.failed == 0
    assert sum(asked.status == 200 for asked in found.log) == calls
    assert found.refused(WARM_UP_S) <= most_refused
    assert 0.9 <= found.seconds / ideal <= most_time, "0.9: the reserve of the server's bucket"


@pytest.mark.parametrize("name", ["5 per second, 0.2 s", "8 at once of 32", "tokens, counted as used"])
def test_a_limit_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, simulated(name, 1, monkeypatch))


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("name", CASES)
def test_a_limit_holds_over_many_seeds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in some_of(range(40), 12):
        check(name, simulated(name, seed, monkeypatch))


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    ("share", "latency_s", "wide"),
    [(0.05, 0.2, 8), *(pytest.param(share, 1.0, 32, marks=pytest.mark.slow) for share in (0.01, 0.05, 0.2, 0.35))],
)
def test_a_share_that_is_refused_at_any_rate_does_not_slow_a_run_down_without_end(
    share: float, latency_s: float, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, seeds = 2000, range(2 if latency_s < 1 else 20)
    for seed in seeds:
        random.seed(seed)
        server = SimulatedServer(latency_s, at_random=share, seed=seed)
        found = run_virtually(monkeypatch, simulate(server, calls, wide))
        assert found.seconds < 4 * calls * latency_s / wide / (1 - share)


def test_no_request_is_sent_before_a_retry_after_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was on its way (30 ms) when the refusal came may still arrive."""
    found = simulated("5 per second, Retry-After", 3, monkeypatch)
    refused = [asked.at for asked in found.log if asked.status == 429]
    early = [asked.at for asked in found.log for at in refused if at + 0.031 < asked.at < at + 1.0]
    assert len(refused) > 5
    assert early == []
