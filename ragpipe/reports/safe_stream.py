"""A stream that never ends a run: closed pipes fall silent, characters that the terminal lacks are shown as escapes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

_PLAIN = str.maketrans({"±": "+/-", "×": "x", "…": "...", "–": "-", "—": "-", "→": "->"})


class SafeStream:
    """Wraps `sys.stdout` or `sys.stderr`, which may be None, closed, a broken pipe or ASCII only."""

    def __init__(self, stream: TextIO | None):
        self._stream = stream
        self.silent = stream is None
        self.encoding = _encoding(stream)
        self.ascii_only = not self.encoding.lower().replace("-", "").startswith("utf")

    def write(self, text: str) -> int:
        if not self.silent and self._stream is not None:
            try:
                self._stream.write(self.writable(text))
            except (OSError, ValueError):
                self._fall_silent()
        return len(text)

    def flush(self) -> None:
        if not self.silent and self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._fall_silent()

    def isatty(self) -> bool:
        try:
            return not self.silent and self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False

    @property
    def can_redraw(self) -> bool:
        """Whether it is a terminal that can draw a line again; one with `TERM=dumb` cannot."""
        terminal = os.environ.get("TERM", "" if os.name == "nt" else "dumb")
        return self.isatty() and terminal not in ("dumb", "unknown")

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("no stream")
        return self._stream.fileno()

    def writable(self, text: str) -> str:
        """The text as this stream will show it."""
        if self.ascii_only:
            text = text.translate(_PLAIN)
        return text.encode(self.encoding, "backslashreplace").decode(self.encoding)

    def _fall_silent(self) -> None:
        """Write no more, and give the interpreter's own flush at exit a place to write to."""
        self.silent = True
        if self._stream in (sys.__stdout__, sys.__stderr__):
            with suppress(OSError, ValueError, AttributeError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.fileno())
                os.close(nowhere)


def _encoding(stream: Any) -> str:
    name = getattr(stream, "encoding", None) or "utf-8"
    try:
        "".encode(name)
    except LookupError:
        return "ascii"
    return str(name)
