"""Simulated servers with limits, on a virtual clock: the share of refused requests, and the time against the ideal one.

The figures are those of the experiment that chose the pace; the ideal time is that of a client that knows the limit.
"""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
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


def run_virtually(monkeypatch: pytest.MonkeyPatch, work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a virtual clock, which the limits read too."""
    loop = TimerLoop()
    clock = SimpleNamespace(monotonic=loop.time, time=lambda: 1.7e9 + loop.time())
    for module in ("attempts", "limits"):
        monkeypatch.setattr(f"ragpipe.judge.{module}.time", clock)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


@dataclass
class SimulatedServer:
    """A server with limits, as continuous buckets. `log` has the time and the status of each request.

    Args:
        latency_s: seconds from a request to its answer, give or take a fifth.
        rps: requests per second, in the first 50 s and later; None: any number.
        burst: requests in reserve.
        tps: tokens per second; None: any number.
        counts: what it counts for the reply: `max_tokens` on arrival, or what was `used` when it answers.
        width: requests that it takes at once; the next is refused with status 503.
        retry_after: seconds that a refusal asks to wait; None: it does not say.
        at_random: share of requests that it refuses with status 429 whatever their rate, 0 to 1.
    """

    latency_s: float
    rps: tuple[float, float] | None = None
    burst: float = 1.0
    tps: float | None = None
    counts: str = "max_tokens"
    width: int | None = None
    retry_after: float | None = None
    at_random: float = 0.0
    seed: int = 0
    log: list[tuple[float, int]] = field(default_factory=list)
    in_flight: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._requests, self._tokens, self._at, self._began = self.burst, (self.tps or 0) * 2.0, None, None

    @property
    def headers(self) -> dict[str, str]:
        """The limit of a minute, and what is left of it."""
        return {"x-ratelimit-limit-requests": "300", "x-ratelimit-remaining-requests": f"{int(295 + self._requests)}"}

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
        self.log.append((now, 200))
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
            self._requests = min(self.burst, self._requests + passed * self.rps[now - self._began >= 50])
        if self.tps is not None:
            self._tokens = min(2.0 * self.tps, self._tokens + passed * self.tps)

    def _refuse(self, now: float, status: int) -> None:
        self.log.append((now, status))
        kind = "rate_limit" if status == 429 else "server_error"
        raise AttemptError(kind, f"status {status}", retry_after=self.retry_after, overload=status == 503)


async def simulate(
    server: SimulatedServer, calls: int, wide: int, *, tpm: float | None = None, counts: str = "max_tokens",
    rules: LimitRules | None = None,
) -> tuple[float, int]:  # fmt: skip
    """Make so many calls, `wide` at once, with tokens drawn by the server's seed; the first goes alone. Where there are rules
    the server states its limit. Returns the seconds that it took, and the calls that failed."""
    drawn = random.Random(f"tokens {server.seed}")
    loop = asyncio.get_running_loop()
    state = ServerState(RateLimiter(None, tpm, rules))
    settings = SimpleNamespace(concurrency=wide, timeout_s=120.0, retries=12, outage_s=3600.0)
    runner = AttemptRunner(settings, state, tell=lambda _: None, give_up=lambda *said: RuntimeError(*said))
    demands = TokenDemand(counts, MAX_TOKENS)  # type: ignore[arg-type]
    waiting = [(drawn.randint(400, 2600), drawn.randint(40, 300)) for _ in range(calls)][::-1]
    failed = 0

    async def one(tokens_in: int, tokens_out: int) -> None:
        nonlocal failed
        text = "x" * int(tokens_in * drawn.uniform(3.6, 4.8))
        demand = demands.of([{"content": text}]) if state.rate_limiter.counts_tokens else None

        async def send(_: float) -> None:
            try:
                await runner.traffic.count(server.answer(tokens_in, tokens_out, MAX_TOKENS))
            except AttemptError as error:
                if error.retry_after is not None and error.kind == "rate_limit":
                    state.rate_limiter.pause(error.retry_after)
                raise
            finally:
                if rules is not None:
                    state.rate_limiter.observe(server.headers)
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
    return loop.time() - began, failed


TPS_MAX = 5 * (MEAN_TOKENS_IN + MAX_TOKENS)
TPS_USED = 5 * (MEAN_TOKENS_IN + MEAN_TOKENS_OUT)
FIVE = {"rps": (5, 5), "burst": 5}
USED = {"tps": TPS_USED, "counts": "used"}
CASES: dict[str, tuple[float, dict[str, Any], dict[str, Any], int, float, float, float]] = {
    # latency in s; server; client; calls; ideal seconds; most refused of those after the warm-up; most time, in ideal times
    "5 per second, 0.2 s": (0.2, FIVE, {}, 1000, 200.0, 0.03, 1.2),
    "5 per second, 1.0 s": (1.0, FIVE, {}, 1000, 200.0, 0.03, 1.2),
    "5 per second, 5.0 s": (5.0, FIVE, {}, 1000, 200.0, 0.035, 1.2),
    "5 per second, Retry-After": (1.0, {**FIVE, "retry_after": 1.0}, {}, 1000, 200.0, 0.03, 1.1),
    "one in 3 s": (1.0, {"rps": (1 / 3, 1 / 3), "burst": 1}, {}, 150, 450.0, 0.05, 1.2),
    "5 to 20": (1.0, {"rps": (5, 20), "burst": 5}, {}, 1250, 100.0, 0.02, 1.25),
    "20 to 5": (1.0, {"rps": (20, 5), "burst": 5}, {}, 1500, 150.0, 0.05, 1.3),
    "8 at once of 32": (1.0, {"width": 8}, {}, 1000, 125.0, 0.04, 1.15),
    "the limit of a known provider's header": (1.0, FIVE, {"rules": LimitRules("openai")}, 1000, 200.0, 0.003, 1.06),
    "tokens, counted by max_tokens": (1.0, {"tps": TPS_MAX}, {"tpm": TPS_MAX * 60}, 1000, 200.0, 0.01, 1.06),
    "tokens, counted as used": (1.0, USED, {"tpm": TPS_USED * 60, "counts": "used"}, 1000, 200.0, 0.01, 1.06),
    "tokens as used, the client takes max_tokens": (1.0, USED, {"tpm": TPS_USED * 60}, 1000, 200.0, 0.001, 1.3),
    "tokens by max_tokens, the client takes what is used": (
        1.0, {"tps": TPS_MAX}, {"tpm": TPS_MAX * 60, "counts": "used"}, 1000, 200.0, 0.07, 1.1,
    ),
    "tokens, nothing set": (1.0, {"tps": TPS_MAX}, {}, 1000, 200.0, 0.06, 1.1),
}  # fmt: skip


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("name", CASES)
def test_a_limit_holds_over_many_seeds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    latency_s, limits, client, calls, ideal, most_refused, most_time = CASES[name]
    for seed in some_of(range(40), 12):
        random.seed(seed)  # the back-off of calls
        server = SimulatedServer(latency_s, seed=seed, **limits)
        seconds, failed = run_virtually(monkeypatch, simulate(server, calls, 32, **client))
        assert (failed, sum(status == 200 for _, status in server.log)) == (0, calls)
        late = [status for at, status in server.log if at - server.log[0][0] > WARM_UP_S]
        assert sum(status != 200 for status in late) / max(1, len(late)) <= most_refused
        assert 0.9 <= seconds / ideal <= most_time, "0.9: the reserve of the server's bucket"


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("share", "latency_s", "wide"), [(0.05, 0.2, 8), *((x, 1.0, 32) for x in (0.01, 0.05, 0.2, 0.35))])
def test_a_share_that_is_refused_at_any_rate_does_not_slow_a_run_down_without_end(share, latency_s, wide, monkeypatch) -> None:
    calls, seeds = 2000, range(2 if latency_s < 1 else 20)
    for seed in seeds:
        random.seed(seed)
        server = SimulatedServer(latency_s, at_random=share, seed=seed)
        seconds, _ = run_virtually(monkeypatch, simulate(server, calls, wide))
        assert seconds < 4 * calls * latency_s / wide / (1 - share)
