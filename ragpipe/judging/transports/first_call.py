"""The notices while the first call to a model has no answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ragpipe.judging.transports.attempt_tally import AttemptTally

_NOTICE_AFTER_S = 8.0  # without any answer; the next notice comes after twice as long, and so on


async def notify_while_silent(tally: AttemptTally, *, tries: int, place: str, notify: Callable[[str], None]) -> None:
    """Tell the user that the provider has not answered yet, after 8, 16, 32 ... seconds, of up to so many tries."""
    began, wait = time.monotonic(), _NOTICE_AFTER_S
    while True:
        await asyncio.sleep(wait)
        passed = time.monotonic() - began
        text = f"no answer yet from {place} after {passed:.0f} s: try {max(1, tally.attempts)} of {tries}"
        notify(f"{text}; the one before: {tally.last_error}" if tally.last_error else text)
        wait = passed
