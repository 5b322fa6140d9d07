"""`python -m ragpipe` and the `ragpipe` command."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run ragpipe on the words of the command line and leave with its exit code."""
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
