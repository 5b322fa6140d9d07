"""An outage: a provider that has answered before stops answering. All questions wait behind one probe.

Five consecutive attempts without an answer, of any calls, begin an outage, and so do refusals by a rate limit while nothing else is
under way. Then one attempt at a time is sent, after 1, 2, 4
... 60 seconds, for each waiting question in turn: a question that the provider cannot take must not look like an outage.
The first answer ends it. Attempts during an outage are attributed to it and to no call. Where only one question has failed,
the question may be the cause: it gets as many probes as it had retries, and then fails as a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ragpipe.judging.clients.client import AttemptError

SILENT = frozenset({"network", "server_error", "deadline"})
"""Kinds of error that tell of no answer at all, or of an error of the server. They can begin an outage, and so can a rate limit that
refuses one request after the other."""
_CONSECUTIVE = 5  # failed attempts that begin an outage
_FIRST, _LONGEST = 1.0, 60.0  # seconds before the first probe, and at most
_REPORTED_FROM = 8.0  # seconds before the next probe; failed probes with a shorter wait are not reported


class OutageGate:
    """Holds back the attempts of one transport during an outage. It belongs to one event loop.

    Await `acquire` before each attempt, then call `record_answer`, `record_failure` or `abandon_probe`. `active` says
    whether an outage is on, `reason` why in a word or two, `count` how many there were that more than one question met. `next_probe`
    is when the next probe is sent, in monotonic seconds, or was sent.

    Args:
        limit: Seconds that an outage may last (`judge.outage_s`).
        probes_per_question: How many probes a question has where it alone has failed.
        tell: Gets the notices for the user.
        allow_extra: Called with True when an outage begins, with False when it ends.
    """

    def __init__(
        self,
        limit: float,
        probes_per_question: int,
        tell: Callable[[str], None],
        allow_extra: Callable[[bool], None],
    ):
        self._limit, self._probes_per_question = limit, probes_per_question
        self._tell, self._allow_extra = tell, allow_extra
        self.active, self.reason, self.count, self.next_probe = False, "", 0, 0.0
        self._confirmed = False  # more than one question has met this outage
        self._lone_probes = 0
        self._unsaid = ""  # what began it, where that was not told yet
        self._failures = 0  # consecutive
        self._failed_keys: set[str] = set()  # questions that failed since the last answer
        self._silent_since: float | None = None
        self._wait = _FIRST
        self._last_probe_key = ""
        self._probing = False
        self._waiting: list[tuple[str, asyncio.Future[bool]]] = []  # the result: whether it is the probe
        self._timer: asyncio.TimerHandle | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the first failure after the last answer."""
        return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    @property
    def too_long(self) -> bool:
        """Whether the outage has lasted longer than it may."""
        return self.active and self.seconds >= self._limit

    async def acquire(self, key: str) -> bool:
        """Wait until an attempt for the question `key` may start. Whether it is the probe."""
        if not self.active:
            return False
        waiter: tuple[str, asyncio.Future[bool]] = (key, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._schedule()
        try:
            is_probe: bool = await waiter[1]
            return is_probe
        except asyncio.CancelledError:
            if waiter[1].done() and not waiter[1].cancelled() and waiter[1].result():
                self.abandon_probe()
            raise
        finally:
            self._waiting.remove(waiter)

    def record_answer(self) -> None:
        """An attempt was answered: that ends the outage."""
        if self.active and not self._unsaid:
            self._tell(f"answering again after {self.seconds:.0f} s")
        self.release()
        self._failures, self._silent_since = 0, None
        self._failed_keys.clear()

    def record_failure(self, error: AttemptError, key: str, *, probe: bool, answered_before: bool) -> bool:
        """An attempt for `key` got no answer. Whether the failure is attributed to an outage, and not to its call.

        An outage can only begin where the provider has `answered_before`.
        """
        if not probe and (error.kind not in SILENT | {"rate_limit"} or not answered_before):
            return False
        self.reason = "429" if error.kind == "rate_limit" else "no answer"
        self._failed_keys.add(key)
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        if probe:
            self._schedule_next(key, now)
        else:
            self._failures += 1
            if not self.active and self._failures >= _CONSECUTIVE:
                self._begin(error, now)
        if not self.active:
            return False
        if len(self._failed_keys) > 1:
            self.count += not self._confirmed
            self._confirmed = True
            return True
        self._lone_probes += probe
        return probe and self._lone_probes <= self._probes_per_question

    def abandon_probe(self) -> None:
        """The probe was cancelled before it had a result; another may go."""
        self._probing = False
        self._schedule()

    def release(self) -> None:
        """End the outage and let all waiting attempts go on; also where the run is ending."""
        if not self.active:
            return
        self.active = self._probing = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, go in self._waiting:
            if not go.done():
                go.set_result(False)
        self._allow_extra(False)

    def _begin(self, error: AttemptError, now: float) -> None:
        self.active, self._wait, self._last_probe_key = True, _FIRST, ""
        self._confirmed, self._lone_probes = False, 0
        self.next_probe = now + min(self._wait, self._remaining(now))
        self._unsaid = error.message
        if (
            not error.overload and error.kind != "rate_limit"
        ):  # a limit looks like this for a moment: failed probes tell
            self._say_paused(now)
        self._allow_extra(True)

    def _say_paused(self, now: float) -> None:
        self._tell(
            f"paused: {self._failures} tries in a row had no answer, the last: {self._unsaid}; next probe in "
            f"{self.next_probe - now:.0f} s, the run ends after {self._limit:g} s of it"
        )
        self._unsaid = ""

    def _schedule_next(self, key: str, now: float) -> None:
        """Wait twice as long before the next probe."""
        self._probing, self._last_probe_key = False, key
        self._wait = min(2 * self._wait, _LONGEST)
        self.next_probe = now + min(self._wait, self._remaining(now))
        if self._unsaid and (self.reason != "429" or self._wait >= _REPORTED_FROM):
            self._say_paused(now)
        elif self._wait >= _REPORTED_FROM:
            self._tell(f"no answer for {self.seconds:.0f} s; next probe in {self.next_probe - now:.0f} s")
        self._schedule()

    def _remaining(self, now: float) -> float:
        return max(0.0, self._limit - (now - (self._silent_since or now)))

    def _schedule(self) -> None:
        if self.active and not self._probing and self._timer is None and self._waiting:
            wait = max(0.0, self.next_probe - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._send_probe)

    def _send_probe(self) -> None:
        self._timer = None
        ready = [waiter for waiter in self._waiting if not waiter[1].done()]
        if ready:
            _, go = next((waiter for waiter in ready if waiter[0] != self._last_probe_key), ready[0])
            self._probing = True
            go.set_result(True)
