"""`python -m ragpipe` and the `ragpipe` command."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from ragpipe.core.errors import SignalReceived

GARBAGE_AFTER = 50_000
"""New objects after which Python looks for cyclic garbage, once a task has begun: some megabytes at most."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # glibc's <malloc.h>


def main() -> None:
    """Run ragpipe on the words of the command line and leave with its exit code."""
    _raise_on_signals()
    _give_memory_back()
    gc.disable()  # until the task begins
    try:
        from ragpipe.cli import main as run

        code = run(before_task=_collect_new_garbage)
    except SignalReceived as received:  # while the command line was being imported: it reports later ones itself
        code = 128 + received.signal_number
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # the pipe was closed: Python must not write to it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _raise_on_signals() -> None:
    """SIGTERM and SIGHUP end this process as Ctrl-C does: files are closed, and what to do next is printed. A signal that is
    ignored (`nohup`) stays ignored. While a judge or a system is asked, `engine/event_loop.py` handles them.

    SIGINT raises a type of our own, too: where a plain KeyboardInterrupt has passed through code generated at import (a
    dataclass), Python ends the process by the signal, whatever its exit code."""

    def came(number: int, _: object) -> NoReturn:
        raise SignalReceived(number)

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, came)


def _collect_new_garbage() -> None:
    """Look for cyclic garbage from now on, and only among what is created from now on.

    Imports and the configuration leave two hundred thousand objects that stay until the end. Scanning them again and again,
    several times more at exit, took a quarter of the time of a short command.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, 2, 2)
    gc.enable()


def _give_memory_back() -> None:
    """Let memory that was freed go back to the system at once, where the C library is glibc.

    A run allocates and frees texts of many sizes in several threads. By default glibc and Arrow keep freed memory for later:
    with cases of 20 KB that was a third of a run's memory.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # read when pyarrow is imported
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            for name, value in ((_TRIM_THRESHOLD, 128 << 10), (_MMAP_THRESHOLD, 128 << 10), (_ARENA_MAX, 2)):
                mallopt(name, value)


if __name__ == "__main__":
    main()
