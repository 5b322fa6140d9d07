"""`python -m ragpipe` and the `ragpipe` command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import NoReturn

from ragpipe.core.errors import SignalReceived, interrupt_behind
from ragpipe.store.processes import collect_new_garbage, spare_the_system


def main() -> None:
    """Run ragpipe on the words of the command line and leave with its exit code."""
    _raise_on_signals()
    spare_the_system()
    gc.disable()  # until the task begins
    try:
        from ragpipe.cli.command_line import main as run

        code = run(before_task=collect_new_garbage)
    except BaseException as error:  # while the command line was being imported: it reports later ones itself
        interrupt = interrupt_behind(error)
        if not isinstance(interrupt, SignalReceived):
            raise
        code = 128 + interrupt.signal_number
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # the pipe was closed: Python must not write to it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _raise_on_signals() -> None:
    """SIGTERM and SIGHUP end this process as Ctrl-C does: files are closed, and what to do next is printed. A signal that is
    ignored (`nohup`) stays ignored. While a judge or a system is asked, `runs/event_loop.py` handles them.

    SIGINT raises a type of our own, too: where a plain KeyboardInterrupt has passed through code generated at import (a
    dataclass), Python ends the process by the signal, whatever its exit code."""

    def came(number: int, _: object) -> NoReturn:
        raise SignalReceived(number)

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, came)


if __name__ == "__main__":
    main()
