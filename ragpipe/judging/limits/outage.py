"""An outage: a provider that has answered and then answers nobody. Everybody waits behind one probe.

Five tries in a row that bring no answer, of whatever calls, begin one. Then one try at a time goes out, after 1, 2, 4 ... 60
seconds, by turns for each waiting question: one that the provider cannot take must not pass for an outage. The first
answer ends it. Its tries are laid to the outage and to no call. Where one question alone has failed it may be the question:
it has so many probes as it had retries, and then fails as a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from ragpipe.judging.clients.client import AttemptError

SILENT = frozenset({"network", "server_error", "deadline"})
"""Kinds of fault that begin an outage: no answer at all, or that of a provider that is ill. A rate limit is none."""
_IN_A_ROW = 5
_FIRST, _LONGEST = 1.0, 60.0  # seconds before a probe
_WORTH_SAYING = 8.0  # seconds before the next probe, from which a failed one is said


@dataclass(eq=False, slots=True)
class _Place:
    """A try that waits: `go` becomes True for the probe, False when the outage is over."""

    who: str
    go: asyncio.Future[bool]


class Outage:
    """The gate of one transport, in one event loop.

    `turn` before each try, then `answered`, `failed` or `lost`. `limit` is how long one may last (`judge.outage_s`), `alone`
    how many probes one question has by itself, `tell` gets the notices, `widen` is called with True when one begins and
    False when it ends. `number` counts outages that more than one question has met.
    """

    def __init__(self, limit: float, alone: int, tell: Callable[[str], None], widen: Callable[[bool], None]):
        self._limit, self._alone, self._tell, self._widen = limit, alone, tell, widen
        self.on = False
        self.number = 0
        self._proven = False
        self._probes_alone = 0
        self._row = 0
        self._who: set[str] = set()  # questions that failed since the last answer
        self._began: float | None = None
        self._wait = _FIRST
        self._next = 0.0
        self._last_probe = ""
        self._probing = False
        self._waiting: list[_Place] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def seconds(self) -> float:
        """How long nobody has had an answer."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def too_long(self) -> bool:
        return self.on and self.seconds >= self._limit

    async def turn(self, who: str) -> bool:
        """Wait until a try for the question `who` may start; whether it is the probe."""
        if not self.on:
            return False
        place = _Place(who, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._schedule()
        try:
            return await place.go
        except asyncio.CancelledError:
            if place.go.done() and not place.go.cancelled() and place.go.result():
                self.lost()
            raise
        finally:
            if place in self._waiting:
                self._waiting.remove(place)

    def answered(self) -> None:
        """Somebody had an answer."""
        if self.on:
            self._tell(f"answering again after {self.seconds:.0f} s")
            self._end()
        self._row, self._began = 0, None
        self._who.clear()

    def failed(self, fault: AttemptError, who: str, *, probe: bool, armed: bool) -> bool:
        """A try for `who` brought no answer. Whether it is laid to an outage, and not to its call. `armed`: the provider
        has answered before."""
        if not probe and (fault.kind not in SILENT or not armed):
            return False
        self._who.add(who)
        now = time.monotonic()
        self._began = self._began or now
        if probe:
            self._after_probe(who, now)
        else:
            self._row += 1
            if not self.on and self._row >= _IN_A_ROW:
                self._begin(fault, now)
        if not self.on:
            return False
        if len(self._who) > 1:
            self.number += not self._proven
            self._proven = True
            return True
        self._probes_alone += probe
        return probe and self._probes_alone <= self._alone

    def lost(self) -> None:
        """The probe ended without a result: it was cancelled."""
        self._probing = False
        self._schedule()

    def release(self) -> None:
        """Let everybody go on: there is nothing to wait for any more."""
        if self.on:
            self._end()

    def _begin(self, fault: AttemptError, now: float) -> None:
        self.on, self._wait, self._last_probe = True, _FIRST, ""
        self._proven, self._probes_alone = False, 0
        self._next = now + min(self._wait, self._left(now))
        self._tell(
            f"paused: {self._row} tries in a row had no answer, the last: {fault.message}; next probe in "
            f"{self._next - now:.0f} s, the run ends after {self._limit:g} s of it"
        )
        self._widen(True)

    def _after_probe(self, who: str, now: float) -> None:
        self._probing, self._last_probe = False, who
        self._wait = min(2 * self._wait, _LONGEST)
        self._next = now + min(self._wait, self._left(now))
        if self._wait >= _WORTH_SAYING:
            self._tell(f"no answer for {self.seconds:.0f} s; next probe in {self._next - now:.0f} s")
        self._schedule()

    def _left(self, now: float) -> float:
        return max(0.0, self._limit - (now - (self._began or now)))

    def _schedule(self) -> None:
        if self.on and not self._probing and self._timer is None and self._waiting:
            wait = max(0.0, self._next - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._send_probe)

    def _send_probe(self) -> None:
        self._timer = None
        ready = [place for place in self._waiting if not place.go.done()]
        if ready:
            first = next((place for place in ready if place.who != self._last_probe), ready[0])
            self._probing = True
            first.go.set_result(True)

    def _end(self) -> None:
        self.on = self._probing = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for place in self._waiting:
            if not place.go.done():
                place.go.set_result(False)
        self._widen(False)
