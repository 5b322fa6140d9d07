"""How a run is asked to end early, from whichever thread."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Protocol

from ragpipe.core.errors import Interrupted, RagpipeError


class Stoppable(Protocol):
    """A stage that asks somebody: a judge, or a system under test."""

    def stop(self, why: RagpipeError) -> None:
        """Ask nothing new; what is in flight lands. The stage then raises `why`."""
        ...

    def cancel(self) -> None:
        """Give up what is in flight."""
        ...


class GracefulShutdown:
    """The end of one run, over all the loops that it works on one after another. `why` is set once it is to end.

    `owns_process` says that the process is the run's own: only such a one may be ended with it.
    """

    def __init__(self, *, owns_process: bool = True):
        self.why: RagpipeError | None = None
        self.say: Callable[[str], None] = lambda _: None
        self.owns_process = owns_process
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._stage: Stoppable | None = None
        self._timer: threading.Timer | None = None

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> GracefulShutdown:
        """That of the work on this loop; one that nobody else knows for a loop that `run_async` did not make."""
        return _working.get(loop) or cls()

    def begin(self) -> None:
        """The current task begins its work: until it has a stage, it is itself what is cancelled."""
        self._loop, self._task, self._stage = asyncio.get_running_loop(), asyncio.current_task(), None
        _working[self._loop] = self

    def end(self) -> None:
        """The loop is at rest."""
        if self._timer:
            self._timer.cancel()
        if self._loop:
            _working.pop(self._loop, None)
        self._loop = self._task = self._stage = None

    def attach(self, stage: Stoppable, say: Callable[[str], None]) -> None:
        """From here on it is the stage that ends, not its task: a task that is cancelled would leave calls behind."""
        self._stage, self._task, self.say = stage, None, say
        if self.why:
            stage.stop(self.why)

    def detach(self) -> None:
        """The stage is done; what is left closes its files, and is not disturbed."""
        self._stage = None

    def drain(self, why: RagpipeError) -> None:
        """Let nothing new begin; what is in flight lands. From any thread."""
        self.why = self.why or why
        self._in_loop(self._drain)

    def cancel(self) -> None:
        """Give up what is in flight. From any thread."""
        self._in_loop(self._cancel)

    def arm(self, seconds: float, leave: Callable[[], None]) -> None:
        """Leave the process after so many seconds, unless the loop is at rest by then. A thread does it: the loop itself
        may be what hangs. A process that is not the run's own is left alone."""
        if self.owns_process:
            if self._timer:
                self._timer.cancel()
            self._timer = threading.Timer(seconds, leave)
            self._timer.daemon = True
            self._timer.start()

    def _drain(self) -> None:
        if self._stage and self.why:
            self._stage.stop(self.why)
        elif self._task:
            self._task.cancel()

    def _cancel(self) -> None:
        if self._stage:
            self._stage.cancel()
        elif self._task:
            self._task.cancel()

    def _in_loop(self, do: Callable[[], None]) -> None:
        if loop := self._loop:
            with suppress(RuntimeError):  # it was closed meanwhile: there is nothing left to end
                loop.call_soon_threadsafe(do)


_working: dict[asyncio.AbstractEventLoop, GracefulShutdown] = {}  # for `Signals`, which knows its loop alone
_current: ContextVar[GracefulShutdown | None] = ContextVar("ending", default=None)
_stoppable: set[GracefulShutdown] = set()


def current_shutdown() -> GracefulShutdown | None:
    """That of the run that this code works for, None where it was not started by `ragpipe.run`."""
    return _current.get()


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, `stop_all` ends the run, in whichever thread it is."""
    ending = GracefulShutdown(owns_process=False)
    before = _current.set(ending)
    _stoppable.add(ending)
    try:
        yield
    finally:
        _stoppable.discard(ending)
        _current.reset(before)


def stop_all() -> int:
    """Ask every run that is inside `stoppable` to end early. Returns how many there are; does not wait for them."""
    found = tuple(_stoppable)
    for ending in found:
        ending.drain(Interrupted("stopped by ragpipe.stop", signal.SIGTERM))
    return len(found)
