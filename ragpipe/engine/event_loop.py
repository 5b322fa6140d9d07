"""One event loop per run, and what ends it early: signals, an interrupted notebook cell, `ragpipe.stop`."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from ragpipe.core.errors import Interrupted, WaitAbandoned
from ragpipe.engine.graceful_shutdown import GracefulShutdown, Preemption, Stoppable, current_shutdown

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
    finish, a second one gives them up, and then it is raised. Raises WaitAbandoned after a third.
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
            due += 1
            if due > len(steps):
                raise WaitAbandoned(
                    "given up: calls in flight may still land; the run's folder stays locked until they have", thread
                ) from interruption


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
