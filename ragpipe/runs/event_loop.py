"""One event loop per run, and what ends it early: signals, an interrupted notebook cell, `ragpipe.stop`."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any, NoReturn, Protocol, TypeVar

from ragpipe.core.errors import Interrupted, OutputError, RagpipeError, SignalReceived

T = TypeVar("T")

TERM_GRACE_S = 5.0
"""Seconds that calls in flight may still take after SIGTERM or SIGHUP before they are cancelled."""
TERM_EXIT_S = 7.5
"""Seconds after SIGTERM or SIGHUP at which the process ends, whatever still hangs: containers are killed after 10."""
TWICE_EXIT_S = 1.2
"""The same, after a second signal."""

_WAITING = "no new calls; waiting {bound}for those in flight (interrupt again to give them up)"
_SIGNAL_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_TERMINATING = [signal.SIGTERM]
if hasattr(signal, "SIGHUP"):
    _SIGNAL_WORDS[signal.SIGHUP] = "the terminal was closed"
    _TERMINATING.append(signal.SIGHUP)
INTERRUPTED_CELL = "interrupted; what was answered is kept: run the same again and it goes on where it stopped"


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on an event loop of its own; inside a running loop (a notebook) in a second thread.

    Returns only when that loop has finished, also where the waiting is interrupted: an interrupt lets the calls in flight
    finish, a second one gives them up, and then it is raised.
    """
    shutdown = current_shutdown() or GracefulShutdown()
    if shutdown.reason:
        work.close()
        raise shutdown.reason
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(work, shutdown)
    return _run_in_thread(work, shutdown)


def _run_here(work: Coroutine[Any, Any, T], shutdown: GracefulShutdown) -> T:
    async def main() -> T:
        shutdown.enter_loop()
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if shutdown.reason:
            raise shutdown.reason from None
        raise
    finally:
        shutdown.leave_loop()


def _run_in_thread(work: Coroutine[Any, Any, T], shutdown: GracefulShutdown) -> T:
    result: list[T] = []
    failure: list[BaseException] = []
    ended, context = threading.Event(), contextvars.copy_context()

    def run() -> None:
        try:
            result.append(context.run(_run_here, work, shutdown))
        except BaseException as error:
            failure.append(error)
        finally:
            ended.set()

    # A daemon: a thread that was given up must not keep the process alive for the rest of the run.
    thread = threading.Thread(target=run, name="ragpipe", daemon=True)
    with keyboard_raises():
        interruption = _wait(thread, ended, shutdown)
    if isinstance(interruption, KeyboardInterrupt):
        raise KeyboardInterrupt(INTERRUPTED_CELL) from (failure[0] if failure else interruption)
    if interruption:
        raise interruption
    if failure:
        raise failure[0]
    return result[0]


@contextmanager
def keyboard_raises() -> Iterator[None]:
    """Inside, where a loop runs around us, SIGINT raises KeyboardInterrupt: that loop may have a handler that only marks its own
    task as cancelled, which would be noticed when the run is over."""
    before, task = signal.getsignal(signal.SIGINT), None
    with suppress(RuntimeError):
        task = asyncio.current_task()
    is_main = threading.current_thread() is threading.main_thread()
    if task is None or not is_main or before in (None, signal.SIG_IGN):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if task.cancelling():  # an interrupt that came before, while modules were imported
            raise asyncio.CancelledError
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _wait(thread: threading.Thread, ended: threading.Event, shutdown: GracefulShutdown) -> BaseException | None:
    """Start the thread and wait for its end. Returns what interrupted the waiting first, None when nothing did."""

    def drain() -> None:
        shutdown.say(f"interrupted: {_WAITING.format(bound='')}")
        shutdown.drain(Interrupted("interrupted", signal.SIGINT))

    steps = [thread.start, drain, shutdown.cancel]  # each interrupt adds the next of them
    interruption: BaseException | None = None
    done, due = 0, 1
    while True:
        try:
            while done < due:
                done += 1
                steps[done - 1]()
            ended.wait()
            return interruption
        except BaseException as error:
            interruption = interruption or error
            if thread.ident is None:  # it never began: there is nothing to wait for
                raise
            due = min(due + 1, len(steps))


class SignalHandlers:
    """Inside, a signal ends the stage early: SIGINT lets calls in flight finish, SIGTERM and SIGHUP for `TERM_GRACE_S` at
    most, a second signal of any kind gives them up, and a third ends the process at once. A process that is not the run's
    own (`ragpipe.run`) is never ended: there a third signal restores the handlers from before. The signal of a scheduler that
    preempts the job ends it as SIGTERM does, but is not counted as one of these signals: Slurm may send SIGTERM together with it.

    Only the main thread can take signals; elsewhere `GracefulShutdown` alone ends the stage. An ignored SIGHUP (`nohup`)
    stays ignored.
    """

    def __init__(self, stage: Stoppable, say: Callable[[str], None]):
        self._stage, self._say, self._count = stage, say, 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalHandlers:
        self._loop = asyncio.get_running_loop()
        self._shutdown = GracefulShutdown.of_loop(self._loop)
        self._shutdown.attach(self._stage, self._say)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *_TERMINATING):
                before = signal.getsignal(number)
                if before != signal.SIG_IGN or number == signal.SIGINT:
                    self._before[number] = before
                    self._loop.add_signal_handler(number, self._handle, number)
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if isinstance(handler, Preemption):
                    self._before[number] = handler
                    self._loop.add_signal_handler(number, self._preempt, number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        self._shutdown.detach()
        self._restore()

    def _restore(self) -> None:
        while self._before:
            number, before = self._before.popitem()
            self._loop.remove_signal_handler(number)
            if before is not None:  # a handler that was not set from Python cannot be restored
                signal.signal(number, before)

    def _handle(self, number: signal.Signals) -> None:
        self._count += 1
        code = 128 + number
        if self._count > 2 and self._shutdown.owns_process:
            self._exit(code)
        elif self._count > 2:
            self._restore()
        elif self._count == 2:
            self._shutdown.cancel()
            self._shutdown.exit_after(TWICE_EXIT_S, lambda: self._exit(code))
        else:
            self._end(number, _SIGNAL_WORDS[number])

    def _preempt(self, number: signal.Signals, preemption: Preemption) -> None:
        again, preemption.arrived = preemption.arrived, True
        if not (again or self._count):
            self._end(number, "preempted")

    def _end(self, number: signal.Signals, word: str) -> None:
        bound = "" if number == signal.SIGINT else f"up to {TERM_GRACE_S:g} s "
        self._say(f"{word}: {_WAITING.format(bound=bound)}")
        self._stage.stop(Interrupted(word, number))
        if number != signal.SIGINT:
            self._loop.call_later(TERM_GRACE_S, self._stage.cancel)
            self._shutdown.exit_after(TERM_EXIT_S, lambda: self._exit(128 + number))

    def _exit(self, code: int) -> None:
        self._say("ended at once; what was answered is kept: the same command goes on where it stopped")
        try:
            for handler in self._before.values():
                if isinstance(handler, Preemption) and handler.arrived:
                    code = handler.exit_code()
        finally:
            os._exit(code)


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
    """The handler of submitit's signal while a job runs. submitit's own would raise SystemExit within a metric; this one
    interrupts the run as a signal of the terminal does, and `end` does the rest."""

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
