"""The first call to a model: it goes alone, over all processes, and the user is told while it has no answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ragpipe.judging.limits.rate_limit import Sleep
from ragpipe.judging.limits.shared_provider import BEAT_S, SharedProvider
from ragpipe.judging.transports.attempt_tally import AttemptTally

_NOTICE_AFTER_S = 8.0  # without any answer; the next notice comes after twice as long, and so on


@asynccontextmanager
async def first_turn(
    row: SharedProvider | None, model: str, *, sleep: Sleep, is_proven: Callable[[], bool]
) -> AsyncIterator[None]:
    """Inside, the first question of this process may be asked: the model has answered another process, or none asks it.

    Args:
        row: what all processes know of the provider; None: this one is alone.
        model: the model.
        sleep: waits; it raises when the run ends meanwhile.
        is_proven: whether a call has come back by now.
    """
    while row is not None and await row.ask(lambda known, _: known.may_ask_first(model)) is False:
        await sleep(BEAT_S)
    try:
        yield
    finally:
        if row is not None:
            proven = is_proven()
            row.tell(lambda known, _: known.asked_first(model, is_proven=proven), urgent=True)


async def notify_while_silent(tally: AttemptTally, *, tries: int, place: str, notify: Callable[[str], None]) -> None:
    """Tell the user that the provider has not answered yet, after 8, 16, 32 ... seconds, of up to so many tries."""
    began, wait = time.monotonic(), _NOTICE_AFTER_S
    while True:
        await asyncio.sleep(wait)
        passed = time.monotonic() - began
        text = f"no answer yet from {place} after {passed:.0f} s: try {max(1, tally.attempts)} of {tries}"
        notify(f"{text}; the one before: {tally.last_error}" if tally.last_error else text)
        wait = passed
