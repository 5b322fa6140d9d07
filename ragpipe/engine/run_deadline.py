"""`judge.run_deadline_s`: when no question of a start is asked any more, in whichever process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import JudgeError
from ragpipe.judging.session import JudgeSession


def end_of_asking(config: RunConfig, began: float) -> float | None:
    """When no question is asked any more, in seconds of the epoch, for a start that began at so many monotonic seconds; None: never."""
    seconds: float | None = getattr(config.judge, "run_deadline_s", None)
    return None if seconds is None else time.time() + began + seconds - time.monotonic()


@contextmanager
def run_deadline(config: RunConfig, session: JudgeSession, ends_at: float | None) -> Iterator[None]:
    """Inside, no question is asked after `ends_at` (`end_of_asking`): those that are left fail (kind `run_deadline`)."""
    if ends_at is None:
        yield
        return
    seconds = getattr(config.judge, "run_deadline_s", 0.0)
    why = JudgeError("run_deadline", f"not asked any more: judge.run_deadline_s={seconds:g} s of this start were over")
    timer = asyncio.get_running_loop().call_later(max(0.0, ends_at - time.time()), session.end_asking, why)
    try:
        yield
    finally:
        timer.cancel()
