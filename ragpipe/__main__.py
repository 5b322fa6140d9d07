"""`python -m ragpipe` and the `ragpipe` command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import NoReturn

from ragpipe.errors import Signalled

GARBAGE_AFTER = 50_000
"""New objects after which Python looks for garbage that only refers to itself: some megabytes at most."""


def main() -> None:
    """Run ragpipe on the words of the command line and leave with its exit code."""
    _raise_on_signals()
    # Imports and big JSON files make hundreds of thousands of objects that stay; to walk over them again and again
    # for garbage, as the default of 700 new ones asks for, was a seventh of the time of a start.
    gc.set_threshold(GARBAGE_AFTER, 2, 2)
    from ragpipe.cli import main as run

    code = run()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # the reader of the pipe went away: Python must not meet it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _raise_on_signals() -> None:
    """SIGTERM and SIGHUP end this process as Ctrl-C does: files are closed, and what to do next is said. One that is
    ignored (`nohup`) stays so. While a judge or a system is asked, `tasks/loop.py` takes them.

    SIGINT too raises a type of our own: where a plain KeyboardInterrupt has passed through code that is made at import
    (a dataclass), Python ends the process by the signal, whatever exit code it is given."""

    def came(number: int, _: object) -> NoReturn:
        raise Signalled(number)

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, came)


if __name__ == "__main__":
    main()
