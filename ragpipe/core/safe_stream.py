"""A text stream that cannot end a run: a closed pipe or a character that it cannot encode is no reason to stop."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

_PLAIN = str.maketrans({"±": "+/-", "×": "x", "…": "...", "–": "-", "—": "-", "→": "->", "↓": "(lower)", "↑": "(higher)"})


class SafeStream(io.TextIOBase):
    """Wraps `sys.stdout` or `sys.stderr`, which may be None, closed, a broken pipe or ASCII only."""

    def __init__(self, stream: TextIO | None):
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._ascii_only = not self._encoding.lower().replace("-", "").startswith("utf")

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def write(self, text: str) -> int:
        if self._stream is not None:
            try:
                self._stream.write(self.as_shown(text))
            except (OSError, ValueError):
                self._fall_silent()
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._fall_silent()

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
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

    def as_shown(self, text: str) -> str:
        """The text as this stream will show it."""
        if self._ascii_only:
            text = text.translate(_PLAIN)
        return text.encode(self._encoding, "backslashreplace").decode(self._encoding)

    def _fall_silent(self) -> None:
        """Write no more, and give the interpreter's own flush at exit a place to write to."""
        stream, self._stream = self._stream, None
        is_own = stream in (sys.__stdout__, sys.__stderr__)
        if stream is not None and is_own:
            with suppress(OSError, ValueError, AttributeError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
