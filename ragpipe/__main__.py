"""`python -m ragpipe` and the `ragpipe` command."""

from __future__ import annotations

import gc
import os
import sys

GARBAGE_AFTER = 50_000
"""New objects after which Python looks for garbage that only refers to itself: some megabytes at most."""


def main() -> None:
    """Run ragpipe on the words of the command line and leave with its exit code."""
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


if __name__ == "__main__":
    main()
