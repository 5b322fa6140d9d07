"""The only place where a call is tried again: at most 1 + `judge.retries` HTTP tries, for every kind of fault."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from ragpipe.judging.clients.base import Fault
from ragpipe.judging.limits import Sleep, backoff

T = TypeVar("T")

RETRYABLE = frozenset({"network", "rate_limit", "server_error", "deadline", "empty_reply", "not_an_api_answer"})
_EMPTY_RETRIES = 2  # at temperature 0 an empty reply is likely to come again, and every one is paid


def _again(error: BaseException) -> bool:
    return isinstance(error, Fault) and error.kind in RETRYABLE and not error.final


def _wait(state: RetryCallState) -> float:
    fault = state.outcome.exception() if state.outcome else None
    if isinstance(fault, Fault) and fault.retry_after is not None:
        return backoff(1)  # the gate holds everybody back for as long as was asked; this spreads them behind it
    return backoff(state.attempt_number)


class Retrying:
    """Tries a call until it succeeds, fails for good, or has used its tries; raises its last Fault."""

    def __init__(self, retries: int, *, sleep: Sleep = asyncio.sleep):
        self._retries, self._sleep = retries, sleep

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            return await attempt()
        except Fault as fault:
            if not _again(fault):
                raise
            failed = [fault]
            empty = int(fault.kind == "empty_reply")

        async def attempts() -> T:  # the loop costs more than the rest of a call: only those that failed once enter it
            nonlocal empty
            if failed:
                raise failed.pop()
            try:
                return await attempt()
            except Fault as fault:
                empty += fault.kind == "empty_reply"
                raise

        def enough(state: RetryCallState) -> bool:
            return state.attempt_number > self._retries or empty > _EMPTY_RETRIES

        loop = AsyncRetrying(retry=retry_if_exception(_again), stop=enough, wait=_wait, sleep=self._sleep, reraise=True)
        return await loop(attempts)
