"""The rate limiter and the width of a provider that all processes share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from ragpipe.judging.limits.limit_headers import Unit, read_limits
from ragpipe.judging.limits.limit_rules import LimitRules
from ragpipe.judging.limits.outage import KnownOutage
from ragpipe.judging.limits.provider_row import AT_ONCE_S, LATE_S, SLOWER, ProviderRow
from ragpipe.judging.limits.rate_limit import RateLimiter, RateState, Sleep
from ragpipe.judging.limits.shared_provider import SharedProvider
from ragpipe.judging.limits.token_demand import Demand
from ragpipe.judging.limits.width import LearnedWidth

_LEAST_WAIT_S = 0.001
_LATE_S = 0.025  # from a reservation to its start, above which the next start is as much later: a busy machine


class SharedRateLimiter(RateLimiter):
    """A rate limiter whose state is that of all processes. Where something limits, each start is reserved in the row first."""

    def __init__(self, rules: LimitRules, provider: SharedProvider):
        super().__init__(rules=rules)
        self.state = RateState(rules, slower=SLOWER, late=LATE_S)
        self._provider = provider
        self._ahead: tuple[int, Mapping[Unit, float] | None, float] = 0, None, 0.0
        self._used_of_last = 1
        provider.followers.append(self._follow)

    def configure(self, rpm: float | None, tpm: float | None) -> None:
        """As of RateLimiter; other processes hold the limits too while this one asks."""
        super().configure(rpm, tpm)
        if rpm is not None:
            self._provider.limit_own("requests", rpm / 60, "rpm")
        if tpm is not None:
            self._provider.limit_own("tokens", tpm / 60, "tpm")

    def _follow(self, row: ProviderRow, ahead: float) -> None:
        if ahead:
            row.rate.shift(-ahead)
        self.state = row.rate

    async def acquire(self, sleep: Sleep = asyncio.sleep, demand: Demand | None = None) -> float:
        """As of RateLimiter."""
        arrived, tokens = time.monotonic(), None if demand is None else demand.tokens
        self._held_by_pace = False
        if demand is not None:
            self._last_demand = demand.tokens
        if self._queue or self.state.is_limited or self.next_start(arrived)[0] > arrived:
            if not self._queue and self._spend(tokens, arrived):
                return arrived
            await self._reserve(sleep, tokens, arrived)
            return time.monotonic()
        return arrived

    async def _reserve(self, sleep: Sleep, tokens: Mapping[Unit, float] | None, arrived: float) -> None:
        async with self._turn():
            while True:
                now = time.monotonic()
                if self._spend(tokens, now):
                    return
                start, why = self.next_start(now)
                if start > now:
                    await self._hold(sleep, start - now, why)
                    continue
                if not self.state.is_limited:
                    return
                self._held_by_pace = self.state.pace.rate is not None and self.state.pace_free_from > arrived
                if await self._start(tokens, now):
                    return
                await sleep(_LEAST_WAIT_S)

    def _spend(self, tokens: Mapping[Unit, float] | None, now: float) -> bool:
        """Use one of the starts that were reserved together."""
        left, each, until = self._ahead
        if left <= 0 or now > until or (tokens is not None and any(tokens[u] > (each or {}).get(u, 0) for u in tokens)):
            return False
        self._ahead = left - 1, each, until
        self._used_of_last += 1
        return True

    async def _start(self, tokens: Mapping[Unit, float] | None, now: float) -> bool:
        """Reserve this start, and some for those that come in the same moment. False: another process was first."""
        starts = max(len(self._queue), 2 * self._used_of_last)
        left, each, _ = self._ahead
        self._ahead = 0, None, 0.0

        def start(row: ProviderRow, ahead: float) -> tuple[int, float]:
            if left:
                row.rate.give_back(each, left)
            return row.start(tokens, starts), row.moment.seconds - ahead

        answer: tuple[int, float] | None = await self._provider.ask(start)
        if answer is None:
            self.state.take(now, tokens)
            return True
        count, reserved = answer
        if count and (late := time.monotonic() - reserved) > _LATE_S:
            self._provider.tell(lambda row, _: row.rate.delay(late), urgent=True)
        if count:
            self._ahead, self._used_of_last = (count - 1, tokens, time.monotonic() + AT_ONCE_S), 1
        return count > 0

    def pause(self, seconds: float) -> None:
        """As of RateLimiter, for all processes."""
        until = time.monotonic() + seconds
        self.state.pause_until(until)
        self._provider.tell(lambda row, ahead: row.rate.pause_until(until + ahead), urgent=True)

    def record_limit(self, started: float) -> None:
        """As of RateLimiter, for all processes."""
        now = time.monotonic()
        self.state.learn_refusal(started, now)
        self._provider.tell(lambda row, ahead: row.rate.learn_refusal(started + ahead, now + ahead), urgent=True)

    def record_success(self) -> None:
        """As of RateLimiter; others learn of it at the next beat."""
        now, is_held = time.monotonic(), self._held_by_pace
        self.state.pace.record_answer(now, is_held=is_held)
        self._provider.tell(lambda row, ahead: row.rate.pace.record_answer(now + ahead, is_held=is_held))

    def settle(self, excess: Mapping[Unit, float]) -> None:
        """As of RateLimiter; others learn of it at the next beat."""
        if self.state.is_limited:
            self.state.correct(excess)
            self._provider.tell(lambda row, _: row.rate.correct(excess))

    def observe(self, headers: Mapping[str, str]) -> None:
        """As of RateLimiter, for all processes."""
        if limits := read_limits(headers, self.rules.style):
            now, needed, before = time.monotonic(), self._last_demand, self.state.used_up_until
            was_limited = self.state.is_limited
            self.state.learn_limits(limits, needed, now)
            urgent = self.state.used_up_until > before or self.state.is_limited != was_limited
            self._provider.tell(lambda row, ahead: row.rate.learn_limits(limits, needed, now + ahead), urgent=urgent)


class SharedWidth(LearnedWidth):
    """How many requests a server takes at once, from all processes together."""

    def __init__(self, provider: SharedProvider):
        super().__init__()
        self._provider = provider
        provider.followers.append(self._follow)

    def _follow(self, row: ProviderRow, ahead: float) -> None:
        self.limit = row.width.limit

    def record_refusal(self, started: float, in_flight: int, now: float) -> None:
        """As of LearnedWidth: with the requests of the other processes."""
        super().record_refusal(started, in_flight, now)

        def refuse(row: ProviderRow, ahead: float) -> None:
            row.width.record_refusal(started + ahead, row.elsewhere(in_flight), now + ahead)

        self._provider.tell(refuse, urgent=True)

    def record_answer(self, *, is_held: bool) -> None:
        """As of LearnedWidth; others learn of it at the next beat."""
        if self.limit is not None and is_held:
            super().record_answer(is_held=True)
            self._provider.tell(lambda row, _: row.width.record_answer(is_held=True))


class SharedOutage:
    """What all processes know of an outage of the provider (`OutageSource`)."""

    def __init__(self, provider: SharedProvider):
        self.known: KnownOutage | None = None
        self._provider = provider
        provider.followers.append(self._follow)

    def _follow(self, row: ProviderRow, ahead: float) -> None:
        self.known = _moved(row.outage, -ahead)

    def silent(self, outage: KnownOutage) -> None:
        """Tell the others that more than one question had no answer."""
        self.known = outage
        self._provider.tell(lambda row, ahead: row.silent(outage.shifted(ahead)), urgent=True)

    def answered(self) -> None:
        """Tell the others that a request was answered."""
        self.known = None
        self._provider.tell(lambda row, _: row.answered(), urgent=True)

    def give_up_probe(self) -> None:
        """The probe of this process has no result."""
        self._provider.tell(lambda row, _: row.give_up_probe(), urgent=True)

    async def look(self, *, for_probe: bool) -> tuple[KnownOutage | None, bool] | None:
        """The outage as it is now, and whether this process may send its probe, where it would."""

        def look(row: ProviderRow, ahead: float) -> tuple[KnownOutage | None, bool]:
            return _moved(row.outage, -ahead), for_probe and row.may_probe()

        answer: tuple[KnownOutage | None, bool] | None = await self._provider.ask(look)
        return answer


def _moved(outage: KnownOutage | None, seconds: float) -> KnownOutage | None:
    return None if outage is None else outage.shifted(seconds)
