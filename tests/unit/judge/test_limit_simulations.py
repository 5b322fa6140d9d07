"""Simulated servers with limits, on a virtual clock: the share of refused requests, and the time against the ideal one.

The figures are those of the experiment that chose the pace; the ideal time is that of a client that knows the limit.
"""

import asyncio
import random
import types
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ragpipe.judge.attempts import AttemptRunner, ServerState, Tally
from ragpipe.judge.client import AttemptError
from ragpipe.judge.limits import LimitRules, RateLimiter, TokenDemand
from tests.support.thoroughness import some_of
from tests.support.timer_loop import TimerLoop

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

WARM_UP_S = 20.0
MEAN_TOKENS_IN = 1500.0  # drawn evenly from 400 to 2,600
MEAN_TOKENS_OUT = 170.0  # from 40 to 300
MAX_TOKENS = 512


_MODULES = ("attempts", "limits")


def run_virtually(monkeypatch: pytest.MonkeyPatch, work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a virtual clock, which the limits read too."""
    loop = TimerLoop()
    clock = types.SimpleNamespace(monotonic=loop.time, time=lambda: 1.7e9 + loop.time())
    for module in _MODULES:
        monkeypatch.setattr(f"ragpipe.judge.{module}.time", clock)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


@dataclass(frozen=True)
class Asked:
    """One request as the server saw it: `at` seconds, and the status of its answer."""

    at: float
    status: int


@dataclass
class SimulatedServer:
    """A server with limits, as continuous buckets: `rps` requests per second at a time, `tps` tokens per second.

    Args:
        latency_s: seconds from a request to its answer, give or take a fifth.
        rps: requests per second at a time in seconds since the first request; None: any number.
        burst: requests in reserve.
        tps: tokens per second; None: any number.
        counts: what it counts for the reply: `max_tokens` on arrival, or what was `used` when it answers.
        width: requests that it takes at once; the next is refused with status 503.
        retry_after: seconds that a refusal asks to wait; None: it does not say.
        at_random: share of requests that it refuses with status 429 whatever their rate, 0 to 1.
    """

    latency_s: float
    rps: Callable[[float], float] | None = None
    burst: float = 1.0
    tps: float | None = None
    counts: str = "max_tokens"
    width: int | None = None
    retry_after: float | None = None
    at_random: float = 0.0
    seed: int = 0
    log: list[Asked] = field(default_factory=list)
    in_flight: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._requests, self._tokens, self._at, self._began = self.burst, (self.tps or 0) * 2.0, None, None

    @property
    def left(self) -> float:
        """Requests in reserve, of those of a minute: as a header would state it."""
        return 295 + self._requests

    async def answer(self, tokens_in: int, tokens_out: int, max_tokens: int) -> None:
        """Take one request. Raises AttemptError where it is refused."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._random.uniform(0.005, 0.03))  # the way here: requests may overtake each other
        now = loop.time()
        self._refill(now)
        counted = tokens_in + (max_tokens if self.counts == "max_tokens" else 0)
        if self.width is not None and self.in_flight >= self.width:
            self._refuse(now, 503)
        if self.at_random and self._random.random() < self.at_random:
            self._refuse(now, 429)
        if (self.rps is not None and self._requests < 1) or (self.tps is not None and self._tokens < counted):
            self._refuse(now, 429)
        self._requests -= 1
        self._tokens -= counted
        self.log.append(Asked(now, 200))
        self.in_flight += 1
        try:
            await asyncio.sleep(self.latency_s * self._random.uniform(0.8, 1.2))
        finally:
            self.in_flight -= 1
        if self.counts == "used":
            self._refill(loop.time())
            self._tokens -= tokens_out

    def _refill(self, now: float) -> None:
        if self._at is None:
            self._at = self._began = now
        passed, self._at = now - self._at, now
        if self.rps is not None:
            self._requests = min(self.burst, self._requests + passed * self.rps(now - self._began))
        if self.tps is not None:
            self._tokens = min(2.0 * self.tps, self._tokens + passed * self.tps)

    def _refuse(self, now: float, status: int) -> None:
        self.log.append(Asked(now, status))
        kind = "rate_limit" if status == 429 else "server_error"
        raise AttemptError(kind, f"status {status}", retry_after=self.retry_after, overload=status == 503)


@dataclass
class _Settings:
    concurrency: int
    timeout_s: float = 120.0
    retries: int = 12
    outage_s: float = 3600.0


@dataclass(frozen=True)
class Simulated:
    """What came of a simulation: the server's log, the seconds it took, the calls that failed, what was learned."""

    log: list[Asked]
    seconds: float
    failed: int
    limiter: RateLimiter

    def refused(self, after_s: float) -> float:
        """The share of requests refused later than so many seconds after the first."""
        late = [asked for asked in self.log if asked.at - self.log[0].at > after_s]
        return sum(asked.status != 200 for asked in late) / max(1, len(late))


async def simulate(
    server: SimulatedServer, calls: int, wide: int, *, tpm: float | None = None, rpm: float | None = None,
    counts: str = "max_tokens", max_tokens: int = 512, rules: LimitRules | None = None,
    headers: Callable[[SimulatedServer], Mapping[str, str]] | None = None,
) -> Simulated:  # fmt: skip
    """Make so many calls, `wide` at once, with tokens drawn by the server's seed; the first goes alone."""
    drawn = random.Random(f"tokens {server.seed}")
    loop = asyncio.get_running_loop()
    state = ServerState(RateLimiter(rpm, tpm, rules))
    runner = AttemptRunner(
        _Settings(wide), state, tell=lambda _: None, give_up=lambda seconds, message: RuntimeError(f"{seconds} {message}")
    )
    demands = TokenDemand(counts, max_tokens)  # type: ignore[arg-type]
    waiting = [(drawn.randint(400, 2600), drawn.randint(40, 300)) for _ in range(calls)]
    waiting.reverse()
    failed = 0

    async def one(tokens_in: int, tokens_out: int) -> None:
        nonlocal failed
        text = "x" * int(tokens_in * drawn.uniform(3.6, 4.8))
        demand = demands.of([{"content": text}]) if state.rate_limiter.counts_tokens else None

        async def send(_: float) -> None:
            try:
                await runner.traffic.count(server.answer(tokens_in, tokens_out, max_tokens))
            except AttemptError as error:
                if error.retry_after is not None and error.kind == "rate_limit":
                    state.rate_limiter.pause(error.retry_after)
                raise
            finally:
                if headers is not None:
                    state.rate_limiter.observe(headers(server))
            if demand is not None:
                state.rate_limiter.settle(demands.record(demand, tokens_in, tokens_out))

        try:
            await runner.run(str(len(waiting)), send, Tally(demand=demand))
        except AttemptError:
            failed += 1

    async def worker() -> None:
        while waiting:
            await one(*waiting.pop())

    began = loop.time()
    await one(*waiting.pop())
    await asyncio.gather(*(worker() for _ in range(wide)))
    return Simulated(server.log, loop.time() - began, failed, state.rate_limiter)


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
            lambda seed, latency=latency: SimulatedServer(latency, five, 5, seed=seed), {}, 1000, 200.0, 0.035 if latency > 1 else 0.03, 1.2,
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
        {"rules": LimitRules("openai"), "headers": stated}, 1000, 200.0, 0.003, 1.06,
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
        lambda seed: SimulatedServer(1.0, tps=TPS_MAX, seed=seed), {"tpm": TPS_MAX * 60, "counts": "used"}, 1000, 200.0, 0.07, 1.1,
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


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("name", CASES)
def test_a_limit_holds_over_many_seeds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in some_of(range(40), 12):
        check(name, simulated(name, seed, monkeypatch))


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    ("share", "latency_s", "wide"),
    [(0.05, 0.2, 8), *(pytest.param(share, 1.0, 32, marks=pytest.mark.slow) for share in (0.01, 0.05, 0.2, 0.35))],
)
def test_a_share_that_is_refused_at_any_rate_does_not_slow_a_run_down_without_end(share, latency_s, wide, monkeypatch) -> None:
    calls, seeds = 2000, range(2 if latency_s < 1 else 20)
    for seed in seeds:
        random.seed(seed)
        server = SimulatedServer(latency_s, at_random=share, seed=seed)
        found = run_virtually(monkeypatch, simulate(server, calls, wide))
        assert found.seconds < 4 * calls * latency_s / wide / (1 - share)
