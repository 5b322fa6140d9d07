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
