"""Simulated servers on a clock that jumps from event to event: the real attempts, limits and retries, hours in a second."""

import asyncio
import random
import types
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.limits.attempts import AttemptRunner
from ragpipe.judging.limits.limit_headers import LimitRules
from ragpipe.judging.limits.rate_limit import Demand, RateLimiter, TokenDemand

_MODULES = ("attempts", "outage", "rate_limit")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where nothing is ready, the clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual = 1000.0

    def time(self) -> float:
        return self._virtual

    def _run_once(self) -> None:
        timers = self._scheduled  # type: ignore[attr-defined]
        if not self._ready and timers:  # type: ignore[attr-defined]
            self._virtual = max(self._virtual, timers[0]._when)
        super()._run_once()  # type: ignore[misc]


def run_virtually(monkeypatch: pytest.MonkeyPatch, work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a virtual clock, which the limits read too."""
    loop = VirtualLoop()
    clock = types.SimpleNamespace(monotonic=loop.time, time=lambda: 1.7e9 + loop.time())
    for module in _MODULES:
        monkeypatch.setattr(f"ragpipe.judging.limits.{module}.time", clock)
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
class _Tally:
    demand: Demand | None
    attempts: int = 0
    last_error: str = ""
    latency_ms: float | None = None


@dataclass
class _Settings:
    concurrency: int
    timeout_s: float = 120.0
    retries: int = 12
    outage_s: float = 3600.0


@dataclass
class _State:
    rate_limiter: RateLimiter
    answered: bool = False


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
    state = _State(RateLimiter(rpm, tpm, rules))
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
            await runner.run(str(len(waiting)), send, _Tally(demand))
        except AttemptError:
            failed += 1

    async def worker() -> None:
        while waiting:
            await one(*waiting.pop())

    began = loop.time()
    await one(*waiting.pop())
    await asyncio.gather(*(worker() for _ in range(wide)))
    return Simulated(server.log, loop.time() - began, failed, state.rate_limiter)
