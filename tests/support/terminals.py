"""ragpipe on a terminal of its own, and what that shows."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

from tests.support.harness import environment
from tests.support.waiting import HANGS_AFTER_S

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(words: Sequence[str], cwd: Path, columns: int, *, code: int = 0, **env: str) -> str:
    """What a terminal that is so many columns wide gets of `python -m ragpipe` with these words, control characters too."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environ = {name: value for name, value in environment().items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "ragpipe", *words], cwd=cwd, env={**environ, **env}, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer
    )
    os.close(writer)
    parts = []
    while True:
        try:
            part = os.read(reader, 65536)
        except OSError:  # Linux's word for the end of a terminal
            break
        if not part:
            break
        parts.append(part)
    os.close(reader)
    text = b"".join(parts).decode()
    assert process.wait(HANGS_AFTER_S) == code, text
    return text


def drawn_lines(text: str) -> list[str]:
    """Every line that stood on the terminal, also those that were drawn over, without control characters."""
    return [line for line in re.split(r"[\r\n]+", _CONTROLS.sub("", text)) if line.strip()]
