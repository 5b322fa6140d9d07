"""An outage: a provider that has answered before stops answering. All questions wait behind one probe.

Five consecutive attempts without an answer, of any calls, begin an outage, and so do refusals by a rate limit while nothing else is
under way. Then one attempt at a time is sent, after 1, 2, 4 ... 60 seconds, for each waiting question in turn. The first answer ends
it. Attempts during an outage that more than one question has met are attributed to it and to no call: a question that the provider
cannot take must not look like an outage.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.limits.width import Slots

SILENT = frozenset({"network", "server_error", "deadline"})
"""Kinds of error that tell of no answer at all, or of an error of the server. They can begin an outage, and so can a rate limit that
refuses one request after the other."""
_CONSECUTIVE = 5  # failed attempts that begin an outage
_FIRST, _LONGEST = 1.0, 60.0  # seconds before the first probe, and at most
_REPORTED_FROM = 8.0  # seconds before the next probe; failed probes with a shorter wait are not reported


class OutageGate:
    """Holds back the attempts of one transport during an outage. It belongs to one event loop.

    Await `acquire` before each attempt, then call `record_answer` or `record_failure`, and `end_probe` where the attempt was one.
    `active` says whether an outage is on, `reason` why in a word or two. `next_probe` is when the next probe is sent, in monotonic
    seconds, or was sent.

    Args:
        limit: Seconds that an outage may last (`judge.outage_s`).
        questions: The questions under way. One more is let in during an outage, so that another question can be the probe.
        tell: Gets the notices for the user.
    """

    def __init__(self, limit: float, questions: Slots, tell: Callable[[str], None]):
        self._limit, self._questions, self._tell = limit, questions, tell
        self.active, self.reason, self.next_probe = False, "", 0.0
        self._failures = 0  # consecutive
        self._failed_keys: set[str] = set()  # questions that failed since the last answer
        self._silent_since = 0.0  # the first of these failures
        self._wait = _FIRST
        self._is_told = False
        self._probe, self._over = asyncio.Lock(), asyncio.Event()  # the lock is held by whoever is the next probe

    @property
    def seconds(self) -> float:
        """Seconds since the first failure after the last answer."""
        return time.monotonic() - self._silent_since if self._failed_keys else 0.0

    async def acquire(self) -> bool:
        """Wait until an attempt may start. Whether it is the probe."""
        if not self.active:
            return False
        await self._probe.acquire()
        try:
            while self.active and (wait := self.next_probe - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._over.wait()
        except BaseException:
            self.end_probe()
            raise
        if not self.active:
            self.end_probe()
        return self.active

    def end_probe(self) -> None:
        """The probe has a result, or was given up: another may go."""
        self._probe.release()

    def record_answer(self) -> None:
        """An attempt was answered: that ends the outage."""
        if self.active and self._is_told:
            self._tell(f"answering again after {self.seconds:.0f} s")
        self.release()
        self._failures = 0
        self._failed_keys.clear()

    def record_failure(self, error: AttemptError, key: str, *, probe: bool) -> bool:
        """An attempt for `key` got no answer. Whether the failure is attributed to an outage, and not to its call."""
        now = time.monotonic()
        if not self._failed_keys:
            self._silent_since = now
        self._failed_keys.add(key)
        self.reason = "429" if error.kind == "rate_limit" else "no answer"
        left = max(0.0, self._limit - self.seconds)
        if probe:
            self._wait = min(2 * self._wait, _LONGEST)
            self.next_probe = now + min(self._wait, left)
            if self._wait >= _REPORTED_FROM:
                self._is_told = True
                self._tell(
                    f"no answer for {self.seconds:.0f} s, the last: {error.message}; next probe in {self.next_probe - now:.0f} s, "
                    f"the run ends after {self._limit:g} s of it"
                )
        else:
            self._failures += 1
            if not self.active and self._failures >= _CONSECUTIVE:
                self.active, self._is_told, self._wait = True, False, _FIRST
                self.next_probe = now + min(_FIRST, left)
                self._over.clear()
                self._questions.most += 1
                self._questions.admit()
        return self.active and len(self._failed_keys) > 1

    def release(self) -> None:
        """End the outage and let all waiting attempts go on; also where the run is ending."""
        if self.active:
            self.active = False
            self._over.set()
            self._questions.most -= 1
