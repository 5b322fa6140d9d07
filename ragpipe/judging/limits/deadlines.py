"""Deadlines of a case and of a start: times after which nothing more is asked. That of a call is in `retries.py`."""

from __future__ import annotations

import time
from types import TracebackType


class CaseTime:
    """The time that the questions of one case may take together, in seconds.

    It runs while an attempt of the case is under way or pauses before a retry, once for several at a time. It stands still
    while all of them wait for the server: a Retry-After, a limit, an outage. `with` runs it.
    """

    def __init__(self, limit_s: float):
        self.limit_s = limit_s
        self._spent = self._since = 0.0
        self._running = 0

    @property
    def remaining(self) -> float:
        """Seconds that are left; 0 or less: none."""
        running = time.monotonic() - self._since if self._running else 0.0
        return self.limit_s - self._spent - running

    def at_most(self, seconds: float) -> float:
        """These seconds, or what is left where that is less."""
        return min(seconds, max(0.001, self.remaining))

    def __enter__(self) -> None:
        if not self._running:
            self._since = time.monotonic()
        self._running += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running -= 1
        if not self._running:
            self._spent += time.monotonic() - self._since
