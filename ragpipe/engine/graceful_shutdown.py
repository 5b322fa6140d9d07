"""How a run is asked to end early, from any thread."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import NoReturn, Protocol

from ragpipe.core.errors import Interrupted, OutputError, RagpipeError, SignalReceived


class Stoppable(Protocol):
    """A stage that calls a judge, or a system under test."""

    def stop(self, why: RagpipeError) -> None:
        """Start no new call; those in flight finish. The stage then raises `why`."""
        ...

    def cancel(self) -> None:
        """Give up the calls in flight."""
        ...


class GracefulShutdown:
    """The early end of one run, across all event loops that it uses one after another. `reason` is set once it is to end.

    `owns_process` says that the process belongs to the run: only such a process may be ended with it.
    """

    def __init__(self, *, owns_process: bool = True):
        self.reason: RagpipeError | None = None
        self.say: Callable[[str], None] = lambda _: None
        self.owns_process, self._pid = owns_process, os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._stage: Stoppable | None = None
        self._timer: threading.Timer | None = None

    @classmethod
    def of_loop(cls, loop: asyncio.AbstractEventLoop) -> GracefulShutdown:
        """The shutdown of the work on this loop; a new one for a loop that `run_async` did not make."""
        return _by_loop.get(loop) or cls()

    def enter_loop(self) -> None:
        """The current task begins its work: until it attaches a stage, the task itself is what gets cancelled."""
        self._loop, self._task, self._stage = asyncio.get_running_loop(), asyncio.current_task(), None
        _by_loop[self._loop] = self

    def leave_loop(self) -> None:
        """The loop has finished."""
        if self._timer:
            self._timer.cancel()
        if self._loop:
            _by_loop.pop(self._loop, None)
        self._loop = self._task = self._stage = None

    def attach(self, stage: Stoppable, say: Callable[[str], None]) -> None:
        """From here on the stage is stopped, not its task: a cancelled task would leave calls behind."""
        self._stage, self._task, self.say = stage, None, say
        if self.reason:
            stage.stop(self.reason)

    def detach(self) -> None:
        """The stage is done; what remains is closing its files, which is not interrupted."""
        self._stage = None

    def drain(self, reason: RagpipeError) -> None:
        """Start nothing new; calls in flight finish. From any thread."""
        self.reason = self.reason or reason
        self._call_in_loop(self._drain)

    def cancel(self) -> None:
        """Give up the calls in flight. From any thread."""
        self._call_in_loop(self._cancel)

    def exit_after(self, seconds: float, exit_process: Callable[[], None]) -> None:
        """Exit the process after so many seconds, unless the loop has finished by then. A thread does it: the loop itself may
        be what hangs. A process that is not the run's own is left alone."""
        if self.owns_process:
            if self._timer:
                self._timer.cancel()
            self._timer = threading.Timer(seconds, exit_process)
            self._timer.daemon = True
            self._timer.start()

    def _drain(self) -> None:
        if self._stage and self.reason:
            self._stage.stop(self.reason)
        elif self._task:
            self._task.cancel()

    def _cancel(self) -> None:
        if self._stage:
            self._stage.cancel()
        elif self._task:
            self._task.cancel()

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        if loop := self._loop:
            with suppress(RuntimeError):  # the loop was closed meanwhile: there is nothing left to end
                loop.call_soon_threadsafe(callback)


_by_loop: dict[asyncio.AbstractEventLoop, GracefulShutdown] = {}  # for `SignalHandlers`, which knows only its loop
_current: ContextVar[GracefulShutdown | None] = ContextVar("shutdown", default=None)
_stoppable: set[GracefulShutdown] = set()


def current_shutdown() -> GracefulShutdown | None:
    """The shutdown of the run that this code works for; None when `ragpipe.run` did not start it."""
    return _current.get()


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, `stop_all` ends the run, in whichever thread it is. Raises OutputError in a process that was forked during a run: the
    locks of its threads would never be freed here."""
    if any(shutdown._pid != os.getpid() for shutdown in tuple(_stoppable)):
        raise OutputError(
            "this process was forked while a run went on in its parent. To fix: start it before the run, or by "
            "multiprocessing.get_context('spawn')."
        )
    shutdown = GracefulShutdown(owns_process=False)
    token = _current.set(shutdown)
    _stoppable.add(shutdown)
    try:
        yield
    finally:
        _stoppable.discard(shutdown)
        _current.reset(token)


def stop_all() -> int:
    """Ask every run inside `stoppable` to end early. Returns how many there are; does not wait for them."""
    shutdowns = tuple(_stoppable)
    for shutdown in shutdowns:
        shutdown.drain(Interrupted("stopped by ragpipe.stop", signal.SIGTERM))
    return len(shutdowns)


_SIGNAL_VARIABLE = "SUBMITIT_PREEMPT_SIGNAL"  # submitit's: the name of its signal without SIG


class Preemption:
    """The handler of submitit's signal while a job runs.

    submitit's own handler puts the job into the queue and raises SystemExit wherever the process is: within a metric that would
    count as an error of the metric. This one interrupts the run as a signal of the terminal does, and `end` does the rest.
    """

    def __init__(self, number: int, requeue: Callable[[int, FrameType | None], object]):
        self.arrived = False
        self._number, self._requeue = number, requeue

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        self.arrived = True
        raise SignalReceived(number)

    def end(self) -> None:
        """Do what submitit does at its signal. Raises SystemExit, or submitit's error where the job had its last chance."""
        self._requeue(self._number, None)

    def exit_code(self) -> int:
        """Do what submitit does at its signal, and return the exit code that it asks for. Raises submitit's error."""
        try:
            self.end()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        return 128 + self._number


@contextmanager
def preemptible() -> Iterator[Preemption | None]:
    """Inside, the handler that it gives takes submitit's signal. None where submitit did not start this process, and in a thread
    that is not the main one, which alone takes signals."""
    number = getattr(signal, f"SIG{os.environ.get(_SIGNAL_VARIABLE, 'USR2')}", None)
    requeue = None if number is None else signal.getsignal(number)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if number is None or not callable(requeue) or "SUBMITIT_EXECUTOR" not in os.environ or not in_main_thread:
        yield None
        return
    preemption = Preemption(number, requeue)
    signal.signal(number, preemption)
    try:
        yield preemption
    finally:
        signal.signal(number, requeue)
