"""Standard streams and logging of the process while ragpipe runs in it."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from typing import TextIO


class SteadyStream(io.TextIOBase):
    """A text stream that cannot end a run: a closed pipe or a character that it cannot encode is no reason to stop."""

    def __init__(self, stream: TextIO):
        self._stream, self._gone = stream, False

    def write(self, text: str) -> int:
        if not self._gone:
            try:
                self._write(text)
            except (ValueError, OSError):
                self._gone = True
        return len(text)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def flush(self) -> None:
        if not self._gone:
            try:
                self._stream.flush()
            except (ValueError, OSError):
                self._gone = True

    def isatty(self) -> bool:
        return not self._gone and self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"


@contextlib.contextmanager
def steady_streams() -> Iterator[None]:
    """Standard output and standard error as steady streams, also where the process has none."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout, sys.stderr = (SteadyStream(stream or nowhere) for stream in before)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = before


@contextlib.contextmanager
def logging_kept() -> Iterator[None]:
    """Restore the handlers and the level of the root logger afterwards: a run may log in its own way."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
