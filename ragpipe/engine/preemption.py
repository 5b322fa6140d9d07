"""A job of a sweep that its scheduler ends early and puts into its queue again, by submitit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from ragpipe.core.errors import SignalReceived

_SIGNALS = ("SIGUSR1", "SIGUSR2")  # submitit's, as its variable SUBMITIT_PREEMPT_SIGNAL has it


class Preemption:
    """The handler of submitit's signal while a job runs.

    submitit's own handler puts the job into the queue and raises SystemExit wherever the process is: within a metric that would
    count as an error of the metric. This one interrupts the run as a signal of the terminal does, and `end` does the rest.
    """

    def __init__(self, number: int, requeue: Callable[[int, FrameType | None], object]):
        self.came = False
        self._number, self._requeue = number, requeue

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        self.came = True
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
def preemptible() -> Iterator[list[Preemption]]:
    """Inside, submitit's signal is taken by the handlers that are returned; an empty list where submitit did not start this process,
    and in another thread than the main one, which alone takes signals."""
    taken: dict[int, tuple[Preemption, Callable[[int, FrameType | None], object]]] = {}
    if "SUBMITIT_EXECUTOR" in os.environ and threading.current_thread() is threading.main_thread():
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            before = None if number is None else signal.getsignal(number)
            if number is not None and callable(before) and not isinstance(before, signal.Handlers):
                taken[number] = Preemption(number, before), before
    for number, (handler, _) in taken.items():
        signal.signal(number, handler)
    try:
        yield [handler for handler, _ in taken.values()]
    finally:
        for number, (_, before) in taken.items():
            signal.signal(number, before)
