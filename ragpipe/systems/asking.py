"""Asking a live system: the requests for one answer, within the limits of its address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from ragpipe.core.errors import FailureKind, Incomplete, ProviderUnusable, RagpipeError
from ragpipe.judging.limits.attempts import AttemptRunner
from ragpipe.judging.limits.rate_limit import Demand, RateLimiter
from ragpipe.schema.sample import Sample
from ragpipe.systems.live_system import LiveMethod
from ragpipe.systems.settings import LiveSystem
from ragpipe.systems.system_failures import SystemFailure, failure_of_exception

_LIMITS = ("concurrency", "rpm", "timeout_s", "retries", "retry_after_cap_s", "outage_s")


@dataclass(slots=True)
class AskTally:
    """The requests for one answer. `latency_ms` is the time of the last one alone, `waited_ms` that of everything before it:
    failed requests, waits between them, the rate limit, an outage."""

    attempts: int = 0
    last_error: str = ""
    latency_ms: float | None = None
    waited_ms: float = 0.0
    began: float = field(default_factory=time.monotonic)
    demand: Demand | None = None


class AddressLimits:
    """The limits of one address, which all methods behind it share: slots, rate, retries, outages. It belongs to one event
    loop. `tell` gets notices for the user."""

    def __init__(self, settings: LiveSystem, tell: Callable[[str], None]):
        self._settings = settings
        self.place = settings.place
        self.rate_limiter = RateLimiter(settings.rpm)
        self.answered = False
        self.attempts = AttemptRunner(
            settings, self, give_up=self._end_of_outage, tell=lambda text: tell(f"system at {self.place}: {text}")
        )

    def respect_wait(self, failure: SystemFailure, seconds: float) -> None:
        """Hold all requests back for as long as a rate limit asks. Raises Incomplete where any failure asks for longer than the
        settings allow."""
        cap = self._settings.retry_after_cap_s
        if seconds > cap:
            back = datetime.now().astimezone() + timedelta(seconds=seconds)
            raise Incomplete(
                f"the system at {self.place} asks to wait {seconds:,.0f} s, more than system.retry_after_cap_s={cap:g}: come "
                f"back after {back:%Y-%m-%d %H:%M:%S %Z} and start the same command again; what it answered is kept"
            )
        if failure.kind == "rate_limit":
            self.rate_limiter.pause(seconds)

    def _end_of_outage(self, seconds: float, message: str) -> RagpipeError:
        return ProviderUnusable(
            f"the system at {self.place}: no answer for {seconds:.0f} s (system.outage_s={self._settings.outage_s:g}), the "
            f"last: {message}. What it answered is kept: the same command goes on from here"
        )


def shared_limits(methods: Iterable[LiveMethod], tell: Callable[[str], None]) -> list[AddressLimits]:
    """The limits of each method: one object for all methods of one address whose settings have the same limits."""
    limits: dict[tuple[Any, ...], AddressLimits] = {}
    found = []
    for method in methods:
        settings = method.settings
        key = (settings.kind, settings.place, *(getattr(settings, name) for name in _LIMITS))
        if key not in limits:
            limits[key] = AddressLimits(settings, tell)
        found.append(limits[key])
    return found


async def ask(
    method: LiveMethod, limits: AddressLimits, sample: Sample, key: str, tally: AskTally
) -> Mapping[str, Any]:
    """The raw answer of one method to one sample, after as many requests as the settings allow. Hold a slot meanwhile.

    Args:
        method: who is asked.
        limits: those of its address.
        sample: the question.
        key: names the answer among all that are under way.
        tally: counts the requests and their times.

    Raises SystemFailure, with what the last request met; Incomplete or ProviderUnusable where nothing more is to be asked.
    """
    return await limits.attempts.run(key, partial(_send, method, limits, sample, tally), tally)


async def _send(
    method: LiveMethod, limits: AddressLimits, sample: Sample, tally: AskTally, seconds: float
) -> Mapping[str, Any]:
    """One request, with its own time limit in seconds."""
    start = time.monotonic()
    tally.waited_ms = round((start - tally.began) * 1000, 3)
    try:
        if method.costs is None:
            return await limits.attempts.traffic.count(_answer(method, sample, seconds))
        return await method.costs.send(lambda: limits.attempts.traffic.count(_answer(method, sample, seconds)))
    except SystemFailure as failure:
        if failure.retry_after is not None:
            limits.respect_wait(failure, failure.retry_after)
        if failure.no_connection and not limits.answered:
            failure.permanent = True
        raise
    finally:
        tally.latency_ms = round((time.monotonic() - start) * 1000, 3)


async def _answer(method: LiveMethod, sample: Sample, seconds: float) -> Mapping[str, Any]:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await method.system.answer(sample)
    except SystemFailure:
        raise
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise  # this collection is given up; without that, the system has raised it
        if limit.expired() and isinstance(error, TimeoutError):  # the system may raise one of its own
            # to ask again what goes on would let two answers to one question be under way
            kind: FailureKind = "bad_request" if method.settings.goes_on else "deadline"
            raise SystemFailure(kind, f"timeout after {seconds:g} s") from None
        if isinstance(error, RagpipeError):
            raise SystemFailure("bad_request", str(error)[:500]) from error
        raise failure_of_exception(error) from error
